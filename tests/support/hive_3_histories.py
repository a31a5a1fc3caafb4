"""Random histories of a source of Hive 3.1: its own SQL, our ingest, files, and its own compactor.

A dump of Hive 3.1 holds locks, so that no exclusive statement may come between a dump and its load; and the
locks of a cycle that was cut off stay until its read transaction times out, which nobody waits for here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.embedded.sql import HiveSqlError, Row
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support import history_operations as operations
from tests.support.histories import History, Kind, Operation, Table
from tests.support.history_judge import stored
from tests.support.history_runs import SourceKind
from tests.support.older_sql import OlderSql, OlderSqlError, older_sql

#: As in :mod:`tests.support.hive_beside_cleaner`.
_REPETITIONS = 9
_TYPES = {CompactionKind.MAJOR: types.CompactionType.MAJOR, CompactionKind.MINOR: types.CompactionType.MINOR}
_COMPACTED = PollPolicy(first_s=0.1, factor=1.2, longest_s=1.0, timeout_s=240)
_SETTINGS = {
    "hive.compute.query.using.stats": "false",
    # Hive looks once in a second whether a job has ended.
    "hive.exec.counters.pull.interval": "50",
    # Nothing is locked that a statement would wait for: if it does, it fails soon.
    "hive.lock.numretries": "10",
    "hive.lock.sleep.between.retries": "1s",
}


@dataclass(frozen=True)
class Hive3:
    """A metastore of Hive 3.1, as histories need it."""

    uri: str
    external_warehouse: Path


class Hive3Sql:
    """Hive 3.1's SQL with the interface of Hive 4.2's."""

    def __init__(self, sql: OlderSql) -> None:
        self._sql = sql

    def execute(self, sql: str) -> list[Row]:
        """Run one statement, again if directories that it does not read vanish while Hive lists them.

        :raises HiveSqlError: Hive refused or failed it.
        """
        for _ in range(_REPETITIONS):
            try:
                return self._once(sql)
            except HiveSqlError as error:
                if "java.io.FileNotFoundException" not in str(error):
                    raise
        return self._once(sql)

    def set(self, name: str, value: str) -> None:
        self._sql.set(name, value)

    def _once(self, sql: str) -> list[Row]:
        try:
            rows = self._sql.execute(sql)
        except OlderSqlError as error:
            raise HiveSqlError(str(error), remedy="see the engine's log.", sql=sql, code=0) from error
        return [tuple(None if value == "NULL" else value for value in row) for row in rows]


@contextmanager
def hive_3_sql(uri: str, home: Path) -> Iterator[Hive3Sql]:
    """Start Hive 3.1's SQL engine on its metastore, and end it with the block."""
    with older_sql(3, uri, home, settings=_SETTINGS) as sql:
        yield Hive3Sql(sql)


class Hive3History(History):
    """Operations that a metastore of Hive 3.1 serves, as its own programs do them."""

    bucket = "bucket_00000"
    # It does not know exclusive writes.
    shared_writes = True
    # The statistics of the columns of its partitions keep the former name (HIVE-27539).
    drops_renamed = False

    def drop_partition(self, table: Table, value: str) -> None:
        # Its SQL finds no partition on a Java that is newer than 8.
        name = partition_name(["p"], [value])
        self.log.append(f"  drop {name} of {table.full_name}")
        self.client.drop_partitions(
            table.database, table.name, [name], delete_data=table.kind is not Kind.EXTERNAL
        )

    def compact(self, table: Table, kind: CompactionKind) -> list[str]:
        """Have Hive's own worker compact all partitions; its cleaner comes later."""
        names = (
            sorted(self.client.list_partition_names(table.database, table.name))
            if table.partitioned
            else [None]
        )
        for name in names:
            request = types.CompactionRequest(
                dbname=table.database, tablename=table.name, partitionname=name, type=_TYPES[kind]
            )
            self.client.call("compact2", request)
        assert wait_until(lambda: not self._queued(table), _COMPACTED), self._compactions(table)
        return [f"{compaction.partitionname} {compaction.state}" for compaction in self._compactions(table)]

    def _queued(self, table: Table) -> bool:
        return any(entry.state in {"initiated", "working"} for entry in self._compactions(table))

    def _compactions(self, table: Table) -> list[Any]:
        queue: Any = self.client.call("show_compact", types.ShowCompactRequest())
        return [
            entry
            for entry in queue.compacts
            if (entry.dbname, entry.tablename) == (table.database, table.name)
        ]


OPERATIONS: Mapping[Operation, int] = operations.OPERATIONS
#: They take no lock that those of a dump exclude.
_SHARED: Mapping[Operation, int] = {
    operation: OPERATIONS[operation]
    for operation in (
        operations.insert_by_files,
        operations.begin_transaction,
        operations.end_transaction,
        operations.delete_by_files,
        operations.stream,
        operations.insert,
        operations.update,
        operations.delete,
        operations.write_external,
    )
}
HIVE_3 = SourceKind(
    history=Hive3History,
    operations=OPERATIONS,
    between_dump_and_load=_SHARED,
    amid=_SHARED,
    created=stored,
    dumps_hold_locks=True,
    writes_across_bootstrap=True,
)
