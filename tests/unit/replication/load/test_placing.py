"""A load keeps compactions of the target away from the results of the source's that it places."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.errors import CompactionRunningError, FileVanishedError, TargetChangedError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load import placing
from airflow_hive_federation.replication.load.copying import SourceDirectories, TableCopy
from airflow_hive_federation.replication.load.placing import Placing
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import STAGE, TargetLayout

MERGED = "delta_0000001_0000008"
#: The result of the target's own compaction of the write ids 1 to 5.
OWN = "base_0000005_v0000077"
WORKING = {"dbname": "d", "tablename": "t", "state": "working", "workerid": "w"}


class Target:
    """The queue and the transactions of a target.

    :param queue: answers of ``show_compact``, the last of which is repeated.
    """

    settings = MetastoreSettings(uris=("thrift://target:1",))

    def __init__(self, *queue: list[types.ShowCompactResponseElement]) -> None:
        self.queue = list(queue)
        self.aborted: list[int] = []
        self.open: list[int] = []

    def call(self, _method: str, _request: object) -> types.ShowCompactResponse:
        answer = self.queue.pop(0) if len(self.queue) > 1 else self.queue[0]
        return types.ShowCompactResponse(compacts=answer)

    def abort_txns(self, txns: list[int]) -> None:
        self.aborted += txns

    def get_open_txns(self) -> types.GetOpenTxnsResponse:
        return types.GetOpenTxnsResponse(txn_high_water_mark=100, open_txns=self.open, abortedBits=b"")

    def get_config_value(self, _name: str, default: str) -> str:
        return default


def working(**fields: Any) -> types.ShowCompactResponseElement:
    """A compaction that runs in the table."""
    return types.ShowCompactResponseElement(**{**WORKING, "start": time.time() * 1000, **fields})


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    place = tmp_path / "t" / STAGE / MERGED
    place.mkdir(parents=True)
    (place / "bucket_00000").write_text("merged", encoding="utf-8")
    for number in range(1, 6):
        delta = tmp_path / "t" / f"delta_{number:07}_{number:07}"
        delta.mkdir()
        (delta / "bucket_00000").write_text("one", encoding="utf-8")
    return place


def prepared(
    target: Any, staged: Path, *, complete: int = 5, check: Callable[[], None] = lambda: None
) -> tuple[Placing, TableCopy]:
    """A load that has copied the source's merged delta."""
    root = staged.parents[2]
    policy = ReplicationPolicy(
        name="p", source_database="d", target_database="d", dump_root=f"file:{root}/dumps"
    )
    home = f"file:{staged.parents[1]}"
    document = TableDocument(
        table=types.Table(tableName="t", sd=types.StorageDescriptor(location="file:/source/t")),
        kind=TableKind.FULL_ACID,
    )
    copy = TableCopy(
        staged={f"file:{staged}": f"{home}/{MERGED}"},
        contested={home: SourceDirectories(names=frozenset({MERGED}), placed=frozenset({MERGED}))},
    )
    made = Placing(
        target,
        DumpDirectory(f"file:{root}/dumps/p/1-2-3"),
        TargetLayout(policy=policy, managed=f"file:{root}"),
        check=check,
    )
    made.note(document, copy, complete, None)
    return made, copy


def test_a_compaction_that_runs_loses_its_transaction(staged: Path) -> None:
    others = [
        working(txnId=1, state="initiated"),
        working(txnId=2, tablename="u"),
        working(txnId=3, dbname="e"),
        working(txnId=4, partitionname="p=1"),
    ]
    target = Target([working(txnId=77), *others])
    load, copy = prepared(target, staged)
    # It has made its result already, which nobody will ever read.
    own = staged.parents[1] / OWN
    own.mkdir()
    (own / "bucket_00000").touch()
    target.open = [77]
    load.place("t", copy)
    assert set(target.aborted) == {77}
    assert (staged.parents[1] / MERGED / "bucket_00000").exists()
    # Beside the transactions, which are yet to end, too.
    target.aborted.clear()
    load.refuse_overlaps()
    assert target.aborted == [77]


@pytest.mark.parametrize(
    ("complete", "error"),
    # All of the rows are in the target's own result, or some.
    [(8, CompactionRunningError), (5, TargetChangedError)],
)
def test_a_compaction_that_has_ended_since_the_plan(
    complete: int, error: type[Exception], staged: Path
) -> None:
    load, copy = prepared(Target([]), staged, complete=complete)
    own = staged.parents[1] / OWN
    own.mkdir()
    (own / "bucket_00000").touch()
    with pytest.raises(error, match=MERGED):
        load.place("t", copy)
    assert staged.exists()


def test_a_compaction_that_ends_after_the_placing_is_named(staged: Path) -> None:
    load, copy = prepared(Target([]), staged)
    load.place("t", copy)
    load.refuse_overlaps()
    own = staged.parents[1] / OWN
    own.mkdir()
    (own / "bucket_00000").touch()
    with pytest.raises(TargetChangedError, match=f"show rows twice.*{MERGED}.*{OWN}"):
        load.refuse_overlaps()


def test_a_worker_of_hive_3_is_waited_for(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = replace(placing._PATIENCE, first_s=0.001, longest_s=0.001)
    monkeypatch.setattr(placing, "_PATIENCE", quick)
    target = Target([working()], [working(txnId=0)], [])
    load, copy = prepared(target, staged)
    load.place("t", copy)
    assert not staged.exists()
    assert target.aborted == []


@pytest.mark.parametrize("txn", [None, 0])
def test_a_worker_without_a_transaction_that_does_not_end(
    txn: int | None, staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Hive 4, it names its transaction in a moment, unless it is dead."""
    monkeypatch.setattr(placing, "_PATIENCE", replace(placing._PATIENCE, timeout_s=0.0))
    load, copy = prepared(Target([working(txnId=txn)]), staged)
    with pytest.raises(
        CompactionRunningError, match=r"compaction of d\.t on the target by worker w"
    ) as caught:
        load.place("t", copy)
    assert caught.value.retryable
    assert staged.exists()
    long_ago_ms = (time.time() - 3600) * 1000
    load, copy = prepared(Target([working(txnId=txn, start=long_ago_ms)]), staged)
    if txn is None:
        with pytest.raises(CompactionRunningError):
            load.place("t", copy)
    else:
        load.place("t", copy)
    assert staged.exists() is (txn is None)


def test_files_that_are_gone_from_a_hidden_place_end_the_load(staged: Path) -> None:
    """A suspended predecessor may have removed them."""
    load, copy = prepared(Target([]), staged)
    copy.items = [
        CopyItem(source=f"file:/s/{name}", target=f"file:{staged}/{name}", size_bytes=1)
        for name in ("bucket_00000", "union/bucket_00001")
    ]
    with pytest.raises(FileVanishedError, match=r"1 of the 2 files .*union/bucket_00001"):
        load.place("t", copy)
    assert staged.exists()
    (staged / "union").mkdir()
    (staged / "union/bucket_00001").touch()
    for _ in range(2):  # again, as after a kill
        load.place("t", copy)
        assert (staged.parents[1] / MERGED / "union/bucket_00001").exists()


def test_files_that_a_successor_copies_stay(staged: Path) -> None:
    load, copy = prepared(Target([]), staged)
    later = staged.parent / "base_0000009" / "bucket_00000"
    later.parent.mkdir()
    later.touch()
    load.place("t", copy)
    assert later.exists()


def test_nothing_is_asked_where_nothing_can_overlap(staged: Path) -> None:
    load, copy = prepared(None, staged)
    quiet = Placing(cast("Any", None), load._directory, load._layout)
    document = TableDocument(table=types.Table(tableName="t"), kind=TableKind.FULL_ACID)
    quiet.note(document, TableCopy(), 5, None)
    quiet.refuse_overlaps()
    quiet.place("t", TableCopy(staged=copy.staged))
    assert not staged.exists()
