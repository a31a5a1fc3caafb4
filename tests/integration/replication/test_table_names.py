"""Tables that bear other names on the target: real Hive reads them under those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.replication.failover import start_failover, switch_roles
from airflow_hive_federation.replication.status import read_status
from tests.support.incrementing import Cycles, cycles
from tests.support.small_source import connected
from tests.support.verified import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {"orders": "bestellungen", "files": "dateien"}
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
SAID_ONLY = "DISABLE NOVALIDATE"
SETUP = (
    f"CREATE TABLE named.orders (id int, s string, PRIMARY KEY (id) {SAID_ONLY}) {ACID}",
    f"CREATE TABLE named.parts (id int) PARTITIONED BY (p string) {ACID}",
    f"ALTER TABLE named.parts ADD CONSTRAINT k FOREIGN KEY (id) REFERENCES named.orders(id) {SAID_ONLY}",
    "CREATE EXTERNAL TABLE named.files (s string) PARTITIONED BY (p string) STORED AS TEXTFILE",
    "CREATE VIEW named.seen AS SELECT id FROM named.orders",
    "INSERT INTO named.orders VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO named.parts PARTITION (p) VALUES (1, 'x'), (2, 'y')",
    "INSERT INTO named.files PARTITION (p = 'x') VALUES ('a')",
)


@pytest.fixture
def site(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> Iterator[Cycles]:
    hive_sql_source.execute("CREATE DATABASE named")
    sql = (hive_sql_source, hive_sql_target)
    with cycles(source, target, sql, tmp_path, source_database="named", table_names=NAMES) as made:
        made.write(*SETUP)
        yield made
    for metastore in (source, target):
        with connected(metastore) as client:
            for database in ("named", "named_copy"):
                client.drop_database(database, delete_data=True, cascade=True, if_exists=True)


def compare(site: Cycles, names: dict[str, str]) -> None:
    """Real Hive reads the same rows, under either name."""
    for table, columns in (("orders", "ROW__ID, *"), ("parts", "ROW__ID, *"), ("files", "*"), ("seen", "*")):
        there = names.get(table, table)
        replicated = site.target_sql.execute(f"SELECT {columns} FROM named_copy.{there}")
        expected = site.source_sql.execute(f"SELECT {columns} FROM named.{table}")
        assert sorted(replicated, key=repr) == sorted(expected, key=repr), table
    with site.target.client() as client:
        assert sorted(client.list_tables("named_copy")) == sorted(
            names.get(name, name) for name in ("orders", "parts", "files", "seen")
        )
        (key,) = client.get_table_constraints("named_copy", "parts").foreignKeys or ()
        assert (key.fktable_name, key.pktable_name) == ("parts", names.get("orders", "orders"))


def test_tables_have_other_names_on_the_target(site: Cycles, spark: SparkSession) -> None:
    site.bootstrap()
    compare(site, NAMES)
    assert differences(site, spark) == []
    site.write(
        "INSERT INTO named.orders VALUES (3, 'c')",
        "DELETE FROM named.orders WHERE id = 1",
        "ANALYZE TABLE named.orders COMPUTE STATISTICS FOR COLUMNS",
        "INSERT INTO named.files PARTITION (p = 'y') VALUES ('b')",
        "ALTER TABLE named.parts RENAME TO named.pieces",
        "ALTER TABLE named.pieces RENAME TO named.parts",
    )
    behind = {table.name: table.events for table in read_status(site.source, site.target, site.policy).tables}
    assert behind.keys() == {"bestellungen", "dateien", "parts"}
    assert all(behind.values())
    site.cycle()
    compare(site, NAMES)
    assert differences(site, spark) == []

    # Their names changed once more, though no event shows it.
    names = {"orders": "dateien", "files": "bestellungen"}
    changed = replace(site, policy=replace(site.policy, table_names=names))
    changed.cycle()
    compare(changed, names)
    assert differences(changed, spark) == []
    assert changed.dump().idle

    # There and back again: nothing is copied but what is new.
    back = failed_over(changed)
    assert back.policy.table_names == {there: here for here, there in names.items()}
    back.write(
        "INSERT INTO named_copy.dateien VALUES (4, 'from there')",
        "DELETE FROM named_copy.dateien WHERE id = 2",
        "INSERT INTO named_copy.bestellungen PARTITION (p = 'z') VALUES ('c')",
    )
    assert back.dump().tables == len(names)
    back.cycle()
    compare(changed, names)
    assert site.source_sql.execute("SELECT id FROM named.seen ORDER BY id") == [("3",), ("4",)]
    again = failed_over(back)
    assert replace(again.policy, into_existing=False) == changed.policy
    again.write("INSERT INTO named.orders VALUES (5, 'home again')")
    again.cycle()
    compare(changed, names)
    assert differences(changed, spark) == []


def failed_over(site: Cycles) -> Cycles:
    start_failover(site.source, site.target, site.policy)
    site.cycle()
    policy = switch_roles(site.source, site.target, site.policy).policy
    return Cycles(site.target, site.source, policy, site.target_sql, site.source_sql)
