"""A dump is whole and as it was written, or it is refused."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from airflow_hive_federation.errors import DumpCorruptError, DumpIncompleteError
from airflow_hive_federation.model import json_values
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import FinishedLoad
from airflow_hive_federation.replication.format.tables import table_file
from airflow_hive_federation.storage.plan_files import write_records
from tests.support.dumps import manifest


@pytest.fixture
def dump(tmp_path: Path) -> DumpDirectory:
    directory = DumpDirectory(f"file:{tmp_path}/dump")
    directory.write_json("database.json", {"name": "d"})
    directory.write_lines("events.jsonl", ({"n": n, "text": "zeile\u2028\u0085ende"} for n in range(3)))
    directory.write_text("_notes", "document d\n")
    directory.finish_dump(manifest(event_id=7))
    return DumpDirectory(directory.uri)


def test_what_was_written_is_read(dump: DumpDirectory) -> None:
    assert dump.manifest().event_id == 7
    assert dump.read_json("database.json", json_values.json_object) == {"name": "d"}
    assert [line["n"] for line in dump.read_lines("events.jsonl", json_values.json_object)] == [0, 1, 2]


def test_an_unfinished_dump_is_refused(tmp_path: Path) -> None:
    directory = DumpDirectory(f"file:{tmp_path}/dump")
    directory.write_json("database.json", {})
    with pytest.raises(DumpIncompleteError, match="not finished"):
        directory.manifest()


def read_everything(dump: DumpDirectory) -> None:
    dump.read_json("database.json", json_values.json_object)
    list(dump.read_lines("events.jsonl", json_values.json_object))
    dump.read_text("_notes")


@pytest.mark.parametrize("name", ["database.json", "_notes", "events.jsonl", "_manifest.json"])
@pytest.mark.parametrize("damage", ["truncate", "change", "remove"])
def test_a_damaged_file_is_named(dump: DumpDirectory, tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / "dump" / name
    data = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(
            data[: len(data) // 2] if damage == "truncate" else data.replace(b"d", b"e", 1) + b" "
        )
    with pytest.raises(DumpCorruptError, match=name.replace(".", r"\.")):
        read_everything(dump)


@pytest.mark.parametrize(("content", "why"), [(b"{", "it is not JSON"), (b'"\xff"', "it is not UTF-8 text")])
def test_what_its_writer_garbled_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    """Its digest is right, and yet it is no document."""
    directory = DumpDirectory(f"file:{tmp_path}/dump")
    directory.write_text("database.json", "")
    (tmp_path / "dump/database.json").write_bytes(content)
    directory._digests["database.json"] = hashlib.sha256(content).hexdigest()
    directory.finish_dump(manifest())
    with pytest.raises(DumpCorruptError, match=rf"database\.json cannot be used: {why}"):
        DumpDirectory(directory.uri).read_json("database.json", json_values.json_object)


def test_what_another_run_has_begun_is_no_part_of_the_dump(tmp_path: Path) -> None:
    """Runs of one drain have one directory; one that was killed may have met tables that are gone since."""
    begun = DumpDirectory(f"file:{tmp_path}/dump")
    begun.write_json("_begun.json", {"policy": "of before"})
    begun.write_json("database.json", {"name": "of before"})
    begun.write_json("tables/gone.json", {})
    (tmp_path / "dump/tables/._half.json.new").write_text("{", encoding="utf-8")
    again = DumpDirectory(begun.uri)
    again.write_json("_begun.json", {"policy": "p"})
    again.write_json("database.json", {"name": "d"})
    assert not again.dump_finished
    again.finish_dump(manifest(event_id=7))
    dump = DumpDirectory(begun.uri)
    assert sorted(dump.manifest().files) == ["_begun.json", "database.json"]
    assert dump.read_json("database.json", json_values.json_object) == {"name": "d"}
    with pytest.raises(DumpCorruptError, match=r"tables/gone\.json"):
        dump.read_json("tables/gone.json", json_values.json_object)


def test_a_sealed_manifest_is_the_one_that_is_read(tmp_path: Path) -> None:
    directory = DumpDirectory(f"file:{tmp_path}/dump")
    directory.write_json("database.json", {"name": "d"})
    sealed = directory.finish_dump(manifest(event_id=7))
    assert sealed == DumpDirectory(directory.uri).manifest()


def test_a_run_that_goes_on_beside_its_successor_mixes_nothing_into_the_dump(tmp_path: Path) -> None:
    suspended, successor = (DumpDirectory(f"file:{tmp_path}/dump") for _ in range(2))
    for run, text in ((suspended, "of before"), (successor, "d")):
        run.write_json("database.json", {"name": text})
        run.write_json("_begun.json", {"made": text})
    successor.finish_dump(manifest(event_id=7))
    suspended.write_json("database.json", {"name": "of before"})
    with pytest.raises(DumpCorruptError, match=r"database\.json .* truncated or changed"):
        DumpDirectory(successor.uri).read_json("database.json", json_values.json_object)
    # Though it acknowledges what it has written, the rest is not of its making.
    suspended.finish_dump(manifest(event_id=7))
    with pytest.raises(DumpCorruptError, match=r"_begun\.json .* truncated or changed"):
        DumpDirectory(successor.uri).read_json("_begun.json", json_values.json_object)


@pytest.mark.parametrize("broken", ["{", "1, 2", "", "1]"])
def test_a_broken_line_is_named(tmp_path: Path, broken: str) -> None:
    """However many lines are parsed together."""
    (tmp_path / "report.jsonl").write_text("".join(f"[{n}]\n" for n in range(2500)) + broken + "\n[7]\n")
    lines = DumpDirectory(f"file:{tmp_path}").read_report(
        "report.jsonl", json_values.list_of(json_values.whole)
    )
    assert [next(lines) for _ in range(2500)] == [(n,) for n in range(2500)]
    with pytest.raises(DumpCorruptError, match="line 2501 is not JSON"):
        next(lines)


def test_a_dump_of_another_format_is_refused(tmp_path: Path) -> None:
    directory = DumpDirectory(f"file:{tmp_path}/dump")
    directory.finish_dump(manifest())
    text = (tmp_path / "dump/_manifest.json").read_text().replace('"format": 2', '"format": 3')
    DumpDirectory(directory.uri)._write("_manifest.json", [text])
    DumpDirectory(directory.uri)._write("_finished_dump", [hashlib.sha256(text.encode()).hexdigest()])
    with pytest.raises(DumpCorruptError, match="format 3"):
        DumpDirectory(directory.uri).manifest()


def test_a_tables_name_is_safe_as_a_file_name() -> None:
    assert table_file("tables", "a/b", ".json") == "tables/a%2Fb.json"


def test_a_dump_is_its_owners_alone(tmp_path: Path) -> None:
    """It names other people's tables, partitions and files. The directories above it are as they are made."""
    root = tmp_path / "dumps"
    before = os.umask(0)
    try:
        for _ in range(2):
            dump = DumpDirectory(f"file:{root}/policy/1-2-3")
            dump.write_json("tables/t.json", {})
            dump.finish_dump(manifest())
            dump.finish_load(FinishedLoad(database="d"))
            write_records(f"{dump.uri}/load/outcomes/one.jsonl", [])
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root / "policy").rglob("*")}
            assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
            assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
            assert len(modes) == 9
            # As an older version has made it: the next file that is written closes it.
            (root / "policy" / "1-2-3").chmod(0o755)
    finally:
        os.umask(before)
    assert stat.S_IMODE(root.stat().st_mode) == 0o777
    assert dump.manifest().files.keys() == {"tables/t.json"}
