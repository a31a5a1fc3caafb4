"""A local table takes these parts of a remote's definition, and leaves the others out."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.links import EVENT, Link
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import tables

LINK = Link(
    kind=Kind.TABLE, local=Name(database="l", table="n"), remote=Name(database="contract", table="plain")
)


def made_of(table: types.Table, link: Link = LINK) -> Any:
    return definitions.local_table(table, database="l", name="n", owner="ada", link=link.parameters())


def remote(**parameters: str) -> Any:
    table: Any = tables("file:/far")["plain"][0]
    table.parameters.update(parameters)
    return table


def test_an_external_table_over_the_same_place() -> None:
    table = remote(
        **{
            "external.table.purge": "TRUE",
            "discover.partitions": "true",
            "repl.last.id": "7",
            "hive.federation.remote.name": "x.y",
            "totalSize": "10",
            "bucketing_version": "2",
        }
    )
    made = made_of(table)
    assert (made.dbName, made.tableName, made.owner, made.tableType) == ("l", "n", "ada", "EXTERNAL_TABLE")
    assert made.sd.outputFormat == definitions.READ_ONLY
    made.sd.outputFormat = table.sd.outputFormat
    assert made.sd.storedAsSubDirectories
    made.sd.storedAsSubDirectories = table.sd.storedAsSubDirectories
    refusal = {definitions.SPARKS_MODE: definitions.SPARKS_REFUSAL}
    assert made.sd.serdeInfo.parameters == {**table.sd.serdeInfo.parameters, **refusal}
    made.sd.serdeInfo.parameters = table.sd.serdeInfo.parameters
    assert made.sd == table.sd
    assert made.sd is not table.sd
    assert made.parameters == {
        "EXTERNAL": "TRUE",
        "external.table.purge": "false",
        "immutable": "true",
        "note": "plain",
        "totalSize": "10",
        "bucketing_version": "2",
        "hive.federation.remote.read-by": "files",
        **LINK.parameters(),
    }


def test_a_partitioned_table_has_a_directory_of_its_own() -> None:
    table: Any = tables("file:/far")["parted"][0]
    assert table.sd.location
    assert made_of(table).sd.location is None


@pytest.mark.parametrize("properties", ["default", "insert_only"])
def test_a_transactional_table_can_be_described_and_not_read(properties: str) -> None:
    table = remote(transactional="true", transactional_properties=properties)
    assert definitions.is_acid(table)
    made = made_of(table)
    assert made.sd.cols == table.sd.cols
    assert made.sd.inputFormat == made.sd.outputFormat == definitions.UNREADABLE
    # Against LOAD DATA.
    assert made.sd.storedAsSubDirectories
    assert made.sd.location is None
    assert not {"transactional", "transactional_properties"} & made.parameters.keys()
    assert made.parameters["hive.federation.remote.read-by"] == "read_table"
    (partition, *_) = tables("file:/far")["parted"][1]
    local: Any = definitions.local_partition(partition, database="l", name="n", acid=True)
    assert (local.sd.inputFormat, local.sd.location) == (definitions.UNREADABLE, None)
    readable: Any = definitions.local_partition(partition, database="l", name="n", acid=False)
    assert (readable.sd.inputFormat, readable.sd.outputFormat) == (
        partition.sd.inputFormat,  # type: ignore[union-attr]
        definitions.READ_ONLY,
    )
    assert partition.sd.inputFormat != definitions.UNREADABLE  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tableType": "VIRTUAL_VIEW"}, "view"),
        ({"tableType": "MATERIALIZED_VIEW"}, "view"),
        ({"parameters": {"storage_handler": "org.apache.hive.storage.jdbc.JdbcStorageHandler"}}, "Jdbc"),
        ({"sd": None}, "no location"),
        (
            {"partitionKeys": [types.FieldSchema(name="ID", type="int")]},
            "id and ID differ only in case",
        ),
        ({"parameters": {"storage_handler": "x.HiveIcebergStorageHandler", "table_type": "ICEBERG"}}, None),
        ({}, None),
    ],
)
def test_what_cannot_be_linked(change: dict[str, Any], why: str | None) -> None:
    table = remote()
    for name, value in change.items():
        setattr(table, name, value)
    reason = definitions.why_not(table)
    assert (reason is None) if why is None else (reason is not None and why in reason)


def test_the_digest_is_of_what_is_taken_over() -> None:
    table = remote()
    before = definitions.digest(made_of(table), table)
    later = Link(
        kind=LINK.kind, local=LINK.local, remote=LINK.remote, event_id=9, definition="x", path=("p",)
    )
    assert definitions.digest(made_of(table, later), table) == before
    assert EVENT in made_of(table, later).parameters
    assert definitions.digest(made_of(remote(transient_lastDdlTime="5")), remote()) == before
    for other in (remote(note="other"), remote(COLUMN_STATS_ACCURATE='{"COLUMN_STATS":{"id":"true"}}')):
        assert definitions.digest(made_of(other), other) != before


def test_partitions_are_compared_by_their_content() -> None:
    (partition, *_) = tables("file:/far")["parted"][1]

    def made() -> Any:
        return definitions.local_partition(partition, database="l", name="n", acid=False)

    stored = made()
    stored.parameters["transient_lastDdlTime"] = "5"
    stored.catName = "hive"
    stored.parameters["numFiles"] = "1"  # counted by the metastore itself
    assert definitions.same_partition(made(), stored)
    partition.parameters["numFiles"] = "2"  # type: ignore[index]
    assert not definitions.same_partition(made(), stored)
    del partition.parameters["numFiles"]  # type: ignore[union-attr,attr-defined]
    for change in ("location", "inputFormat"):
        moved = made()
        setattr(moved.sd, change, "elsewhere")
        assert not definitions.same_partition(made(), moved)


def test_the_digest_of_statistics_is_of_all_columns_in_any_order() -> None:
    def column(name: str, distinct: int) -> types.ColumnStatisticsObj:
        data = types.LongColumnStatsData(numNulls=0, numDVs=distinct)
        return types.ColumnStatisticsObj(
            colName=name, colType="int", statsData=types.ColumnStatisticsData(longStats=data)
        )

    digest = definitions.statistics_digest
    assert digest([column("a", 1), column("b", 2)]) == digest([column("b", 2), column("a", 1)])
    different = [[column("a", 1)], [column("a", 2)], [column("b", 1)], []]
    assert len(set(map(digest, different))) == len(different)


@pytest.mark.parametrize(
    "change",
    [
        {"numBuckets": 8},
        {"bucketCols": ["größe"]},
        {"sortCols": [types.Order(col="id", order=1)]},
        {"skewedInfo": types.SkewedInfo(skewedColNames=["id"], skewedColValues=[["1"]])},
        {"skewedInfo": types.SkewedInfo(skewedColValueLocationMaps={("1",): "file:/far/1"})},
        {"storedAsSubDirectories": True},
        {"compressed": True},
        {"parameters": {"k": "v"}},
    ],
    ids=", ".join,
)
def test_the_storage_of_a_partition_is_compared(change: dict[str, Any]) -> None:
    (partition, *_) = tables("file:/far")["parted"][1]

    def made() -> Any:
        return definitions.local_partition(partition, database="l", name="n", acid=False)

    before = made()
    # A metastore returns empty lists and maps, and false, where a client sent nothing, and the reverse.
    before.sd.bucketCols = before.sd.sortCols = before.sd.parameters = None
    before.sd.skewedInfo = types.SkewedInfo(
        skewedColNames=[], skewedColValues=[], skewedColValueLocationMaps={}
    )
    before.sd.compressed = before.sd.storedAsSubDirectories = False
    assert definitions.same_partition(made(), before)
    for name, value in change.items():
        setattr(partition.sd, name, value)
    assert not definitions.same_partition(made(), before)
