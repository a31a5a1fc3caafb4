"""An increment describes the partitions that changed, and refers to earlier dumps for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump import changed_partitions
from airflow_hive_federation.replication.dump.retention import forget_old_dumps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.replica.database import find_layout
from airflow_hive_federation.replication.replica.differences import metadata_differences
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.increment_site import DATABASE, Site
from tests.support.small_source import add_partition, connected, make_small_source

VALUES = tuple("uvwxyz")


@pytest.fixture
def site(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Site]:
    """A replica with an ACID table of eight partitions."""
    make_small_source(source, DATABASE)
    with connected(source) as client:
        for value in VALUES:
            add_partition(client, DATABASE, value)
        commit(client, *VALUES)
    site = Site(source, target, tmp_path / "dumps", tmp_path / "base")
    site.bootstrap()
    yield site
    for one in (source, target):
        with connected(one) as client:
            client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)
    site.external().unlink()
    site.external().parent.rmdir()


def commit(client: MetastoreClient, *values: str, recorded: bool = True, until: bool = True) -> int:
    """Commit a file to each of these partitions; return the transaction.

    :param recorded: leave records of the writes, as Hive does.
    :param until: commit the transaction.
    """
    (txn_id,) = client.open_txns(1)
    write_id = client.allocate_table_write_ids(DATABASE, "acid", [txn_id])[txn_id]
    table: Any = client.get_table(DATABASE, "acid")
    for value in values:
        delta = (
            Path(local_path(table.sd.location) or "") / f"p={value}/delta_{write_id:07}_{write_id:07}_0000"
        )
        delta.mkdir(parents=True)
        (delta / "bucket_00000_0").write_text(f"{value} {write_id}", encoding="utf-8")
        if recorded:
            written = types.InsertEventRequestData(
                replace=False,
                filesAdded=[f"file:{delta}/bucket_00000_0"],
                filesAddedChecksum=[""],
                subDirectoryList=[delta.name],
            )
            request = types.WriteNotificationLogRequest(
                txnId=txn_id,
                writeId=write_id,
                db=DATABASE,
                table="acid",
                fileInfo=written,
                partitionVals=[value],
            )
            client.call("add_write_notification_log", request)
    if until:
        client.commit_txn(txn_id)
    return txn_id


def cycle(site: Site) -> TableEntry:
    """Run a cycle; the replica equals the source then. Return the table's entry in the dump."""
    dump = DumpDirectory(site.cycle().dump)
    index = TableIndex(dump)
    with connected(site.target) as client:
        assert metadata_differences(client, find_layout(client, site.policy), index, closely=["acid"]) == []
    there, here = (files(one) for one in (site.source, site.target))
    assert here == there
    # Of each file, the dumps know the digest together.
    known = index.digests("acid")
    assert len(known.keys() & {f"file:{location(site.target)}/{path}" for path in here}) == len(here)
    entry = index.entries["acid"]
    assert (entry.partitions, entry.files) == (
        len(list(dump.partitions("acid"))),
        len(list(dump.files("acid"))),
    )
    assert entry.files == len(here)
    return entry


def location(metastore: EmbeddedMetastore) -> Path:
    with connected(metastore) as client:
        table: Any = client.get_table(DATABASE, "acid")
    return Path(local_path(table.sd.location) or "")


def files(metastore: EmbeddedMetastore) -> dict[str, str]:
    root = location(metastore)
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def described(entry: TableEntry) -> list[str]:
    return [line.name for line in DumpDirectory(entry.dump).partitions("acid", only=entry.described)]


def test_only_the_partitions_that_a_cycle_concerns_are_described(site: Site) -> None:
    with connected(site.source) as client:
        commit(client, "u")
    first = cycle(site)
    assert (first.changes.concerned, described(first)) == (("p=u",), ["p=u"])
    with connected(site.source) as client:
        client.drop_partitions(DATABASE, "acid", ["p=v"], delete_data=True)
        add_partition(client, DATABASE, "new")
        # This writer leaves no record, and a listing finds its partition.
        commit(client, "new", "w", recorded=False)
    second = cycle(site)
    assert (second.changes.concerned, second.changes.gone) == (("p=new", "p=v", "p=w"), ("p=v",))
    assert described(second) == ["p=new", "p=w"]
    assert second.rest == (first.dump, *first.rest)
    # No dump goes that a later one refers to.
    forget_old_dumps(site.policy, DumpDirectory(second.dump), keep=0)
    with connected(site.source) as client:
        commit(client, "x")
    assert cycle(site).rest == (second.dump, *second.rest)


def test_after_some_dumps_one_describes_the_whole_table(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_partitions, "_MOST_LAYERS", 1)
    entries = []
    for value in "uvw":
        with connected(site.source) as client:
            commit(client, value)
        entries.append(cycle(site))
    assert [len(entry.rest) for entry in entries] == [1, 0, 1]
    assert [entry.changes.concerned for entry in entries] == [("p=u",), ("p=v",), ("p=w",)]
    assert entries[2].rest == (entries[1].dump,)
    forget_old_dumps(site.policy, DumpDirectory(entries[2].dump), keep=0)
    assert len(list(DumpDirectory(entries[2].dump).partitions("acid"))) == 8


def test_the_end_of_an_open_transaction_concerns_its_partitions(site: Site) -> None:
    with connected(site.source) as client:
        left_open = commit(client, "y", until=False)
        commit(client, "u")
    # A file of an open transaction changes the directory, but not what readers see.
    assert cycle_of(site) == ("p=u", "p=y")
    with connected(site.source) as client:
        commit(client, "v")
        client.commit_txn(left_open)
    assert cycle(site).changes.concerned == ("p=v", "p=y")


def cycle_of(site: Site) -> tuple[str, ...] | None:
    """Run a cycle while rows of an open transaction are on the source."""
    return TableIndex(DumpDirectory(site.cycle().dump)).entries["acid"].changes.concerned


def set_property(client: MetastoreClient) -> None:
    table: Any = client.get_table(DATABASE, "acid")
    table.parameters["a"] = "b"
    client.alter_table(DATABASE, "acid", table)


def move_partition(client: MetastoreClient) -> None:
    (partition,) = client.iter_partitions(DATABASE, "acid", names=["p=u"])
    storage: Any = partition.sd
    place = Path(local_path(storage.location) or "")
    storage.location = f"{storage.location}_moved"
    client.alter_partitions(DATABASE, "acid", [partition])
    place.rename(f"{place}_moved")


def commit_to_most(client: MetastoreClient) -> None:
    commit(client, *VALUES)


@pytest.mark.parametrize("change", [set_property, move_partition, commit_to_most])
def test_other_changes_concern_the_whole_table(site: Site, change: Callable[[MetastoreClient], None]) -> None:
    with connected(site.source) as client:
        change(client)
    dump = DumpDirectory(site.cycle().dump)
    entry = TableIndex(dump).entries["acid"]
    assert (entry.changes.concerned, entry.rest) == (None, ())
    assert len(list(dump.partitions("acid"))) == 8
