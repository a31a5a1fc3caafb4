"""Kinds of tables in replication, and the parts of a definition that travel."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.definitions import (
    definition,
    not_replicated,
    table_kind,
    target_partition,
    target_table,
    with_honest_statistics,
)


def table(kind: str = "MANAGED_TABLE", write_id: int = 0, **parameters: str) -> types.Table:
    return types.Table(tableName="t", tableType=kind, parameters=parameters, writeId=write_id)


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (table(transactional="TRUE"), TableKind.FULL_ACID),
        (table(transactional="true", transactional_properties="insert_only"), TableKind.INSERT_ONLY),
        (table(), TableKind.MANAGED),
        (table(EXTERNAL="TRUE"), TableKind.EXTERNAL),
        (table("EXTERNAL_TABLE"), TableKind.EXTERNAL),
        (table("VIRTUAL_VIEW"), TableKind.VIEW),
        (table("MATERIALIZED_VIEW"), TableKind.MATERIALIZED_VIEW),
    ],
)
def test_kinds(definition: types.Table, expected: TableKind) -> None:
    assert table_kind(definition) is expected


def test_hive_4_keeps_no_serde_properties_of_full_acid_tables() -> None:
    def described(properties: dict[str, str], **parameters: str) -> dict[str, str]:
        made = table(**parameters)
        made.sd = types.StorageDescriptor(
            serdeInfo=types.SerDeInfo(serializationLib="Orc", parameters=properties)
        )
        return definition(made)

    acid = {"transactional": "true"}
    assert described({"serialization.format": "1"}, **acid) == described({}, **acid)
    for others in ({"transactional_properties": "insert_only", **acid}, {}):
        assert described({"serialization.format": "1"}, **others) != described({}, **others)


def test_left_out_objects_have_a_reason() -> None:
    assert not_replicated(table(transactional="true")) is None
    assert "materialized" in (not_replicated(table("MATERIALIZED_VIEW")) or "")
    assert "Kudu" in (not_replicated(table("EXTERNAL_TABLE", storage_handler="org.KuduStorageHandler")) or "")
    assert "Iceberg" in (not_replicated(table("EXTERNAL_TABLE", table_type="ICEBERG")) or "")


def test_statistics_of_rows_that_are_not_copied_do_not_travel() -> None:
    cut = ValidWriteIds.parse("d.t:5:9223372036854775807::")
    kept = with_honest_statistics(table(write_id=5, COLUMN_STATS_ACCURATE="{}"), cut)
    dropped = with_honest_statistics(table(write_id=6, COLUMN_STATS_ACCURATE="{}"), cut)
    assert "COLUMN_STATS_ACCURATE" in kept.parameters
    assert "COLUMN_STATS_ACCURATE" not in dropped.parameters


@pytest.mark.parametrize("make", [target_table, target_partition])
def test_what_the_target_gets_is_made_without_changing_the_sources(make: Any) -> None:
    skewed = types.SkewedInfo(skewedColValueLocationMaps={("x",): "file:/source/t/x"})
    definition = (types.Table if make is target_table else types.Partition)(
        dbName="d",
        tableName="t",
        parameters={"repl.last.id": "1", "a": "b"},
        sd=types.StorageDescriptor(location="file:/source/t", skewedInfo=skewed),
        colStats=types.ColumnStatistics(statsDesc=types.ColumnStatisticsDesc(dbName="d", tableName="t")),
    )
    before = to_json(definition)
    made = make(definition, database="e", location="file:/target/t", parameters={"c": "d"})
    assert to_json(definition) == before
    assert made.dbName == made.colStats.statsDesc.dbName == "e"
    assert made.parameters == {"a": "b", "c": "d"}
    assert made.sd.location == "file:/target/t"
    assert made.sd.skewedInfo.skewedColValueLocationMaps == {("x",): "file:/target/t/x"}


def test_the_target_gets_the_owner_and_no_privileges() -> None:
    """The page about failover promises both to the team that opens the target."""
    source = types.Table(
        dbName="d",
        tableName="t",
        tableType="MANAGED_TABLE",
        owner="alice",
        ownerType=types.PrincipalType.USER,
        parameters={},
        sd=types.StorageDescriptor(location="file:/source/t"),
        privileges=types.PrincipalPrivilegeSet(userPrivileges={"bob": []}),
    )
    made = target_table(source, database="d", location="file:/target/t", parameters={})
    assert (made.owner, made.ownerType, made.privileges) == ("alice", types.PrincipalType.USER, None)
    source.owner = "carol"
    assert "owner" in {
        name for name, value in definition(source).items() if value != definition(made).get(name)
    }


@pytest.mark.parametrize("make", [target_table, target_partition])
def test_a_replica_of_a_list_bucketed_table_never_names_directories_of_the_source(make: Any) -> None:
    """Without any directory, Hive reads all of the table; with some of them, only those."""
    places = {("x",): "file:/source/t/d=b/x", ("y",): "file:/source/t/d=a/y"}
    skewed = types.SkewedInfo(skewedColValueLocationMaps=places)
    definition = (types.Table if make is target_table else types.Partition)(
        dbName="d",
        tableName="t",
        parameters={},
        sd=types.StorageDescriptor(location="file:/source/t/d=b", skewedInfo=skewed),
    )
    made = make(definition, database="e", location="file:/target/t/d=b", parameters={})
    assert made.sd.skewedInfo.skewedColValueLocationMaps == {}
