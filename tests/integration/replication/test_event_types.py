"""Every event type of Hive's listener: after each, the replica is equal.

Messages of the other format are the same in other letters: ``test_change_manager`` replicates by them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.event_messages import GZIP_FORMAT
from airflow_hive_federation.model.side_parameters import is_side_parameter
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump, load_idle
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.replica.database import find_layout
from airflow_hive_federation.replication.replica.differences import database_differences, metadata_differences
from airflow_hive_federation.replication.replica.table_index import TableIndex
from tests.support.incrementing import Cycles, cycles, run_copy

pytestmark = pytest.mark.slow

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
UPPER, LOWER = (f"org.apache.hadoop.hive.ql.udf.generic.GenericUDF{name}" for name in ("Upper", "Lower"))
#: Statements of a cycle.
A_CYCLE = 5
SETUP = f"""
CREATE TABLE {{db}}.t (id int, s string) {ACID};
CREATE TABLE {{db}}.p (id int, s string) PARTITIONED BY (d string) {ACID};
CREATE TABLE {{db}}.swap (id int, s string) PARTITIONED BY (d string) {ACID};
CREATE EXTERNAL TABLE {{db}}.x (s string) PARTITIONED BY (d string) STORED AS TEXTFILE;
CREATE EXTERNAL TABLE {{db}}.y (s string, n int) STORED AS TEXTFILE;
CREATE TABLE {{db}}.parent (id int, other int, PRIMARY KEY (id) DISABLE NOVALIDATE) {ACID};
CREATE VIEW {{db}}.v AS SELECT id FROM {{db}}.t;
INSERT INTO {{db}}.t VALUES (1, 'a'), (2, 'b');
INSERT INTO {{db}}.p PARTITION (d) VALUES (1, 'a', 'x'), (2, 'b', 'y');
INSERT INTO {{db}}.x PARTITION (d = 'one') VALUES ('a');
INSERT INTO {{db}}.y VALUES ('a', 1)"""
#: What happens to the source; a cycle after each line, which may be of several statements.
STATEMENTS = f"""
ALTER DATABASE {{db}} SET DBPROPERTIES ('team' = 'one', 'cost' = '7')
ALTER DATABASE {{db}} SET DBPROPERTIES ('team' = 'two')
ALTER DATABASE {{db}} SET OWNER ROLE admins
CREATE FUNCTION {{db}}.f AS '{UPPER}'
DROP FUNCTION {{db}}.f; CREATE FUNCTION {{db}}.f AS '{LOWER}'
DROP FUNCTION {{db}}.f
ALTER TABLE {{db}}.t ADD CONSTRAINT pk PRIMARY KEY (id) DISABLE NOVALIDATE
ALTER TABLE {{db}}.t ADD CONSTRAINT uq UNIQUE (s) DISABLE NOVALIDATE
ALTER TABLE {{db}}.t ADD CONSTRAINT ck CHECK (id > 0) DISABLE NOVALIDATE
ALTER TABLE {{db}}.t CHANGE COLUMN id id int CONSTRAINT nn NOT NULL DISABLE NOVALIDATE
ALTER TABLE {{db}}.t CHANGE COLUMN s s string CONSTRAINT df DEFAULT 'none' DISABLE NOVALIDATE
ALTER TABLE {{db}}.t ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES {{db}}.parent(id) DISABLE NOVALIDATE
ALTER TABLE {{db}}.t DROP CONSTRAINT fk
ALTER TABLE {{db}}.t DROP CONSTRAINT uq; ALTER TABLE {{db}}.t ADD CONSTRAINT uq UNIQUE (id) DISABLE RELY
ALTER TABLE {{db}}.t DROP CONSTRAINT nn; ALTER TABLE {{db}}.t DROP CONSTRAINT df
ALTER TABLE {{db}}.t DROP CONSTRAINT ck; ALTER TABLE {{db}}.t DROP CONSTRAINT pk
ANALYZE TABLE {{db}}.t COMPUTE STATISTICS FOR COLUMNS
ANALYZE TABLE {{db}}.p PARTITION (d = 'x') COMPUTE STATISTICS FOR COLUMNS
ANALYZE TABLE {{db}}.y COMPUTE STATISTICS FOR COLUMNS
ANALYZE TABLE {{db}}.x PARTITION (d = 'one') COMPUTE STATISTICS FOR COLUMNS
INSERT INTO {{db}}.y VALUES ('b', 2)
INSERT INTO {{db}}.t VALUES (3, 'c'); ANALYZE TABLE {{db}}.t COMPUTE STATISTICS FOR COLUMNS
ALTER TABLE {{db}}.t ADD COLUMNS (n int COMMENT 'many')
ALTER TABLE {{db}}.t CHANGE COLUMN n n bigint COMMENT 'more'
ALTER TABLE {{db}}.t CHANGE COLUMN n renamed bigint
ALTER TABLE {{db}}.t SET TBLPROPERTIES ('comment' = 'a table', 'k' = 'v', 'gone' = '1')
ALTER TABLE {{db}}.t UNSET TBLPROPERTIES ('gone')
ALTER TABLE {{db}}.t SET SERDEPROPERTIES ('q' = 'z')
ALTER TABLE {{db}}.t SET OWNER USER somebody
ALTER TABLE {{db}}.t TOUCH
ALTER TABLE {{db}}.x ADD COLUMNS (extra string) CASCADE
ALTER TABLE {{db}}.x REPLACE COLUMNS (s string)
ALTER TABLE {{db}}.x PARTITION (d = 'one') SET SERDEPROPERTIES ('field.delim' = ',')
ALTER TABLE {{db}}.x SET SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde'
ALTER TABLE {{db}}.x SET FILEFORMAT TEXTFILE
ALTER TABLE {{db}}.x ADD PARTITION (d = 'two'); ALTER TABLE {{db}}.x ADD PARTITION (d = 'a:b%/c')
ALTER TABLE {{db}}.x PARTITION (d = 'two') RENAME TO PARTITION (d = '2')
ALTER TABLE {{db}}.x DROP PARTITION (d = '2')
ALTER TABLE {{db}}.p ADD PARTITION (d = 'z'); INSERT INTO {{db}}.p PARTITION (d = 'z') VALUES (9, 'z')
ALTER TABLE {{db}}.p PARTITION (d = 'y') RENAME TO PARTITION (d = 'yy')
ALTER TABLE {{db}}.p DROP PARTITION (d = 'z')
ALTER TABLE {{db}}.p SKEWED BY (id) ON (1, 2)
ALTER TABLE {{db}}.p NOT SKEWED
ALTER VIEW {{db}}.v AS SELECT id, s FROM {{db}}.t
ALTER VIEW {{db}}.v SET TBLPROPERTIES ('seen' = 'yes')
ALTER VIEW {{db}}.v RENAME TO {{db}}.v2
TRUNCATE TABLE {{db}}.p PARTITION (d = 'x')
TRUNCATE TABLE {{db}}.t
ALTER TABLE {{db}}.parent RENAME TO {{db}}.parent2
DROP TABLE {{db}}.parent2"""


@dataclass(frozen=True)
class Side:
    """A metastore, and a database of it."""

    metastore: EmbeddedMetastore
    pool: MetastorePool
    database: str
    external: str

    def contents(self) -> dict[str, Any]:
        """Return all that the metastore has of the database; names and places become those of both sides."""
        with self.pool.client() as client:
            contents: dict[str, Any] = {"database": to_json(client.get_database(self.database))}
            for function in client.get_functions(self.database):
                contents[f"function {function.functionName}"] = to_json(function)
            for name in client.list_tables(self.database):
                table: Any = client.get_table(self.database, name, with_column_stats=True)
                contents[name] = to_json(table)
                contents[f"constraints of {name}"] = to_json(
                    client.get_table_constraints(self.database, name)
                )
                if table.partitionKeys:
                    for partition in client.iter_partitions(self.database, name, with_column_stats=True):
                        wire: Any = partition
                        contents[f"{name} {wire.values}"] = to_json(wire)
        return {key: _lasting(json.loads(self._placed(json.dumps(value)))) for key, value in contents.items()}

    def _placed(self, text: str) -> str:
        for place, name in ((f"file:{self.metastore.warehouse}", "WAREHOUSE"), (self.external, "EXTERNAL")):
            text = text.replace(place, name)
        return text.replace("evt_copy", "evt")


#: What each metastore has of its own.
_OWN = {
    *("id", "writeId", "txnId", "createTime", "lastAccessTime", "privileges", "accessType", "lastAnalyzed"),
    *("transient_lastDdlTime", "last_modified_by", "last_modified_time", "discover.partitions"),
    *("locationUri", "managedLocationUri", "bucketing_version", "isStatsCompliant", "fileMetadata"),
}


def _flat(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {line for key, member in value.items() for line in _flat(member, f"{path}.{key}")}
    return {f"{path}: {value}"}


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _lasting(member)
            for key, member in value.items()
            if key not in _OWN and not is_side_parameter(key) and member not in (None, [])
        }
    if isinstance(value, list):
        return sorted((_lasting(member) for member in value), key=repr)
    return value


class Scene:
    def __init__(self, site: Cycles, source: EmbeddedMetastore, target: EmbeddedMetastore) -> None:
        self.site = site
        self.wrong: list[str] = []
        policy = site.policy
        self.sides = (
            Side(source, site.source, policy.source_database, f"file:{source.external_warehouse}"),
            Side(
                target,
                site.target,
                policy.target_database,
                f"{policy.external_base}{source.external_warehouse}",
            ),
        )

    def write(self, statements: str) -> None:
        for statement in statements.format(db=self.site.policy.source_database).split("; "):
            try:
                self.site.write(statement)
            except HiveSqlError as error:
                self.wrong.append(f"{error}")

    def cycle(self) -> str:
        """A cycle; the dump that the target was loaded from last."""
        site = self.site
        dumped = dump_next_increment(site.source, site.target, site.policy)
        if dumped.idle:
            return load_idle(site.target, site.policy, dumped.event_id).dump
        return load_dump(site.source, site.target, site.policy, dumped.dump, run_copy=run_copy).dump

    def assert_equal(self, after: str) -> None:
        dump = self.cycle()
        source, target = (side.contents() for side in self.sides)
        for name in sorted(source.keys() | target.keys()):
            if source.get(name) != target.get(name):
                a, b = (_flat(side.get(name)) for side in (source, target))
                self.wrong.append(f"after {after}: {name}: source {sorted(a - b)}, target {sorted(b - a)}")
        with self.site.target.client() as client:
            layout, homes = find_layout(client, self.site.policy), TableIndex(DumpDirectory(dump))
            differences = database_differences(client, layout, homes)
            differences += metadata_differences(client, layout, homes, closely=set(homes))
        self.wrong += [f"after {after}: {difference}" for difference in differences]

    def event_types(self) -> set[str]:
        """The types of the source's events, of our database and of none."""
        with self.site.source.client() as client:
            events: list[Any] = list(client.iter_notification_events(0))
        ours = {None, "", self.site.policy.source_database}
        return {str(event.eventType) for event in events if event.dbName in ours}

    def formats(self) -> set[str]:
        with self.site.source.client() as client:
            events: list[Any] = list(client.iter_notification_events(0))
        return {str(event.messageFormat) for event in events}


@pytest.fixture
def scene(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> Iterator[Scene]:
    hive_sql_source.execute("CREATE DATABASE evt COMMENT 'of events'")
    sides = (hive_sql_source, hive_sql_target)
    with cycles(source, target, sides, tmp_path, source_database="evt") as site:
        yield Scene(site, source, target)


def test_every_type_of_event(scene: Scene) -> None:
    for statement in SETUP.strip().split(";\n"):
        scene.write(statement)
    scene.site.bootstrap()
    scene.assert_equal("the bootstrap")
    for lines in batched(STATEMENTS.strip().split("\n"), A_CYCLE):
        for line in lines:
            scene.write(line)
        scene.assert_equal(lines[-1])
    for call in CALLS:
        with scene.site.source.client() as client:
            try:
                call(client)
            except MetastoreError as error:
                scene.wrong.append(f"{error}")
        scene.assert_equal(call.__name__)
    assert not scene.wrong, "\n".join(scene.wrong)
    assert sorted(TYPES - scene.event_types()) == []
    assert GZIP_FORMAT in scene.formats()


def batched(lines: list[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(lines), size):
        yield lines[first : first + size]


def reload(client: MetastoreClient) -> None:
    data = types.FireEventRequestData(refreshEvent=True)
    client.call(
        "fire_listener_event", types.FireEventRequest(dbName="evt", tableName="t", successful=True, data=data)
    )


def delete_table_statistics(client: MetastoreClient) -> None:
    client.call("delete_table_column_statistics", "evt", "y", "s", "hive")


def delete_partition_statistics(client: MetastoreClient) -> None:
    client.call("delete_partition_column_statistics", "evt", "x", "d=one", "s", "hive")


def data_connectors(client: MetastoreClient) -> None:
    """They belong to no database, and are no part of a replica."""
    connector = types.DataConnector(name="evt_c", type="mysql", url="jdbc:mysql://h/d", parameters={})
    client.call("create_dataconnector_req", types.CreateDataConnectorRequest(connector=connector))
    altered = types.DataConnector(name="evt_c", type="mysql", url="jdbc:mysql://h/e", parameters={})
    request = types.AlterDataConnectorRequest(connectorName="evt_c", newConnector=altered)
    client.call("alter_dataconnector_req", request)
    client.call("drop_dataconnector_req", types.DropDataConnectorRequest(connectorName="evt_c"))


CALLS: tuple[Callable[[MetastoreClient], None], ...] = (
    reload,
    delete_table_statistics,
    delete_partition_statistics,
    data_connectors,
)
#: Of Hive 4.2's ``EventMessage.EventType``, those that happen here. (Catalogs and schemas belong to no
#: database, ``ACID_WRITE`` is no notification, and of data connectors Hive 4.2 writes none; transactions
#: abort, and compactors work, in other tests.)
TYPES = {
    *("ALTER_DATABASE", "CREATE_FUNCTION", "DROP_FUNCTION", "RELOAD"),
    *("CREATE_TABLE", "ALTER_TABLE", "DROP_TABLE", "INSERT"),
    *("ADD_PARTITION", "ALTER_PARTITION", "DROP_PARTITION"),
    *("ADD_PRIMARYKEY", "ADD_FOREIGNKEY", "ADD_UNIQUECONSTRAINT", "ADD_NOTNULLCONSTRAINT"),
    *("ADD_DEFAULTCONSTRAINT", "ADD_CHECKCONSTRAINT", "DROP_CONSTRAINT"),
    *("UPDATE_TBL_COL_STAT_EVENT", "UPDATE_PART_COL_STAT_EVENT"),
    *("DELETE_TBL_COL_STAT_EVENT", "DELETE_PART_COL_STAT_EVENT"),
    *("OPEN_TXN", "COMMIT_TXN", "ALLOC_WRITE_ID_EVENT"),
}
