"""A dump of either kind refuses what may not be copied, or would collide, before it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import LocationConflictError, SourceNotAllowedError
from airflow_hive_federation.metastore.idl import types
from tests.support.incrementing import Cycles, cycles
from tests.support.small_source import add_partition, connected, make_table, storage

DATABASE = "refused_dumps"
NO_SQL = cast("Any", (None, None))

pytestmark = pytest.mark.usefixtures("unbound_sources")


@pytest.fixture
def replica(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Cycles]:
    with connected(source) as client:
        client.create_database(types.Database(name=DATABASE, parameters={}))
        make_table(client, DATABASE, "acid", partitioned=True)
        add_partition(client, DATABASE, "a")
    with cycles(
        source,
        target,
        NO_SQL,
        tmp_path,
        source_database=DATABASE,
        external_base=f"file:{tmp_path}/base",
        allowed_source_roots=[f"file:{source.warehouse}"],
    ) as made:
        yield made
    for metastore, name in ((source, DATABASE), (target, f"{DATABASE}_copy")):
        with connected(metastore) as client:
            if name in client.list_databases():
                client.drop_database(name, delete_data=True, cascade=True)


@pytest.mark.parametrize("kind", ["bootstrap", "increment"])
def test_a_dump_of_either_kind_refuses(replica: Cycles, tmp_path: Path, kind: str) -> None:
    attempt: Callable[[], Any] = replica.bootstrap
    if kind == "increment":
        replica.bootstrap()
        attempt = replica.dump
    lake = tmp_path / "lake" / "t"
    lake.mkdir(parents=True)
    with replica.source.client() as client:
        make_table(client, DATABASE, "outside", location=f"file:{lake}")
        with pytest.raises(SourceNotAllowedError, match=f"location of table {DATABASE}.outside"):
            attempt()
        client.drop_table(DATABASE, "outside", delete_data=False)
        (tmp_path / "udf.jar").write_bytes(b"jar")
        client.create_function(
            types.Function(
                dbName=DATABASE,
                functionName="f",
                className="a.B",
                ownerName="root",
                ownerType=types.PrincipalType.USER,
                createTime=1,
                functionType=types.FunctionType.JAVA,
                resourceUris=[
                    types.ResourceUri(resourceType=types.ResourceType.JAR, uri=f"file:{tmp_path}/udf.jar")
                ],
            )
        )
        with pytest.raises(SourceNotAllowedError, match=r"(?i)a jar or file of function f"):
            attempt()
        client.drop_function(DATABASE, "f")
        # It would move to where the other one is.
        table: Any = client.get_table(DATABASE, "acid")
        inside = storage(f"{table.sd.location}/p=b")
        aside = storage(f"{str(table.sd.location).rpartition('/')[0]}/aside")
        for value, place in (("c", inside), ("b", aside)):
            Path(place.location.removeprefix("file:")).mkdir()  # type: ignore[union-attr]
            client.add_partitions(
                [types.Partition(dbName=DATABASE, tableName="acid", values=[value], sd=place, parameters={})]
            )
        with pytest.raises(LocationConflictError, match="partition p=b of table acid"):
            attempt()
        client.drop_partitions(DATABASE, "acid", ["p=b"], delete_data=False)
    attempt()
