"""Iceberg tables as remotes: Iceberg's own client finds them in the local metastore, by its Hive catalog.

It speaks to metastores before Hive 4.0.1 only (``get_table``): the local one is a Hive 2.3. No release of
Iceberg runs on Spark 4.2 yet (1.11 for Spark 4.1 fails with ``IncompatibleClassChangeError``).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.sql import SqlCatalog

from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes

NEAR = "remote_iceberg"


@pytest.mark.slow
def test_an_iceberg_table_by_its_path(hive_2: str, tmp_path: Path) -> None:
    place = f"file://{tmp_path}/lake/orders"
    theirs = SqlCatalog("theirs", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "note": ["x", "y"]})
    theirs.create_namespace("d")
    table = theirs.create_table("d.orders", rows.schema, location=place)
    table.append(rows)
    with MetastoreClient(MetastoreSettings(uris=(hive_2,))) as near:
        near.create_database(types.Database(name=NEAR, locationUri=f"file:{tmp_path}/near"))
    local = HiveCatalog("local", uri=hive_2)
    with Remotes(MetastoreSettings(uris=(hive_2,)), database=NEAR) as remotes:
        remotes.run(f"CREATE REMOTE TABLE orders VIA 'iceberg' 'iceberg.table.path' = '{place}'")
        assert local.load_table(f"{NEAR}.orders").scan().to_arrow().sort_by("id") == rows
        # What was read is of the moment of the link, until that is refreshed.
        table.delete("id = 1")
        assert len(local.load_table(f"{NEAR}.orders").scan().to_arrow()) == 2
        remotes.run("REFRESH REMOTE TABLE orders")
        assert local.load_table(f"{NEAR}.orders").scan().to_arrow()["id"].to_pylist() == [2]
        remotes.run("DROP REMOTE TABLE orders")
    assert len(theirs.load_table("d.orders").scan().to_arrow()) == 1
    theirs.close()
