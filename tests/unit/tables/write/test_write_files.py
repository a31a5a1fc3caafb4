"""Files written by tasks, without Spark."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.orc.tail import read_tail
from airflow_hive_federation.tables.write import files as write_files
from airflow_hive_federation.tables.write import tasks
from airflow_hive_federation.tables.write.files import write_deletes, write_inserts
from airflow_hive_federation.tables.write.tasks import Writing
from tests.support.acid_writing import writing_into


def writing(tmp_path: Path, **changes: Any) -> Writing:
    return writing_into(tmp_path, columns=(Column.of("id", "int"), Column.of("name", "char(3)")), **changes)


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    current = [0, 100]
    monkeypatch.setattr(write_files, "task_attempt", lambda: tuple(current))
    return current


def batch(*rows: tuple[int, str, str, int]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    kinds = [pa.int32(), pa.string(), pa.string(), pa.int32()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["c0", "c1", "p0", "b"])


def results(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("file_format", ["acid", "orc", "parquet"])
def test_a_null_in_a_column_that_is_not_null_is_refused(file_format: str, tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"c0": 1, "c1": "a", "p0": "x", "b": 0}, {"c0": None, "c1": "b", "p0": "x", "b": 0}],
        schema=batch((1, "a", "x", 0)).schema,
    )
    for not_null, problem in {
        ("name",): None,
        ("name", "id"): "column id is NOT NULL, and a row has a null in it",
    }.items():
        settings = writing(tmp_path, file_format=file_format, not_null=not_null)
        (done,) = results(write_inserts(settings)(iter([rows])))
        assert done["problem"] == problem
    # Both attempts have one number, so that the refused one has removed the file of the other, too.
    assert not list((tmp_path / "staging").iterdir())


def test_a_file_for_each_partition_and_bucket(tmp_path: Path) -> None:
    rows = [
        batch((1, "a", "x", 0), (2, "b", "x", 0)),
        batch((3, "c", "x", 0), (4, "dddd", "x", 1), (5, "e", "y", 1)),
    ]
    done = results(write_inserts(writing(tmp_path))(iter(rows)))
    assert [(file["values"], file["bucket"], file["row_count"]) for file in done] == [
        (["x"], 0, 3),
        (["x"], 1, 1),
        (["y"], 1, 1),
    ]
    first, second = (Path(file["path"].removeprefix("file:")) for file in done[:2])
    read = orc.read_table(first).to_pylist()
    assert [(r["originalTransaction"], r["bucket"], r["rowId"], r["row"]["id"]) for r in read] == [
        (5, 0x20000002, 0, 1),
        (5, 0x20000002, 1, 2),
        (5, 0x20000002, 2, 3),
    ]
    assert orc.read_table(second).to_pylist()[0]["row"] == {"id": 4, "name": "ddd"}
    with first.open("rb") as file:
        tail = read_tail(file, "first")
    assert tail.calendar == 2
    assert dict(tail.user_metadata) == {
        "hive.acid.key.index": b"5,536870914,2;",
        "hive.acid.stats": b"3,0,0",
        "hive.acid.version": b"2",
    }
    assert tail.types[-1] == bytes([0x08, 17, 0x20, 3])


def test_attempts_of_a_task_do_not_meet(tmp_path: Path, task: list[int]) -> None:
    rows = [batch((1, "a", "x", 0))]
    first = results(write_inserts(writing(tmp_path))(iter(rows)))
    task[1] = 101
    second = results(write_inserts(writing(tmp_path))(iter(rows)))
    assert first[0]["path"] != second[0]["path"]
    assert first[0]["size_bytes"] == second[0]["size_bytes"]


def test_a_failed_attempt_leaves_no_open_file(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch((1, "a", "x", 0))
        raise KeyError

    with pytest.raises(KeyError):
        results(write_inserts(writing(tmp_path))(rows()))
    assert list((tmp_path / "staging").iterdir()) == []


def test_tasks_beyond_the_last_bucket(tmp_path: Path, task: list[int]) -> None:
    task[0] = 4096
    done = results(write_inserts(writing(tmp_path, bucketed=False))(iter([])))
    assert "bucket 4096 is out of range" in done[0]["problem"]


def keys(*rows: tuple[int, int, int, bool], stay: bool = True) -> pa.RecordBatch:
    columns = list(zip(*[(*row, stay, "x", 0) for row in rows], strict=True))
    kinds = [pa.int64(), pa.int32(), pa.int64(), pa.bool_(), pa.bool_(), pa.string(), pa.int32()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["w", "bp", "r", "found", "stays", "p0", "b"])


def test_deletes(tmp_path: Path) -> None:
    rows = [keys((1, 7, 0, True), (1, 7, 3, True)), keys((2, 7, 0, True))]
    (done,) = results(write_deletes(writing(tmp_path, purpose="delete"))(iter(rows)))
    path = Path(done["path"].removeprefix("file:"))
    read = orc.read_table(path).to_pylist()
    assert [tuple(row.values()) for row in read] == [
        (2, 1, 7, 0, 5, None),
        (2, 1, 7, 3, 5, None),
        (2, 2, 7, 0, 5, None),
    ]
    with path.open("rb") as file:
        assert read_tail(file, "x").user_metadata["hive.acid.key.index"] == b"2,7,0;"


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([keys((1, 7, 0, True), (1, 7, 0, True))], r"\(1, 7, 0\) is changed twice"),
        ([keys((1, 7, 0, True)), keys((1, 7, 0, True))], r"\(1, 7, 0\) is changed twice"),
        ([keys((1, 7, 0, True), (1, 7, 4, False))], r"no row with ROW__ID \(1, 7, 4\) \(any more\)"),
        ([keys((1, 7, 2, True), stay=False)], r"ROW__ID \(1, 7, 2\) has other partition values than its p"),
    ],
)
def test_deletes_that_cannot_be(tmp_path: Path, rows: list[pa.RecordBatch], problem: str) -> None:
    import re

    done = results(write_deletes(writing(tmp_path, purpose="delete"))(iter(rows)))
    assert re.search(problem, done[-1]["problem"])
    assert list((tmp_path / "staging").iterdir()) == []


def test_an_attempt_that_outlives_its_job_leaves_nothing(tmp_path: Path) -> None:
    late = writing(tmp_path)
    (tmp_path / "staging").rmdir()
    with pytest.raises(FileVanishedError):
        results(write_inserts(late)(iter([batch((1, "a", "x", 0))])))
    assert not list(tmp_path.iterdir())


def test_workers_do_not_look_at_their_modules_after_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    context = SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 7)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: context)
    tasks._spare_collections.cache_clear()
    try:
        assert gc.get_freeze_count() == 0
        assert tasks.task_attempt() == (3, 7)
        frozen = gc.get_freeze_count()
        assert frozen > 0
        later = [[] for _ in range(1000)]
        assert tasks.task_attempt() == (3, 7)
        assert gc.get_freeze_count() <= frozen, f"{len(later)} objects of a task were frozen"
    finally:
        gc.unfreeze()
        tasks._spare_collections.cache_clear()
