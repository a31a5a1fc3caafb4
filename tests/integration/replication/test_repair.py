"""A replica that was damaged in every way is repaired, and real Hive reads on both sides the same again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import TargetNotOursError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.replication.repair import RepairProgress, RepairReport, repair_replica
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.transactions.lease import end_lease
from airflow_hive_federation.waiting import Departure
from tests.support.cycling import Scheduled, rows, scheduled
from tests.support.small_source import connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
TABLES = (
    "quiet",
    "truncated",
    "insert_only",
    "deleted",
    "parts",
    "altered",
    "counted",
    "plain",
    "written",
    "dropped",
)
SETUP = f"""
CREATE DATABASE rep;
CREATE TABLE rep.quiet (id int) {ACID};
CREATE TABLE rep.truncated (id int, s string) {ACID};
CREATE TABLE rep.insert_only (id int) STORED AS ORC
 TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only');
CREATE TABLE rep.deleted (id int) {ACID};
CREATE TABLE rep.parts (id int) PARTITIONED BY (d string) {ACID};
CREATE TABLE rep.altered (id int, s string) {ACID};
CREATE TABLE rep.counted (id int) {ACID};
CREATE TABLE rep.plain (s string) STORED AS TEXTFILE TBLPROPERTIES ('transactional'='false');
CREATE TABLE rep.written (id int) {ACID};
CREATE TABLE rep.dropped (id int) {ACID};
INSERT INTO rep.quiet VALUES (1);
INSERT INTO rep.truncated VALUES (1, 'a'), (2, 'b');
INSERT INTO rep.insert_only VALUES (1), (2);
INSERT INTO rep.deleted VALUES (1);
INSERT INTO rep.deleted VALUES (2);
INSERT INTO rep.parts PARTITION (d) VALUES (1, 'x'), (2, 'y'), (3, 'z');
INSERT INTO rep.altered VALUES (1, 'a');
INSERT INTO rep.counted VALUES (1), (2);
INSERT INTO rep.plain VALUES ('hello');
INSERT INTO rep.written VALUES (1);
INSERT INTO rep.dropped VALUES (1)"""


class Replica:
    """A published target, and what one may do to it."""

    def __init__(self, site: Scheduled, source_sql: HiveSql, target_sql: HiveSql) -> None:
        self.site, self.source_sql, self.target_sql = site, source_sql, target_sql
        self.database = site.policy.target_database

    def directory(self, table: str) -> Path:
        with self.site.target.client() as client:
            return Path(local_path(self.table(client, table).sd.location) or "")

    def table(self, client: MetastoreClient, name: str) -> Any:
        return client.get_table(self.database, name)

    def parameters(self, table: str) -> dict[str, str]:
        with self.site.target.client() as client:
            return dict(self.table(client, table).parameters)

    def alter(self, name: str, **parameters: str) -> None:
        with self.site.target.client() as client:
            table = self.table(client, name)
            table.parameters = {**table.parameters, **parameters}
            client.alter_table(self.database, name, table, environment={"DO_NOT_UPDATE_STATS": "true"})

    def damage(self) -> None:
        for table in ("truncated", "insert_only"):
            bucket = next(self.directory(table).glob("delta_*/[b0]*"))
            bucket.write_bytes(bucket.read_bytes()[:100])
        shutil.rmtree(next(self.directory("deleted").glob("delta_0000002_*")))
        (file,) = (path for path in self.directory("plain").iterdir() if not path.name.startswith("."))
        file.write_bytes(b"HELLO\n")  # of the same length
        (self.directory("plain") / "surplus").write_text("not of the source\n", encoding="utf-8")
        with self.site.target.client() as client:
            client.drop_partitions(self.database, "parts", ["d=x"], delete_data=True)
            (partition,) = list(client.iter_partitions(self.database, "parts", names=["d=y"]))
            partition.values = ["surplus"]
            partition.sd.location = f"{self.table(client, 'parts').sd.location}/d=surplus"  # type: ignore[union-attr]
            client.add_partitions([partition])
            (partition,) = list(client.iter_partitions(self.database, "parts", names=["d=z"]))
            partition.sd.cols[0].name = "renamed"  # type: ignore[union-attr,index]
            client.alter_partitions(self.database, "parts", [partition])
            table = self.table(client, "altered")
            table.sd.cols[1].name = "renamed"
            client.alter_table(self.database, "altered", table)
            client.drop_table(self.database, "dropped", delete_data=True)
        self.alter("altered", colour="red")
        self.alter("counted", numRows="7")
        self.target_sql.execute(f"CREATE TABLE {self.database}.surplus (id int) {ACID}")
        self.target_sql.execute(f"INSERT INTO {self.database}.surplus VALUES (1)")
        self.target_sql.execute(f"INSERT INTO {self.database}.written VALUES (2)")

    def repair(self) -> RepairReport:
        return repair_replica(
            self.site.source,
            self.site.target,
            self.site.policy,
            run_copy=self.site._copy,
            run_verify=self.site._read,
        )

    def repair_in_pieces(self) -> tuple[RepairReport, int]:
        """Leave the process for each job; return the report, and the number of departures."""
        departures, leases, here = 0, 0, False
        progress: dict[str, object] = {}

        def leaving(job: Callable[[str, str], object]) -> Callable[[str, str], None]:
            def run(plan: str, results: str) -> None:
                nonlocal here
                here = not here
                if here:
                    raise Departure("The job works on its cluster.")
                job(plan, results)

            return run

        while True:
            try:
                return repair_replica(
                    self.site.source,
                    self.site.target,
                    self.site.policy,
                    run_copy=leaving(self.site._copy),
                    run_verify=leaving(self.site._read),
                    begun=RepairProgress.from_json(json.loads(json.dumps(progress))) if progress else None,
                ), min(departures, leases)
            except Departure as left:
                departures, progress = departures + 1, left.progress
                # By these, the cleaners leave the files that the job reads.
                leases += len(left.leases)
                for uris, lease in left.borrowed:
                    ends = (self.site.source, self.site.target)
                    end_lease(next(end for end in ends if end.settings.uris == uris), lease)

    def assert_equal(self) -> None:
        for table in TABLES:
            columns = "*" if table in {"plain", "insert_only"} else "ROW__ID, *"
            replicated = rows(self.target_sql, f"SELECT {columns} FROM {self.database}.{table}")
            assert replicated == rows(self.source_sql, f"SELECT {columns} FROM rep.{table}"), table


@pytest.fixture
def replica(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> Iterator[Replica]:
    for statement in SETUP.split(";"):
        hive_sql_source.execute(statement)
    with scheduled(source, target, spark, tmp_path, "rep") as site:
        site.cycle()
        yield Replica(site, hive_sql_source, hive_sql_target)
    for metastore, database in ((source, "rep"), (target, "rep_copy")):
        with connected(metastore) as client:
            client.drop_database(database, delete_data=True, cascade=True, if_exists=True)


def test_a_replica_damaged_in_every_way_is_repaired(replica: Replica) -> None:
    untouched = replica.parameters("quiet")
    replica.damage()
    report, departures = replica.repair_in_pieces()
    # A verification, a copy and a verification at least.
    assert departures >= 3
    assert report.report.differences == []
    assert report.tables == sorted({*TABLES, "surplus"} - {"quiet"})
    # Written to by somebody: its write ids are not the source's. The others keep what was whole of them.
    assert {"written"} <= set(report.replaced) <= {"written", "surplus"}
    assert replica.parameters("quiet") == untouched
    assert "colour" not in replica.parameters("altered")
    assert replica.parameters("counted")["numRows"] == "2"
    replica.assert_equal()

    # Nothing differs: nothing is done.
    again = replica.repair()
    assert (again.tables, again.repaired, again.report.differences) == ([], [], [])

    # The replica goes on.
    replica.source_sql.execute("INSERT INTO rep.written VALUES (5)")
    replica.source_sql.execute("DELETE FROM rep.deleted WHERE id = 2")
    replica.site.cycle()
    replica.assert_equal()

    with replica.site.target.client() as client:
        database: Any = client.get_database(replica.database)
        database.parameters[markers.POLICY] = "another"
        client.alter_database(replica.database, database)
    with pytest.raises(TargetNotOursError, match="another"):
        replica.repair()
