"""Hive's records of writes and its events name each partition to which a transaction writes, or none at all.

An increment relies on that: it lists all directories only if a transaction has left no record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.dump.written_partitions import WriteRecords
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.small_source import connected

DATABASE = "write_records"
STATEMENTS = (
    "INSERT INTO {t} PARTITION (d) VALUES (11, 'k', 'a'), (12, 'l', 'b'), (13, 'm', 'new')",
    "INSERT INTO {t} PARTITION (d='c') VALUES (14, 'n')",
    "INSERT INTO {t} PARTITION (d='static') VALUES (15, 'o')",
    "UPDATE {t} SET s = 'updated' WHERE id IN (1, 2)",
    "DELETE FROM {t} WHERE id IN (3, 4)",
    (
        "MERGE INTO {t} t USING {t}_with o ON t.id = o.id WHEN MATCHED AND o.s = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (o.id, o.s, 'merged')"
    ),
    (
        "FROM {t}_with INSERT INTO {t} PARTITION (d='e') SELECT id, s "
        "INSERT INTO {t} PARTITION (d='f') SELECT id, s"
    ),
    "INSERT OVERWRITE TABLE {t} PARTITION (d) SELECT id, 'over', 'g' FROM {t}_with",
    "TRUNCATE TABLE {t} PARTITION (d='h')",
)
OF_INSERT_ONLY = (STATEMENTS[0], STATEMENTS[1], STATEMENTS[6], STATEMENTS[7], STATEMENTS[8])


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql, source: EmbeddedMetastore) -> Iterator[HiveSql]:
    hive_sql_source.execute(f"CREATE DATABASE {DATABASE}")
    yield hive_sql_source
    with connected(source) as client:
        client.drop_database(DATABASE, delete_data=True, cascade=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["default", "insert_only"])
def test_each_partition_is_named(sql: HiveSql, source: EmbeddedMetastore, kind: str) -> None:
    table = f"{DATABASE}.{kind}s"
    properties = f"STORED AS ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='{kind}')"
    rows = ", ".join(f"({number}, 's', '{partition}')" for number, partition in enumerate("abcdefgh", 1))
    for statement in (
        f"CREATE TABLE {table} (id int, s string) PARTITIONED BY (d string) {properties}",
        f"CREATE TABLE {table}_with (id int, s string) STORED AS ORC TBLPROPERTIES ('transactional'='true')",
        f"INSERT INTO {table}_with VALUES (5, 'gone'), (6, 'x'), (90, 'y')",
        f"INSERT INTO {table} PARTITION (d) VALUES {rows}",
    ):
        sql.execute(statement)
    with connected(source) as client:
        before = client.get_current_notification_event_id()
    for statement in STATEMENTS if kind == "default" else OF_INSERT_ONLY:
        sql.execute(statement.format(t=table))
    with connected(source) as client:
        wire: Any = client.get_table(DATABASE, f"{kind}s")
        on_disk = written(Path(local_path(wire.sd.location) or ""))
        events = [ev.read_event(raw) for raw in client.iter_notification_events(before)]
        # Further events name partitions, too, but only if statistics are gathered.
        evented = {
            name
            for event in events
            if isinstance(event, ev.PartitionsChanged) and event.table == f"{kind}s"
            for name in (event.named or () if event.event_type == "ADD_PARTITION" else event.truncated)
        }
        records, recorded = WriteRecords(DATABASE, str), 0
        for event in events:
            if isinstance(event, ev.WriteIdsAllocated) and event.table == f"{kind}s":
                for txn, write_id in event.write_ids:
                    names = records.partitions(client, event.table, [txn])
                    recorded += names is not None
                    assert names is None or on_disk[write_id] <= names | evented, write_id
    assert recorded >= 4


def written(root: Path) -> dict[int, set[str]]:
    """Return the partitions that have directories of each write id."""
    names: defaultdict[int, set[str]] = defaultdict(set)
    for directory in root.glob("d=*/*"):
        if is_acid_directory(directory.name):
            names[parse_directory(directory.name).max_write_id].add(directory.parent.name)
    return names
