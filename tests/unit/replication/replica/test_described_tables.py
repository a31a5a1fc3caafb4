"""The columns and rows of a replicated table, as its dump describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.replica.described_tables import DescribedTable, described_table
from tests.support.dumps import manifest

ACCURATE = {"numRows": "7", "COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}'}


def dump_of(
    root: Path, parameters: dict[str, str], *, keys: tuple[str, ...] = (), kind: DumpKind = DumpKind.BOOTSTRAP
) -> str:
    table = types.Table(
        tableName="t",
        parameters=parameters,
        sd=types.StorageDescriptor(cols=[types.FieldSchema(name="id", type="int")], location="file:/t"),
        partitionKeys=[types.FieldSchema(name=key, type="string") for key in keys],
    )
    directory = DumpDirectory(f"file:{root}")
    directory.write_table(TableDocument(table=table, kind=TableKind.FULL_ACID))
    directory.finish_dump(manifest(TableEntry(name="t", kind=TableKind.FULL_ACID), kind=kind))
    return f"file:{root}"


def test_a_bootstraps_table_without_partitions_has_its_rows(tmp_path: Path) -> None:
    dump = dump_of(tmp_path, ACCURATE)
    assert described_table(dump, "t") == DescribedTable(columns=("id",), rows=7)
    assert described_table(f"{dump}-gone", "t") is None


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"numRows": "7"},
        {"numRows": "many", **ACCURATE, "COLUMN_STATS_ACCURATE": "true"},
        {"COLUMN_STATS_ACCURATE": ACCURATE["COLUMN_STATS_ACCURATE"]},
        {**ACCURATE, "numRows": "-1"},
        {**ACCURATE, "numRows": "seven"},
    ],
)
def test_rows_that_the_source_does_not_vouch_for_are_not_reported(
    parameters: dict[str, str], tmp_path: Path
) -> None:
    described = described_table(dump_of(tmp_path, parameters), "t")
    assert described == DescribedTable(columns=("id",))


def test_rows_of_partitions_and_of_increments_are_not_counted(tmp_path: Path) -> None:
    keyed = dump_of(tmp_path / "keyed", ACCURATE, keys=("p",))
    assert described_table(keyed, "t") == DescribedTable(columns=("id", "p"))
    increment = dump_of(tmp_path / "increment", ACCURATE, kind=DumpKind.INCREMENT)
    assert described_table(increment, "t") == DescribedTable(columns=("id",))
