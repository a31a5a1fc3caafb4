"""A file with its name is on the disk, and so is the name."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.compaction import files as compaction_files
from airflow_hive_federation.compaction.plan import CompactionPlan, Decision, FileFormat
from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.ingest.dead_letters import DeadLetter, DeadLetterFile
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.load.copying import TableCopy
from airflow_hive_federation.replication.load.placing import place_staged
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.publishing import make_directory, write_atomically
from tests.support.dumps import manifest
from tests.support.durability import Recorder, recorded


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    with recorded(tmp_path, monkeypatch) as calls:
        yield calls


def test_a_file_that_is_written(recorder: Recorder, tmp_path: Path) -> None:
    write_atomically(f"{tmp_path}/a/b/f", [b"some", b"thing"])
    recorder.assert_durable()
    write_atomically(f"{tmp_path}/a/b/f", [b"other"], private=True)
    recorder.assert_durable()


def test_a_dump(recorder: Recorder, tmp_path: Path) -> None:
    dump = DumpDirectory(f"file:{tmp_path}/dumps/p/7-1")
    dump.write_json("database.json", {})
    dump.write_lines("partitions/t.jsonl", [{"n": 1}])
    dump.write_text("_external_tables_info", "")
    recorder.assert_durable()
    dump.finish_dump(manifest())
    recorder.assert_durable()
    # No file marks the dump as complete before all of it would survive a crash.
    finished = recorder.at("rename", "_finished_dump")
    synced = {Path(path).name for call, path in recorder.calls[:finished] if call == "fsync"}
    assert {"7-1", "partitions"} <= synced
    assert recorder.at("rename", "_manifest.json") < finished
    assert ("fsync", f"{tmp_path}/dumps/p/7-1") == recorder.calls[-1]


def test_writers_of_one_name_have_hidden_names_of_their_own(tmp_path: Path) -> None:
    first, second = (DumpDirectory(f"file:{tmp_path}/d") for _ in range(2))
    seen = []

    def lines() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        second.write_lines("t.jsonl", [{"n": 2}, {"n": 3}])
        seen.extend(path.name for path in (tmp_path / "d").iterdir())

    first.write_lines("t.jsonl", lines())
    assert len(seen) == 2
    assert (tmp_path / "d" / "t.jsonl").read_text(encoding="utf-8") == '{"n": 1}\n'
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["t.jsonl"]


def made(tmp_path: Path, name: str = "s", content: bytes = b"rows") -> CopyItem:
    (tmp_path / name).write_bytes(content)
    return CopyItem(
        source=f"file:{tmp_path}/{name}", target=f"file:{tmp_path}/t/p=1/f", size_bytes=len(content)
    )


def test_a_copy(recorder: Recorder, tmp_path: Path) -> None:
    copy_file(made(tmp_path))
    recorder.assert_durable()


def test_a_copy_whose_directories_take_after_the_source(recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "from" / "p=1").mkdir(parents=True)
    made(tmp_path, "from/p=1/f")
    item = CopyItem(
        source=f"file:{tmp_path}/from/p=1/f",
        target=f"file:{tmp_path}/to/p=1/f",
        size_bytes=4,
        source_levels=2,
        target_levels=2,
    )
    recorder.unkept.clear()
    copy_file(item)
    recorder.assert_durable()


def test_a_copy_without_rows_of_aborted_write_ids(recorder: Recorder, tmp_path: Path) -> None:
    def rewrite(_source: str, target: str, _write_ids: str, _options: object) -> None:
        Path(target.removeprefix("file:")).write_bytes(b"fewer")

    item = CopyItem(**{**vars_of(made(tmp_path)), "visible_write_ids": "d.t:5:5::"})
    copy_file(item, CopySettings(rewrite=rewrite))
    recorder.assert_durable()


def vars_of(item: CopyItem) -> dict[str, object]:
    return {name: getattr(item, name) for name in CopyItem.__dataclass_fields__}


def test_a_file_that_is_there_already_is_waited_for(recorder: Recorder, tmp_path: Path) -> None:
    item = made(tmp_path)
    (tmp_path / "t" / "p=1").mkdir(parents=True)
    (tmp_path / "t" / "p=1" / "f").write_bytes(b"rows")
    assert not copy_file(item).copied
    assert ("fsync", f"{tmp_path}/t/p=1/f") in recorder.calls
    assert ("fsync", f"{tmp_path}/t/p=1") in recorder.calls


def test_a_copy_may_do_without(recorder: Recorder, tmp_path: Path) -> None:
    copy_file(made(tmp_path), CopySettings(sync=False))
    assert recorder.early


def test_a_directory_that_was_staged(recorder: Recorder, tmp_path: Path) -> None:
    staged = f"file:{tmp_path}/t/_hive_federation/delta_1_2"
    item = made(tmp_path)
    copy_file(CopyItem(**{**vars_of(item), "target": f"{staged}/bucket_00000"}))
    place_staged(TableCopy(staged={staged: f"file:{tmp_path}/t/delta_1_2"}))
    recorder.assert_durable()
    assert (tmp_path / "t" / "delta_1_2" / "bucket_00000").exists()


def test_the_directory_that_a_table_moves_to(recorder: Recorder, tmp_path: Path) -> None:
    make_directory(f"file:{tmp_path}/other.db/t")
    assert not recorder.lost
    make_directory(f"file:{tmp_path}/other.db/t")
    assert recorder.calls[-1] == ("fsync", f"{tmp_path}/other.db")


def test_what_compaction_made(recorder: Recorder, tmp_path: Path) -> None:
    plan = CompactionPlan(
        decision=Decision.COMPACT, staging=".staging", directories=("base_5_v9",), merges=()
    )
    write_atomically(f"{tmp_path}/.staging/base_5_v9/bucket_00000", [b"ORC"])
    compaction_files.publish(plan, f"file:{tmp_path}", FileFormat.ACID)
    recorder.assert_durable()
    assert sorted(path.name for path in (tmp_path / "base_5_v9").iterdir()) == [
        "_orc_acid_version",
        "bucket_00000",
    ]


def test_dead_letters(recorder: Recorder, tmp_path: Path) -> None:
    letters = DeadLetterFile(f"file:{tmp_path}/bad/letters.jsonl")
    letters(DeadLetter(record=b"x", record_number=1, column="c", reason="r"))
    letters.flush()
    assert ("fsync", f"{tmp_path}/bad/letters.jsonl") in recorder.calls
    assert not recorder.lost


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_wait_for_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    fsync = os.fsync

    def refusing(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refusing)
    write_atomically(f"{tmp_path}/a/f", [b"x"])
    assert (tmp_path / "a" / "f").read_bytes() == b"x"


@pytest.mark.parametrize(
    "publish",
    [
        pytest.param(lambda at: write_atomically(f"{at}/t/p=1/f", [b"new"]), id="written"),
        pytest.param(lambda at: copy_file(made(at, content=b"new")), id="copied"),
    ],
)
def test_a_disk_that_fails_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish: Callable[[Path], object]
) -> None:
    target = tmp_path / "t" / "p=1" / "f"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"before")

    def failing(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageError, match="Input/output error"):
        publish(tmp_path)
    assert target.read_bytes() == b"before"
    assert [path.name for path in target.parent.iterdir()] == ["f"]
