"""Visible files of ACID tables are dumped and verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import UNBOUNDED, ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.contents import listed, listed_places, visible_files
from airflow_hive_federation.replication.metadata.table_locations import TableLocations


def visible(root: Path, partitions: list[Path], write_ids: str) -> list[str]:
    parameters = {"transactional": "true", "transactional_properties": "insert_only"}
    keys = [types.FieldSchema(name="p", type="string")] if partitions else []
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=types.StorageDescriptor(location=f"file:{root}"),
        partitionKeys=keys,
        parameters=parameters,
    )
    described = [
        types.Partition(values=[partition.name], sd=types.StorageDescriptor(location=f"file:{partition}"))
        for partition in partitions
    ]
    ids = ValidWriteIds.parse(f"d.t:9:{UNBOUNDED}::{write_ids}")
    files = visible_files(table, TableLocations(table, described), ids, ValidTxns.everything())
    return sorted(f"{file.partition}|{file.path}" for file in files)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_empty_base_hides_what_was_before(tmp_path: Path, elsewhere: bool) -> None:
    root = tmp_path / "t"
    inside, other = root / "p=1", (tmp_path if elsewhere else root) / "p=2"
    for place in (inside, other):
        for directory in ("delta_0000001_0000001_0000", "base_0000002", "delta_0000003_0000003_0000"):
            (place / directory).mkdir(parents=True)
        for number in (1, 3):
            (place / f"delta_{number:07}_{number:07}_0000" / "000000_0").touch()
    # The file in its place does not exist: without one, the target would go on showing the earlier rows.
    assert visible(root, [inside, other], "") == [
        "p=p%3D1|base_0000002/_orc_acid_version",
        "p=p%3D1|delta_0000003_0000003_0000/000000_0",
        "p=p%3D2|base_0000002/_orc_acid_version",
        "p=p%3D2|delta_0000003_0000003_0000/000000_0",
    ]
    truncated = '{"thisFileVersion": "0", "dataFormat": "truncated"}'
    (inside / "base_0000002" / "_metadata_acid").write_text(truncated, encoding="utf-8")
    assert visible(root, [inside], "")[0] == "p=p%3D1|base_0000002/_metadata_acid"


def test_insert_only_files_that_mix_aborted_with_committed_rows_are_refused(tmp_path: Path) -> None:
    """Their rows look alike: copied, the aborted ones would be visible."""
    (tmp_path / "delta_0000001_0000003").mkdir()
    (tmp_path / "delta_0000001_0000003" / "000000_0").touch()
    assert visible(tmp_path, [], "4") == ["|delta_0000001_0000003/000000_0"]
    with pytest.raises(AcidFormatError, match=r"d\.t: .*/delta_0000001_0000003 mixes committed"):
        visible(tmp_path, [], "2")


def test_a_base_of_hive_3s_compactor_is_read_whatever_became_of_its_write_id(tmp_path: Path) -> None:
    for directory in ("base_0000005", "delta_0000004_0000004_0000"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "000000_0").touch()
    (tmp_path / "base_0000005" / "_metadata_acid").write_text(
        '{"thisFileVersion": "0", "dataFormat": "compacted"}', encoding="utf-8"
    )
    assert visible(tmp_path, [], "5") == ["|base_0000005/000000_0"]


def test_an_empty_partition_is_listed_alike_with_its_table_and_alone(tmp_path: Path) -> None:
    """As a file, it would count as evidence that its store is mounted, and as changed in each cycle."""
    for place in ("t/p=1", "t/p=2/base_0000002", "t/p=2/x"):
        (tmp_path / place).mkdir(parents=True)
    table = types.Table(
        sd=types.StorageDescriptor(location=f"file:{tmp_path}/t"), partitionKeys=[types.FieldSchema(name="p")]
    )
    # One partition lies in another, so that the table's directory is listed as a whole.
    locations = {"1": "p=1", "2": "p=2", "3": "p=2/x"}
    places = TableLocations(
        table,
        [
            types.Partition(values=[value], sd=types.StorageDescriptor(location=f"file:{tmp_path}/t/{path}"))
            for value, path in locations.items()
        ],
    )
    paths = [
        {place.partition: [entry.path for entry in entries] for place, entries in listings}
        for listings in (
            listed_places(places, None, empty_directories=True),
            listed(places, None, empty_directories=True),
        )
    ]
    assert paths[0] == {"p=1": [], "p=2": ["base_0000002/"], "p=3": []}
    assert paths[1] == {**paths[0], "p=2": ["base_0000002/", "x/"]}
