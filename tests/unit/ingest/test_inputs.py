"""Files found, and read from any place in them."""

from __future__ import annotations

import argparse
import gzip
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_hive_federation.cli.ingest import _delimiter, _whole
from airflow_hive_federation.errors import ConfigurationError, FileVanishedError, StorageError
from airflow_hive_federation.ingest import files, inputs
from airflow_hive_federation.ingest.errors import InvalidColumn, SerializationError
from airflow_hive_federation.ingest.files import IngestRequest, _Origins
from airflow_hive_federation.ingest.inputs import (
    Position,
    find_inputs,
    parquet_batches,
    text_records,
)
from airflow_hive_federation.ingest.places import Places
from airflow_hive_federation.ingest.runs import IngestTarget


def test_files_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", ".hidden", "_begun", "below/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    names = [Path(input_file.uri).name for input_file in find_inputs([str(tmp_path)])]
    assert names == ["a.csv", "b.csv", "c.csv"]
    names = [
        Path(input_file.uri).name for input_file in find_inputs([f"{tmp_path}/b*.csv", f"{tmp_path}/a.csv"])
    ]
    assert names == ["a.csv", "b.csv"]
    with pytest.raises(FileVanishedError):
        find_inputs([f"{tmp_path}/absent"])


def test_a_pattern_takes_its_own_directory_and_no_hidden_files(tmp_path: Path) -> None:
    for name in ("a.csv", "_tmp.csv", "_SUCCESS", "below/a.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    (tmp_path / "below" / "old.csv").symlink_to("/nowhere")

    def found(pattern: str) -> list[str]:
        return [Path(file.uri).name for file in find_inputs([f"{tmp_path}/{pattern}"])]

    assert (found("*"), found("*.csv"), found("_*.csv")) == (["a.csv"], ["a.csv"], ["_tmp.csv"])
    assert not found("*.json")
    with pytest.raises(FileVanishedError, match="absent does not exist"):
        found("absent/*.csv")


@pytest.mark.parametrize("first", ["{}", "file:{}", "file://{}", "{}/", "."])
@pytest.mark.parametrize("then", ["{}", "file:{}", "file://{}", "{}/*", "."])
def test_files_are_known_by_any_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str
) -> None:
    (tmp_path / "1.csv").write_text("1\n")
    monkeypatch.chdir(tmp_path)
    (file,) = find_inputs([first.format(tmp_path)])
    read = Position.of(Position(uri=file.uri, offset=None).to_text())
    again = find_inputs([then.format(tmp_path)])
    spelled = Position.of(Position(uri=f"file://{tmp_path}/1.csv", offset=None).to_text())
    for position in (read, spelled):
        assert not Places([then.format(tmp_path)], again, position, "files").unread()


@pytest.mark.parametrize("quote", ['"', ""])
def test_each_file_names_the_columns_of_the_table(tmp_path: Path, quote: str) -> None:
    request = IngestRequest(table="d.t", inputs=[str(tmp_path)], header=True, quote=quote)
    columns = [SimpleNamespace(name=name) for name in ("salary", "bonus")]

    def read(content: str) -> list[bytes]:
        (tmp_path / "1.csv").write_text(content)
        uri = f"file:{tmp_path}/1.csv"
        check = files._header_check(request, SimpleNamespace(columns=columns), uri)  # type: ignore[arg-type]
        return [
            record
            for records, _, _ in files._read(request, Position(uri=uri, offset=0), None, check)
            for record in records
        ]

    assert read("\ufeffSalary,bonus\r\n3000,9\n") == [b"3000,9"]
    with pytest.raises(InvalidColumn, match=r"1.csv is not the table's. .* another order") as refused:
        read("bonus,salary\n5,1000\n")
    assert refused.value.facts["uri"] == f"file:{tmp_path}/1.csv"
    with pytest.raises(InvalidColumn, match="have 3000, 9, which the table lacks"):
        read("3000,9\n4000,8\n")


def test_what_remains() -> None:
    found = [inputs.InputFile(uri=f"file:/d/{name}", size_bytes=1) for name in "abc"]

    def unread(position: Position | None) -> list[tuple[str, int | None, int]]:
        left = Places(["/d"], found, position, "files").unread()
        return [(Path(file.uri).name, at.offset, at.line) for file, at in left]

    assert unread(None) == [("a", 0, 0), ("b", 0, 0), ("c", 0, 0)]
    assert unread(Position(uri="file:/d/b", offset=7, line=2)) == [("b", 7, 2), ("c", 0, 0)]
    assert unread(Position(uri="file:/d/b", offset=None)) == [("c", 0, 0)]


@pytest.mark.parametrize(
    ("uri", "file", "is_left_out"),
    [
        ("/data/a", "/data/a/1", True),  # another directory than that of the earlier runs
        ("/data/*.json", "/data/a.json", True),
        ("/data/*.c*", "/data/a.csv", False),
        ("/data/o", "/data/o/1", False),
        ("/data", "/data/a.json", False),
        ("/data/o/1", "/data/o/1", False),  # one file per run: the rule of the order is known
        ("/data/a.csv", "/data/a.csv", True),
        ("/data/p/", "/data/p/1", False),  # it comes later
    ],
)
def test_files_of_another_place_are_not_left_out_in_silence(uri: str, file: str, is_left_out: bool) -> None:
    position = Position(uri="file:/data/o/2.csv" if "*" not in uri else "file:/data/o.csv", offset=None)
    found = [inputs.InputFile(uri=f"file:{file}", size_bytes=1)]
    assert len(Places([uri], found, None, "files").unread()) == 1
    if not is_left_out:
        Places([uri], found, position, "files").unread()
        return
    with pytest.raises(
        ConfigurationError, match=rf"{file} would be left out.*'files'.*another place"
    ) as caught:
        Places([uri], found, position, "files").unread()
    assert "--name" in (caught.value.remedy or "")


@pytest.mark.parametrize("offset", [0, 12, None])
def test_a_position_travels_as_text(offset: int | None) -> None:
    position = Position(uri="s3://a/ü", offset=offset, line=3)
    assert Position.of(position.to_text()) == position
    assert Position.of("") is None
    with pytest.raises(ConfigurationError, match="another position key"):
        Position.of("12")


@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz"])
@pytest.mark.parametrize("ended", [True, False])
def test_text_is_read_on_from_any_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ended: bool
) -> None:
    monkeypatch.setattr(inputs, "_CHUNK_BYTES", 64)
    chance = random.Random(7)
    lines = [b"id,msg", *(bytes(chance.choices(b"abc,", k=chance.randint(0, 40))) for _ in range(300)), b"z"]
    content = b"\r\n".join(lines) + (b"\r\n" if ended else b"")
    (tmp_path / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith("gz") else content)
    start = Position(uri=str(tmp_path / name), offset=0)
    pieces = list(text_records(start, None, header=True))
    assert [record for records, _ in pieces for record in records] == lines[1:]
    for place in range(0, len(pieces), 17):
        again = [
            record for records, _ in text_records(pieces[place][1], None, header=True) for record in records
        ]
        assert again == [record for records, _ in pieces[place + 1 :] for record in records]
    assert pieces[-1][1].line == len(lines)


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    assert not list(text_records(Position(uri=str(tmp_path / "f"), offset=0), None, header=False))


@pytest.mark.parametrize("content", [b"id,msg\n1,a\n", gzip.compress(b"1,a\n" * 9_999, mtime=0)[:-40]])
def test_a_damaged_or_truncated_input_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f.gz").write_bytes(content)
    with pytest.raises(StorageError, match=r"f\.gz cannot be decompressed.*provide the whole file"):
        list(text_records(Position(uri=str(tmp_path / "f.gz"), offset=0), None, header=False))


@pytest.mark.parametrize(
    "bounds",
    [{"commit_records": 0}, {"commit_bytes": -1}, {"commit_interval_s": 0}, {"transaction_batch_size": 0}],
)
def test_bounds_are_above_zero(bounds: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(bounds))):
        IngestTarget(table="d.t", name="n", **bounds).check()


@pytest.mark.parametrize(
    ("text", "meant"),
    [(",", ","), ("\\t", "\t"), ("\\x01", "\x01"), ("ß", "ß"), ("\\", "\\"), ("\\\\", "\\")],
)
def test_delimiters_on_the_command_line(text: str, meant: str) -> None:
    assert _delimiter(text) == meant


def test_a_delimiter_that_is_no_escape() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not an escape"):
        _delimiter("\\x")


def test_parquet_is_read_on(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(1000)}), tmp_path / "f.parquet", row_group_size=300)
    pieces = list(parquet_batches(Position(uri=str(tmp_path / "f.parquet"), offset=450)))
    assert [value for batch, _ in pieces for value in batch.column(0).to_pylist()] == list(range(450, 1000))
    (tmp_path / "no.parquet").write_text("no")
    with pytest.raises(ConfigurationError, match="Parquet"):
        list(parquet_batches(Position(uri=str(tmp_path / "no.parquet"), offset=0)))


def test_a_record_knows_its_line() -> None:
    origins = _Origins()
    origins.begin()
    origins.add("a", range(2, 12))
    origins.add("b", [1, 2, 3, 7, 9])
    assert origins.of(1) == ("a", 2)
    assert origins.of(10) == ("a", 11)
    assert origins.of(11) == ("b", 1)
    assert origins.of(15) == ("b", 9)


@pytest.mark.parametrize(
    ("number", "may_have_header", "hint"), [(1, True, True), (2, True, False), (1, False, False)]
)
def test_a_first_line_that_may_name_the_columns(number: int, may_have_header: bool, hint: bool) -> None:
    origins = _Origins(may_have_header=may_have_header)
    origins.begin()
    origins.add("a", range(1, 3))
    with (
        pytest.raises(SerializationError, match=rf"a, line {number}: no int") as refused,
        origins.error_context(),
    ):
        raise SerializationError("no int", record_number=number)
    assert ("--header" in refused.value.remedy) is hint


def test_a_directory_below_the_input_that_vanishes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(uri: str, **_: object) -> list[Any]:
        raise FileVanishedError(f"{uri}/below does not exist.")

    monkeypatch.setattr(inputs, "list_files", vanished)
    with pytest.raises(FileVanishedError, match="/below does not exist"):
        find_inputs([str(tmp_path)])
    with pytest.raises(FileVanishedError, match=r"/nothing does not exist.*Check its name"):
        find_inputs([str(tmp_path / "nothing")])


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("a.csv", "{here}/a.csv"),
        ("*.csv", "{here}/*.csv"),
        ("./a/../b/", "{here}/b"),
        ("/a/b*.csv", "/a/b*.csv"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("file:/a", "file:/a"),
    ],
)
def test_a_position_of_the_command_line_means_the_same_in_every_directory(
    given: str, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _whole(given) == whole.format(here=tmp_path)
