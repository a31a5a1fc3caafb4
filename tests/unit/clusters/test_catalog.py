"""Facts that are kept between statements: each is read again once it may have changed."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters import catalog as catalog_module
from airflow_hive_federation.clusters.catalog import MetastoreFacts
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    metadata_mark,
    place_mark,
    source_mark,
    write_metadata,
)
from airflow_hive_federation.clusters.placement import Placement, TableFacts
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.listing import list_files
from tests.support.two_clusters import two_clusters

REGISTRY = two_clusters("/one", "/two")


class Metastore:
    """A metastore in memory, with an event per change; it notes what is read."""

    def __init__(self) -> None:
        self.tables: dict[str, types.Table] = {}
        self.partitions: dict[str, list[types.Partition]] = {}
        self.events: dict[int, str] = {}
        self.write_id = 1
        self.read: list[str] = []
        #: The tables of the last call.
        self.asked: list[str] = []

    def add(self, name: str, *days: str, parameters: dict[str, str] | None = None) -> None:
        self.tables[name] = types.Table(
            dbName="d",
            tableName=name,
            createTime=len(self.events),
            partitionKeys=[types.FieldSchema(name="ds", type="string")] if days else [],
            parameters=parameters or {},
        )
        self.partitions[name] = [types.Partition(values=[day]) for day in days]
        self.happened(name)

    def happened(self, name: str) -> None:
        self.events[len(self.events) + 1] = name

    def call(self, method: str, *_: str) -> str:
        assert method == "get_config_value"
        return "org.apache.hive.hcatalog.listener.DbNotificationListener"

    def get_current_notification_event_id(self) -> int:
        return max(self.events, default=0)

    def iter_notification_events(self, after: int, *, up_to: int) -> Iterator[types.NotificationEvent]:
        for number, name in self.events.items():
            if after < number <= up_to and name != "lost":
                yield types.NotificationEvent(eventId=number, dbName="d", tableName=name)

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        self.read += names
        self.asked = [f"{database}.{name}" for name in names]
        return [self.tables[name] for name in names if name in self.tables]

    def iter_partitions(self, _database: str, name: str) -> Iterator[types.Partition]:
        self.read.append(f"{name}/*")
        yield from self.partitions[name]

    def get_open_txns(self) -> Any:
        return SimpleNamespace(txn_high_water_mark=1, open_txns=[], abortedBits=b"", min_open_txn=None)

    def get_valid_write_ids(self, names: Sequence[str], *, valid_txn_list: str) -> dict[str, Any]:
        assert valid_txn_list
        return {
            name: SimpleNamespace(
                writeIdHighWaterMark=self.write_id, invalidWriteIds=[], abortedBits=b"", minOpenWriteId=None
            )
            for name in names
        }


@pytest.fixture
def metastore() -> Metastore:
    made = Metastore()
    made.add("parted", "1", "2")
    made.add("other", "1")
    return made


@pytest.fixture
def facts(metastore: Metastore) -> MetastoreFacts:
    made = MetastoreFacts(cast("MetastoreClient", metastore), REGISTRY)
    made.refresh()
    return made


def seen(facts: MetastoreFacts, name: str = "parted") -> tuple[str, list[str]]:
    """The version and the partitions of a table."""
    table = cast("TableFacts", facts.table("d", name))
    return table.version, [partition.values[0] for partition in facts.partitions(table)]


def test_nothing_is_read_again_without_a_change(metastore: Metastore, facts: MetastoreFacts) -> None:
    before = seen(facts)
    assert before[0]
    facts.refresh()
    assert seen(facts) == before
    assert metastore.read == ["parted", "parted/*"]


class Waiting:
    """A pool of two clients of a metastore, each of which waits until the other one reads partitions, too."""

    size = 2

    def __init__(self, metastore: Metastore) -> None:
        self.metastore = metastore
        self.barrier = threading.Barrier(2)
        self.open = 0

    def __enter__(self) -> Waiting:
        self.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.open -= 1

    @contextmanager
    def client(self) -> Iterator[Waiting]:
        yield self

    def iter_partitions(self, database: str, name: str) -> Iterator[types.Partition]:
        self.barrier.wait(timeout=60)
        return self.metastore.iter_partitions(database, name)


def test_the_partitions_of_all_tables_of_a_statement_are_read_at_the_same_time(metastore: Metastore) -> None:
    """Two clients read four tables; a view, a table without partitions, and a known table are left out."""
    copied = {"transactional": "true"}
    for name in ("third", "fourth"):
        metastore.add(name, "1", "2", parameters=copied)
    metastore.add("known", "1")
    metastore.add("whole")
    metastore.add("unused", "1")
    pool = Waiting(metastore)
    facts = MetastoreFacts(
        cast("MetastoreClient", metastore), REGISTRY, pool=lambda: cast("MetastorePool", pool)
    )
    facts.refresh()
    assert seen(facts, "known")[1] == ["1"]
    assert seen(facts, "unused")[1] == ["1"]
    facts.refresh()
    facts.prefetch(("D", name) for name in ("parted", "OTHER", "third", "fourth", "known", "whole", "none"))
    metastore.read.clear()
    assert seen(facts)[1] == ["1", "2"]
    # A pool serves one batch.
    assert (pool.open, sorted(metastore.read)) == (0, ["fourth/*", "other/*", "parted/*", "third/*"])
    assert [seen(facts, name)[1] for name in ("other", "third", "fourth")] == [["1"], ["1", "2"], ["1", "2"]]
    assert len(metastore.read) == 4
    # The next statement reads transactional tables again, and only those that it names.
    facts.refresh()
    facts.prefetch([("d", "third"), ("d", "other")])
    metastore.read.clear()
    assert seen(facts, "third")[1] == ["1", "2"]
    assert metastore.read == ["third/*"]


def test_an_error_of_one_table_ends_the_reading_of_all(metastore: Metastore) -> None:
    del metastore.partitions["other"]
    pool = Waiting(metastore)
    facts = MetastoreFacts(
        cast("MetastoreClient", metastore), REGISTRY, pool=lambda: cast("MetastorePool", pool)
    )
    facts.refresh()
    facts.prefetch([("d", "parted"), ("d", "other")])
    with pytest.raises(KeyError, match="other"):
        seen(facts)
    assert pool.open == 0


def test_a_change_of_partitions_gives_a_new_version(metastore: Metastore, facts: MetastoreFacts) -> None:
    before, other = seen(facts), seen(facts, "other")
    metastore.partitions["parted"].append(types.Partition(values=["3"]))
    metastore.happened("parted")
    facts.refresh()
    version, partitions = seen(facts)
    assert version != before[0]
    assert partitions == ["1", "2", "3"]
    assert seen(facts, "other") == other
    assert metastore.read.count("other/*") == 1


@pytest.mark.parametrize("event", ["lost", ""], ids=["lost events", "an event of a database"])
def test_an_event_of_no_table_gives_a_new_version(
    event: str, metastore: Metastore, facts: MetastoreFacts
) -> None:
    before = seen(facts)
    metastore.partitions["parted"].append(types.Partition(values=["3"]))
    metastore.happened(event)
    facts.refresh()
    version, partitions = seen(facts)
    assert version != before[0]
    assert partitions == ["1", "2", "3"]


def test_a_table_that_comes_or_goes_is_read_again(metastore: Metastore, facts: MetastoreFacts) -> None:
    assert facts.table("d", "new") is None
    metastore.add("new")
    assert facts.table("d", "new") is None
    facts.refresh()
    assert facts.table("d", "new") is not None
    # Events name a renamed table by its new name only.
    metastore.tables["renamed"] = metastore.tables.pop("new")
    metastore.happened("renamed")
    facts.refresh()
    assert facts.table("d", "new") is None


def test_the_number_of_kept_partitions_is_bounded(
    metastore: Metastore, facts: MetastoreFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "MAX_PARTITIONS", 3)
    before = seen(facts)
    seen(facts, "other")
    facts.refresh()
    assert seen(facts) == before
    monkeypatch.setattr(catalog_module, "MAX_PARTITIONS", 2)
    facts.refresh()
    assert seen(facts) == before
    assert metastore.read.count("parted/*") == 2


OTHER_TABLES = {
    "parameters": {"parameters": {"hive.cluster.primary": "C2"}},
    "location": {"sd": types.StorageDescriptor(location="/two/t")},
    "time": {"createTime": 99},
    "id": {"id": 99},
    "keys": {"partitionKeys": [types.FieldSchema(name="ds", type="int")]},
}


@pytest.mark.parametrize("differs", OTHER_TABLES)
def test_partitions_are_those_of_the_table_that_has_the_name_now(
    metastore: Metastore, facts: MetastoreFacts, differs: str
) -> None:
    metastore.tables["parted"].parameters = None
    seen(facts)
    table = copy.deepcopy(metastore.tables["parted"])
    for name, value in OTHER_TABLES[differs].items():
        setattr(table, name, value)
    metastore.tables["parted"] = table
    metastore.partitions["parted"] = [types.Partition(values=["9"])]
    metastore.happened("other")
    facts.refresh()
    assert seen(facts)[1] == ["9"]


def test_a_table_that_is_gone_has_the_partitions_that_the_metastore_returns(
    metastore: Metastore, facts: MetastoreFacts
) -> None:
    table = cast("TableFacts", facts.table("d", "parted"))
    del metastore.tables["parted"]
    metastore.partitions["parted"] = []
    metastore.happened("parted")
    facts.refresh()
    assert list(facts.partitions(table)) == []


def test_a_copy_with_a_snapshot_is_stale_if_the_table_is_not_transactional(
    metastore: Metastore, facts: MetastoreFacts
) -> None:
    """It was made of another table: files of this one are not selected by write ids."""
    write_ids = ValidWriteIds.of("d.plain", high_watermark=1, invalid_ids=[], aborted_bits=b"")
    made = Secondary(location="/two/c", source=mark(metadata_mark(types.Table())), snapshot=write_ids)
    metastore.add("plain", parameters=write_metadata({}, ClusterMetadata(secondaries={"C2": made})))
    table = facts.table("d", "plain")
    assert table is not None
    assert table.placement is not None
    assert table.placement.stale == ("C2",)


def test_without_events_a_partitioned_table_has_no_version(metastore: Metastore) -> None:
    facts = MetastoreFacts(cast("MetastoreClient", metastore), REGISTRY)
    assert seen(facts)[0] == ""


def mark(metadata: str) -> SourceMark:
    return SourceMark(metadata=metadata, files=0, size_bytes=0, content="", listing="")


def placements(facts: MetastoreFacts, name: str = "parted") -> list[Placement | None]:
    return [partition.placement for partition in facts.partitions(cast("TableFacts", facts.table("d", name)))]


def test_a_copy_of_a_partition_is_stale_once_the_metastore_knows_of_a_write(
    metastore: Metastore, facts: MetastoreFacts
) -> None:
    (first, _) = metastore.partitions["parted"]
    first.parameters = {"numFiles": "1"}
    copy = Secondary(location="/two/c", source=mark(metadata_mark(first)))
    first.parameters = write_metadata(first.parameters, ClusterMetadata(secondaries={"C2": copy}))
    placement, none = placements(facts)
    assert placement is not None
    assert placement.readable == ("C1", "C2")
    assert none is None
    first.parameters = {**first.parameters, "numFiles": "2"}
    metastore.happened("parted")
    facts.refresh()
    placement, _ = placements(facts)
    assert placement is not None
    assert placement.stale == ("C2",)


def test_a_copy_that_files_show_to_be_stale_is_so_for_one_statement(
    metastore: Metastore, facts: MetastoreFacts, tmp_path: Path
) -> None:
    for number, partition in enumerate(metastore.partitions["parted"]):
        for place in ("primary", "copy"):
            (tmp_path / place / str(number)).mkdir(parents=True)
        primary, location = str(tmp_path / "primary" / str(number)), str(tmp_path / "copy" / str(number))
        partition.sd = types.StorageDescriptor(location=primary)
        copy = Secondary(location=location, source=source_mark(partition, list_files(primary)))
        partition.parameters = write_metadata({}, ClusterMetadata(secondaries={"C2": copy}))
    fresh = seen(facts)[0]
    (tmp_path / "primary" / "1" / "f").write_text("1")
    assert [placement and placement.stale for placement in placements(facts)] == [(), ()]
    assert facts.check_files("d", "parted", "C2") == ["d.parted/ds=2"]
    assert [placement and placement.stale for placement in placements(facts)] == [(), ("C2",)]
    assert seen(facts)[0] != fresh
    # That says nothing of other tables.
    others = MetastoreFacts(cast("MetastoreClient", metastore), REGISTRY)
    others.refresh()
    assert seen(others, "other") == seen(facts, "other") != ("", ["1"])
    (tmp_path / "primary" / "1" / "f").unlink()
    facts.refresh()
    assert [placement and placement.stale for placement in placements(facts)] == [(), ()]
    assert seen(facts)[0] == fresh


@pytest.mark.parametrize("days", [(), ("1",)])
def test_a_transactional_table_is_read_for_each_statement(
    metastore: Metastore, facts: MetastoreFacts, days: tuple[str, ...]
) -> None:
    """Its writes leave no event that names it."""
    write_ids = ValidWriteIds.of("d.acid", high_watermark=1, invalid_ids=[], aborted_bits=b"")
    copy = Secondary(location="/two/c", source=mark(place_mark(types.Table())), snapshot=write_ids)
    copies = write_metadata({}, ClusterMetadata(secondaries={"C2": copy}))
    metastore.add("acid", *days, parameters={"transactional": "true", **({} if days else copies)})
    for partition in metastore.partitions["acid"]:
        partition.parameters = copies
    for write_id, readable in ((1, ("C1", "C2")), (2, ("C1",))):
        metastore.write_id = write_id
        facts.refresh()
        table = cast("TableFacts", facts.table("d", "acid"))
        assert table.version == ""
        placement = placements(facts, "acid")[0] if days else table.placement
        assert placement is not None
        assert placement.readable == readable


@pytest.mark.parametrize("location", ["/one/t", None])
def test_copies_in_the_primary_cluster_and_in_unknown_clusters_are_left_out(
    metastore: Metastore, facts: MetastoreFacts, location: str | None
) -> None:
    storage = types.StorageDescriptor(location=location)
    described = types.Table(sd=storage, parameters={})
    copy = Secondary(location="/c", source=mark(metadata_mark(described)))
    copies = dict.fromkeys(("C1", "C2", "C9"), copy)
    metastore.add("copied", parameters=write_metadata({}, ClusterMetadata(secondaries=copies)))
    metastore.tables["copied"].sd = None if location is None else storage
    table = facts.table("d", "copied")
    assert table is not None
    assert table.placement is not None
    assert [place.cluster for place in table.placement.secondaries] == ["C2"]
    assert table.placement.readable == ("C1", "C2")
    assert (table.placement.primary.cluster, table.placement.primary.location) == ("C1", location or "")


def test_sizes_that_are_no_numbers_are_not_known(metastore: Metastore, facts: MetastoreFacts) -> None:
    for name, size in (("sized", "7"), ("unsized", "-1"), ("without", None)):
        metastore.add(name, parameters={} if size is None else {"totalSize": size})
        table = facts.table("d", name)
        assert table is not None
        assert table.bytes == (7 if size == "7" else None)


def test_only_objects_with_a_copy_in_the_cluster_are_compared(
    metastore: Metastore, facts: MetastoreFacts, tmp_path: Path
) -> None:
    assert facts.check_files("d", "none", "C2") == []
    metastore.add("plain")
    assert facts.check_files("d", "plain", "C2") == []
    (first, second) = metastore.partitions["parted"]
    for partition in (first, second):
        # Neither has a primary's directory that could be listed; the second has no location at all.
        copy = Secondary(location=str(tmp_path), source=mark(metadata_mark(partition)))
        partition.parameters = write_metadata({}, ClusterMetadata(secondaries={"C2": copy}))
    first.sd = types.StorageDescriptor(location=str(tmp_path / "gone"))
    assert facts.check_files("d", "parted", "C1") == []
    assert facts.check_files("d", "parted", "C2", values=[("3",)]) == []
    assert facts.check_files("d", "parted", "C2", values=[("2",)]) == []
    assert facts.check_files("d", "parted", "C2", values=[("1",)]) == ["d.parted/ds=1"]
    assert facts.check_files("d", "parted", "C2") == ["d.parted/ds=1"]
    # Its stale partition has the values of one of another table.
    assert placements(facts, "other") == [None]


def test_files_of_a_transactional_copy_are_compared_and_not_those_of_its_primary(
    metastore: Metastore, facts: MetastoreFacts, tmp_path: Path
) -> None:
    """A compaction changes the primary's files, and no rows: they are not even listed."""
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "f").write_text("1")
    metastore.add("acid", parameters={"transactional": "true"})
    table = metastore.tables["acid"]
    table.sd = types.StorageDescriptor(location="nowhere://primary")
    source = replace(source_mark(table, list_files(str(tmp_path / "copy"))), metadata=place_mark(table))
    write_ids = ValidWriteIds.of("d.acid", high_watermark=1, invalid_ids=[], aborted_bits=b"")
    copy = Secondary(location=str(tmp_path / "copy"), source=source, snapshot=write_ids)
    table.parameters = write_metadata(table.parameters, ClusterMetadata(secondaries={"C2": copy}))
    assert facts.check_files("d", "acid", "C2") == []
    (tmp_path / "copy" / "f").write_text("12")
    assert facts.check_files("d", "acid", "C2") == ["d.acid"]
    described = facts.table("d", "acid")
    assert described is not None
    assert described.placement is not None
    assert described.placement.stale == ("C2",)


@pytest.mark.parametrize(
    ("parts", "text", "database", "asked"),
    [
        (None, "SELECT a FROM e.t", None, "e.t"),
        (None, "SELECT a FROM t", None, "d.t"),
        (("spark_catalog", "Other"), "SELECT a FROM t", "other", "other.t"),
        (("hive", "Other"), "SELECT a FROM e.t", "other", "e.t"),
        (("iceberg", "other"), "", "", "d.v"),
        (("spark_catalog", "other", "deep"), "", "", "d.v"),
    ],
)
def test_unqualified_names_in_a_view_are_of_its_own_catalog_and_database(
    metastore: Metastore,
    facts: MetastoreFacts,
    parts: tuple[str, ...] | None,
    text: str,
    database: str | None,
    asked: str,
) -> None:
    parameters = {"hive.cluster.secondary.C2.location": "damage that no reader of a view meets"}
    for number, part in enumerate(parts or ()):
        parameters[f"view.catalogAndNamespace.part.{number}"] = part
    if parts is not None:
        parameters["view.catalogAndNamespace.numParts"] = str(len(parts))
    metastore.add("v", "1", parameters=parameters)
    view = metastore.tables["v"]
    view.tableType, view.viewOriginalText = "VIRTUAL_VIEW", "SELECT a FROM t"
    view.viewExpandedText = text or "SELECT a FROM t"
    view.sd = types.StorageDescriptor(cols=[types.FieldSchema(name="A", type="int")])
    facts_of_view = facts.table("d", "v")
    assert facts_of_view is not None
    assert (facts_of_view.view_text, facts_of_view.view_database) == (text, database)
    assert (facts_of_view.columns, facts_of_view.partition_keys) == (("a", "ds"), ())
    assert facts_of_view.placement is None
    # The tables of its text are read at once, with the view.
    assert metastore.asked == [asked]
