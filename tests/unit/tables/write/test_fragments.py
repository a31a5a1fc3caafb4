"""Bucket files made of fragments, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.acid.bucketing import bucket_numbers
from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.orc.tail import read_tail
from airflow_hive_federation.tables.write import fragments
from airflow_hive_federation.tables.write.fragments import Fragment, _assembled, encode_fragments
from airflow_hive_federation.tables.write.plan import Buckets
from airflow_hive_federation.tables.write.tasks import Writing
from tests.support.acid_writing import writing_into

COUNT = 3
COLUMNS = (Column.of("id", "int"), Column.of("name", "char(3)"), Column.of("at", "timestamp"))
TIME = datetime.fromisoformat("2026-01-01")
TOO_EARLY = datetime.fromisoformat("1969-12-31T23:59:59.999999")


def writing(tmp_path: Path, **changes: Any) -> Writing:
    buckets = Buckets(columns={0: COLUMNS[0].type}, count=COUNT, version=2)
    return writing_into(tmp_path, columns=COLUMNS, buckets=buckets, **changes)


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    current = [0, 100]
    monkeypatch.setattr(fragments, "task_attempt", lambda: tuple(current))
    return current


def batch(ids: range, at: datetime = TIME) -> pa.RecordBatch:
    arrays = [
        pa.array(ids, pa.int32()),
        pa.array([f"{row_id}abc" for row_id in ids]),
        pa.array([at] * len(ids), pa.timestamp("us")),
        pa.array(["x"] * len(ids)),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["c0", "c1", "c2", "p0"])


def encoded(how: Writing, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for fragments in encode_fragments(how)(iter(batches)) for row in fragments.to_pylist()]


def assembled(how: Writing, fragments: list[dict[str, Any]], bucket: int) -> dict[str, Any]:
    of_bucket = [
        Fragment(**{name: value for name, value in row.items() if name != "problem"})
        for row in fragments
        if row["bucket"] == bucket
    ]
    made = _assembled(how, f"insert-{bucket}", of_bucket)
    (result,) = made.to_pylist()
    return dict(result)


@pytest.mark.parametrize("codec", ["zlib", "zstd", "snappy", "lz4", "uncompressed"])
@pytest.mark.parametrize(
    ("stripe_bytes", "expected"), [(1, {True}), (1 << 30, {False}), (500, {True, False})]
)
def test_files_of_fragments(
    tmp_path: Path,
    task: list[int],
    monkeypatch: pytest.MonkeyPatch,
    codec: str,
    stripe_bytes: int,
    expected: set[bool],
) -> None:
    monkeypatch.setattr(fragments, "_STRIPE_BYTES", stripe_bytes)
    monkeypatch.setattr(fragments, "_BLOCK_BYTES", 4_000)
    how = writing(tmp_path, compression=codec)
    parts = []
    for number in range(3):
        task[:] = [number, 100 + number]
        start = number * 300
        parts += encoded(how, [batch(range(at, at + 100)) for at in range(start, start + 300, 100)])
        task[1] += 10
        parts += encoded(how, [batch(range(start + 1000, start + 1010))])
    assert {fragment["is_encoded"] for fragment in parts} == expected
    ids = [*range(900), *range(1000, 1010), *range(1300, 1310), *range(1600, 1610)]
    numbers = bucket_numbers([pa.array(ids, pa.int32())], [COLUMNS[0].type], buckets=COUNT, version=2)
    for bucket in range(COUNT):
        done = assembled(how, parts, bucket)
        path = Path(done["path"].removeprefix("file:"))
        rows = orc.read_table(path).to_pylist()
        wanted = [row_id for row_id, number in zip(ids, numbers, strict=True) if number == bucket]
        assert sorted(row["row"]["id"] for row in rows) == wanted
        assert [row["rowId"] for row in rows] == list(range(len(wanted)))
        assert Counter((r["operation"], r["originalTransaction"], r["bucket"]) for r in rows) == {
            (0, 5, 0x20000002 + (bucket << 16)): len(wanted)
        }
        assert all(
            row["row"] == {"id": i, "name": f"{i}abc"[:3], "at": TIME}
            for row in rows
            for i in [row["row"]["id"]]
        )
        assert (done["bucket"], done["values"], done["row_count"], done["problem"]) == (
            bucket,
            ["x"],
            len(wanted),
            None,
        )
        assert done["size_bytes"] == path.stat().st_size
        with path.open("rb") as file:
            tail = read_tail(file, "made")
        assert tail.row_count == len(wanted)
        lasts = np.cumsum(tail.stripe_rows) - 1
        key = 0x20000002 + (bucket << 16)
        assert tail.user_metadata["hive.acid.key.index"].decode() == "".join(
            f"5,{key},{row_id};" for row_id in lasts
        )
        assert tail.user_metadata["hive.acid.stats"] == f"{len(wanted)},0,0".encode()
        assert tail.types[-2] == bytes([0x08, 17, 0x20, 3])


def test_attempts_of_a_task_do_not_meet(tmp_path: Path, task: list[int]) -> None:
    first = encoded(writing(tmp_path), [batch(range(9))])
    task[1] = 101
    second = encoded(writing(tmp_path), [batch(range(9))])
    assert not {fragment["path"] for fragment in first} & {fragment["path"] for fragment in second}


def test_a_task_without_rows_makes_no_file(tmp_path: Path) -> None:
    assert encoded(writing(tmp_path), [batch(range(0))]) == []
    assert list((tmp_path / "staging").iterdir()) == []


@pytest.mark.parametrize("stripe_bytes", [1, 1 << 30])
def test_rows_that_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stripe_bytes: int
) -> None:
    monkeypatch.setattr(fragments, "_STRIPE_BYTES", stripe_bytes)
    how = writing(tmp_path)
    parts = encoded(how, [batch(range(9)), batch(range(9, 12), TOO_EARLY)])
    if stripe_bytes == 1:
        (fragment,) = parts
        assert list((tmp_path / "staging").iterdir()) == []
    else:
        fragment = next(
            fragment_file
            for fragment_file in (assembled(how, parts, bucket) for bucket in range(COUNT))
            if fragment_file["problem"]
        )
        assert not fragment["path"]
    assert "column at: A timestamp lies in the last second before 1970" in fragment["problem"]


def test_a_failed_attempt_leaves_no_file(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(range(5))
        raise KeyError

    with pytest.raises(KeyError):
        list(encode_fragments(writing(tmp_path))(rows()))
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_fragment_that_is_gone(tmp_path: Path) -> None:
    how = writing(tmp_path)
    fragments = encoded(how, [batch(range(50))])
    Path(fragments[0]["path"].removeprefix("file:")).unlink()
    with pytest.raises(FileVanishedError, match="fragments-0-100"):
        assembled(how, fragments, fragments[0]["bucket"])
    assert list((tmp_path / "staging").iterdir()) == []


def test_an_attempt_that_outlives_its_job_leaves_nothing(tmp_path: Path) -> None:
    late = writing(tmp_path)
    (tmp_path / "staging").rmdir()
    with pytest.raises(FileVanishedError):
        encoded(late, [batch(range(5))])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stripe_bytes", [1, 1 << 30])
def test_fragments_in_another_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stripe_bytes: int
) -> None:
    monkeypatch.setattr(fragments, "_STRIPE_BYTES", stripe_bytes)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    how = writing(tmp_path, staging=f"memory://store/{tmp_path.name}")
    parts = encoded(how, [batch(range(100))])
    done = [assembled(how, parts, bucket) for bucket in range(COUNT)]
    store = fsspec.filesystem("memory")
    rows = [
        row
        for file in done
        for row in orc.read_table(pa.BufferReader(store.cat_file(file["path"]))).to_pylist()
    ]
    assert sorted(row["row"]["id"] for row in rows) == list(range(100))
    assert {entry["path"].rpartition("/")[0] for entry in [*parts, *done]} == {how.staging}
    # Nothing is left where they were made.
    assert [path.name for path in tmp_path.iterdir()] == ["staging"]
