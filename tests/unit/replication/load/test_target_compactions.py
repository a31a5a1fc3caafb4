"""A load requests the compactions that the target's tables need, as an initiator would."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hive_federation.acid.snapshot import acid_state
from airflow_hive_federation.errors import MetastoreServerError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem, FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.progress.cycle_events import CompactionsRequested
from airflow_hive_federation.progress.events import Event
from airflow_hive_federation.progress.observers import Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.load import target_compactions
from airflow_hive_federation.replication.load.copying import TableCopy
from airflow_hive_federation.replication.load.target_compactions import (
    TargetCompactions,
    Thresholds,
    compaction_needed,
)
from airflow_hive_federation.replication.replica.layout import TargetLayout
from tests.support.dumps import POLICY, manifest

MAJOR, MINOR = types.CompactionType.MAJOR, types.CompactionType.MINOR
WRITE_IDS = ValidWriteIds.of("d.t", high_watermark=40)
ROOT = "file:/w/t"


def deltas(first: int, last: int, size_bytes: int = 10) -> dict[str, int]:
    return {f"delta_{n:07}_{n:07}/bucket_00000": size_bytes for n in range(first, last + 1)}


def base(write_id: int, size_bytes: int) -> dict[str, int]:
    return {f"base_{write_id:07}/bucket_00000": size_bytes}


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, None),
        (deltas(1, 10), None),
        (deltas(1, 11), MAJOR),
        ({**base(1, 2000), **deltas(2, 11)}, None),
        ({**base(1, 2000), **deltas(2, 12)}, MINOR),
        ({**base(1, 100), **deltas(2, 2, 10)}, None),
        ({**base(1, 100), **deltas(2, 2, 11)}, MAJOR),
        ({"000000_0": 100, **deltas(2, 2, 11)}, MAJOR),
        # Directories that a copied result of a compaction replaces are for the cleaner.
        ({**base(3, 1000), **deltas(1, 3), **deltas(4, 4)}, MINOR),
        ({**base(1, 1000), **base(3, 1000)}, MINOR),
        ({**deltas(1, 2), "delta_0000001_0000002/bucket_00000": 20}, MINOR),
    ],
)
def test_the_kind_that_a_partition_needs(files: dict[str, int], kind: types.CompactionType | None) -> None:
    listing = [FileEntry(path=path, size_bytes=size_bytes) for path, size_bytes in files.items()]
    need = compaction_needed(acid_state(listing, WRITE_IDS), Thresholds())
    assert (need and need.kind) == kind


@pytest.mark.parametrize(
    ("files", "can_wait"),
    [
        ({**base(1, 100), **deltas(2, 2, 11)}, True),
        ({**base(1, 100), **deltas(2, 11, 11)}, True),
        # Readers would get slow, or the cleaner have to wait for the next change of the partition.
        ({**base(1, 100), **deltas(2, 12, 11)}, False),
        ({**base(3, 10), **deltas(1, 3), **deltas(4, 4)}, False),
        ({**base(3, 1000), **deltas(1, 3)}, False),
    ],
)
def test_few_deltas_can_wait_for_the_next_round(files: dict[str, int], can_wait: bool) -> None:
    listing = [FileEntry(path=path, size_bytes=size_bytes) for path, size_bytes in files.items()]
    need = compaction_needed(acid_state(listing, WRITE_IDS), Thresholds())
    assert need is not None
    assert need.can_wait == can_wait


def test_a_table_has_thresholds_of_its_own() -> None:
    of_table = Thresholds(deltas=10, share=0.1).of_table(
        {
            "compactorthreshold.hive.compactor.delta.num.threshold": "3",
            "compactorthreshold.hive.compactor.delta.pct.threshold": "0.5",
        }
    )
    assert of_table == Thresholds(deltas=3, share=0.5)
    assert Thresholds().of_table({"compactorthreshold.hive.compactor.delta.num.threshold": "x"}).deltas == 10


class Metastore:
    """The answers of a target."""

    def __init__(self, settings: Mapping[str, str], *, refuses: bool = False) -> None:
        self.settings = settings
        self.refuses = refuses
        self.queue: list[types.ShowCompactResponseElement] = []
        self.requests: list[tuple[str, str | None, types.CompactionType]] = []

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "get_config_value":
            return self.settings.get(arguments[0], arguments[1])
        if name == "show_compact":
            return types.ShowCompactResponse(compacts=self.queue)
        assert name == "compact2"
        if self.refuses:
            raise MetastoreServerError("no right to compact")
        (request,) = arguments
        self.requests.append((f"{request.dbname}.{request.tablename}", request.partitionname, request.type))
        return SimpleNamespace(accepted=True)


def partitioned(directory: DumpDirectory, parameters: Mapping[str, str]) -> TableDocument:
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=types.StorageDescriptor(location="file:/source/t"),
        partitionKeys=[types.FieldSchema(name="p", type="int")],
        parameters={"transactional": "true", **parameters},
    )
    lines = [
        PartitionLine.of(
            f"p={value}",
            types.Partition(
                values=[value], sd=types.StorageDescriptor(location=f"file:/source/t/p={value}"), createTime=1
            ),
        )
        for value in ("1", "2", "3")
    ]
    document = TableDocument(table=table, kind=TableKind.FULL_ACID, write_ids=WRITE_IDS)
    directory.write_table(document)
    directory.write_partitions("t", lines)
    return document


def requested(
    metastore: Metastore,
    root: Path,
    parameters: Mapping[str, str] | None = None,
    database: Mapping[str, str] | None = None,
    *,
    before: Mapping[str, int] = deltas(1, 10),
    write_ids: ValidWriteIds = WRITE_IDS,
) -> list[Event]:
    """Note a table with one crowded partition, to which the load adds the last delta, and request.

    :param parameters: those of the table.
    :param database: those of its database.
    :param before: the files of that partition before the load, with their sizes.
    """
    directory = DumpDirectory(f"file:{root}/{len([*root.iterdir()])}")
    directory.write_database(types.Database(name="d", parameters=dict(database or {})))
    document = replace(partitioned(directory, parameters or {}), write_ids=write_ids)
    directory.finish_dump(manifest())
    there = {
        f"{ROOT}/p=1/{path}": FileEntry(path=f"p=1/{path}", size_bytes=size_bytes)
        for path, size_bytes in before.items()
    }
    there[f"{ROOT}/p=2/delta_0000001_0000001/bucket_00000"] = FileEntry(path="", size_bytes=10)
    last = f"{ROOT}/p=1/_hive_federation/delta_0000011_0000011/bucket_00000"
    copy = TableCopy(items=[CopyItem(source="file:/source/f", target=last, size_bytes=10)])
    layout = TargetLayout(policy=POLICY, managed="file:/w")
    needs = TargetCompactions(cast("Any", metastore), directory, layout, database="d")
    needs.note(document, there, copy, None)
    events: list[Event] = []
    needs.request(Steps(events.append, "d", lambda: None), events.append)
    return [event for event in events if isinstance(event, CompactionsRequested)]


ON = {"hive.compactor.initiator.on": "true"}


def test_a_crowded_partition_is_requested_once(tmp_path: Path) -> None:
    metastore = Metastore(ON)
    assert requested(metastore, tmp_path) == [CompactionsRequested(database="d", partitions=1)]
    assert metastore.requests == [("d.t", "p=1", MAJOR)]
    for state in ("initiated", "working", "ready for cleaning"):
        metastore.queue = [
            types.ShowCompactResponseElement(dbname="d", tablename="t", partitionname="p=1", state=state)
        ]
        assert not requested(metastore, tmp_path)
    metastore.queue[0].state = "succeeded"
    assert requested(metastore, tmp_path)
    assert len(metastore.requests) == 2


@pytest.mark.parametrize(
    ("settings", "age_s", "is_requested"),
    [
        ({}, 299, False),
        ({}, 301, True),
        ({"metastore.compactor.check.interval": "10s"}, 11, True),
        ({"hive.compactor.check.interval": "1h"}, 3599, False),
    ],
)
def test_a_partition_with_few_deltas_waits_for_the_initiators_interval(
    settings: dict[str, str], age_s: int, is_requested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load would compact a small table anew; an initiator looks every five minutes."""
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    metastore = Metastore({**ON, **settings})
    metastore.queue = [
        types.ShowCompactResponseElement(
            dbname="d",
            tablename="t",
            partitionname="p=1",
            state="succeeded",
            enqueueTime=int((1_000_000 - age_s) * 1000),
        )
    ]
    small = {**base(1, 50), **deltas(2, 3)}
    assert bool(requested(metastore, tmp_path, before=small)) == is_requested
    # That of another partition counts for none, and many deltas do not wait.
    metastore.queue[0].partitionname = "p=2"
    assert requested(metastore, tmp_path, before=small)
    metastore.queue[0].partitionname = "p=1"
    assert requested(metastore, tmp_path)


@pytest.mark.parametrize(
    ("high_watermark", "open_ids", "accepted"),
    [
        (25, (), True),  # the batch has ended
        (25, tuple(range(15, 26)), True),  # nothing of it is committed
        (25, tuple(range(21, 26)), False),
        (30, (21,), False),
        # An aborted end: the metastore does not count it.
        (20, (), False),
    ],
)
def test_nothing_is_requested_while_a_streaming_batch_is_half_committed(
    high_watermark: int, open_ids: tuple[int, ...], accepted: bool, tmp_path: Path
) -> None:
    """The worker of Hive would name its result after the highest write id, and hide the batch's rows."""
    write_ids = ValidWriteIds(
        table="d.t",
        high_watermark=high_watermark,
        open_ids=open_ids,
        min_open_id=min(open_ids, default=None),
    )
    batch = {"delta_0000015_0000025/bucket_00000": 10}
    metastore = Metastore(ON)
    assert (
        bool(requested(metastore, tmp_path, write_ids=write_ids, before={**deltas(1, 10), **batch}))
        is accepted
    )
    assert bool(metastore.requests) is accepted


def test_a_base_whose_compaction_may_be_aborted_makes_no_batch_whole(tmp_path: Path) -> None:
    write_ids = ValidWriteIds(table="d.t", high_watermark=25, open_ids=tuple(range(21, 26)), min_open_id=21)
    files = {"base_0000020_v0000099/bucket_00000": 1000, "delta_0000015_0000025/bucket_00000": 10}
    assert not requested(Metastore(ON), tmp_path, write_ids=write_ids, before={**deltas(1, 10), **files})


def test_a_load_adds_a_bounded_number_of_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is for later loads: readers wait for the publication."""
    monkeypatch.setattr(target_compactions, "_MOST_REQUESTS", 0)
    metastore = Metastore(ON)
    assert not requested(metastore, tmp_path)
    assert not metastore.requests


@pytest.mark.parametrize(
    ("settings", "parameters", "database"),
    [
        ({}, {}, {}),
        ({"hive.compactor.initiator.on": "false"}, {}, {}),
        ({**ON, "hive.compactor.delta.num.threshold": "11"}, {}, {}),
        (ON, {"no_auto_compaction": "true"}, {}),
        (ON, {"NO_AUTO_COMPACTION": "true"}, {}),
        (ON, {}, {"no_auto_compaction": "true"}),
    ],
)
def test_nothing_is_requested_that_the_initiator_would_not(
    settings: dict[str, str], parameters: dict[str, str], database: dict[str, str], tmp_path: Path
) -> None:
    metastore = Metastore(settings)
    assert not requested(metastore, tmp_path, parameters, database)
    assert not metastore.requests


def test_a_table_is_compacted_against_the_property_of_its_database(tmp_path: Path) -> None:
    refused, asked = {"no_auto_compaction": "true"}, {"no_auto_compaction": "false"}
    assert requested(Metastore(ON), tmp_path, asked, refused)


def test_a_refused_request_ends_no_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not requested(Metastore(ON, refuses=True), tmp_path)
    assert "refuses to compact d.t" in caplog.text
