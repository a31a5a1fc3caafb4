"""Histories: seeded random operations on a source, by Hive's SQL, by our ingest, and by files.

A history knows its objects and chooses operations that can be done; what Hive refuses all the same is kept
in ``refused``. ``log`` has every operation, in order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from airflow_hive_federation.acid.names import parse_directory
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.sql import HiveSqlError
from airflow_hive_federation.errors import StreamingTransactionError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.model.partitions import partition_name, unescape
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import Transaction
from tests.support.history_files import BUCKET_FILE, Row, insert_rows, prepare_partitions

PARTITIONS = ("x", "y", "a b", "k=v", "p%q", "ä", "/s")
ACID = "'transactional'='true', 'no_auto_compaction'='true'"


WORDS = ("", "one", "two three", "ü", "%2F", "it is", "_")


class Metastore(Protocol):
    """The interface of a metastore for histories."""

    @property
    def uri(self) -> str:
        """Return its Thrift URI."""

    @property
    def external_warehouse(self) -> Path:
        """Return the directory of external tables."""


class Sql(Protocol):
    """The interface of Hive's SQL engine for histories."""

    def execute(self, sql: str) -> list[Any]:
        """Run one statement and return its rows; raise :class:`HiveSqlError` if Hive fails."""

    def set(self, name: str, value: str) -> None:
        """Change one of Hive's settings."""


class Kind(StrEnum):
    """The properties of a table."""

    ACID = "acid"
    INSERT_ONLY = "insert-only"
    EXTERNAL = "external"


class NotNow(Exception):  # noqa: N818
    """The operation cannot be done with what there is."""


@dataclass(eq=False)
class Table:
    """A table that the history has made."""

    database: str
    name: str
    kind: Kind
    columns: dict[str, str]
    partitioned: bool = False
    buckets: int = 0
    #: Rows that were written to files: partition, write id, row number.
    rows: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(eq=False)
class Stream:
    """An open streaming connection."""

    connection: HiveStreamingConnection
    table: Table
    begun: int = 0


@dataclass(eq=False)
class OpenWrite:
    """A transaction that has written to tables and has not ended."""

    transaction: Transaction
    tables: Sequence[Table]


Operation = Callable[["History"], str]


class History:
    """Operations on the databases of a source.

    :param metastore: the source.
    :param sql: Hive's SQL engine on it.
    :param databases: databases to work in; they are made.
    :param seed: the same seed and the same Hive give the same operations.
    :param operations: the operations, and how often each is chosen.
    """

    #: Name of a file of rows of an ACID table.
    bucket = BUCKET_FILE
    #: Updates and deletes do not exclude each other.
    shared_writes = False
    #: An external table with partitions can be dropped after it was renamed.
    drops_renamed = True

    def __init__(
        self,
        metastore: Metastore,
        sql: Sql,
        databases: Sequence[str],
        seed: int,
        operations: Mapping[Operation, int],
    ) -> None:
        self._operations = operations
        self.chance = random.Random(seed)
        self.databases = tuple(databases)
        self.tables: list[Table] = []
        self.views: dict[str, Table] = {}
        #: By table and value of its partition, directories that were theirs before SET LOCATION.
        self.left: dict[tuple[Table, str], list[Path]] = {}
        self.log: list[str] = []
        self.refused: list[str] = []
        self._sql = sql
        self._settings = MetastoreSettings(uris=(metastore.uri,))
        self.client = MetastoreClient(self._settings)
        self._external = metastore.external_warehouse
        self._numbers = itertools.count(1)
        #: The directories of the databases' managed tables.
        self._homes: dict[str, Path] = {}
        self._open: list[OpenWrite] = []
        self._streams: list[Stream] = []
        for database in databases:
            self.sql(f"CREATE DATABASE {database}")

    def start(self) -> None:
        """Make a table of every sort."""
        for kind, partitioned, buckets in (
            (Kind.ACID, False, 0),
            (Kind.ACID, True, 0),
            (Kind.ACID, True, 2),
            (Kind.INSERT_ONLY, True, 0),
            (Kind.EXTERNAL, True, 0),
            (Kind.EXTERNAL, False, 0),
        ):
            self._create(self.databases[0], kind, partitioned=partitioned, buckets=buckets)
        self._create(self.databases[-1], Kind.ACID, partitioned=False, buckets=0)
        for table in self.tables:
            if table.kind is Kind.ACID:
                described: Any = self.client.get_table(table.database, table.name)
                place = Path(str(described.sd.location).removeprefix("file:"))
                self._homes[table.database] = place.parent

    def run(self, count: int, operations: Mapping[Operation, int] | None = None) -> None:
        """Do some operations.

        :param operations: choose among these; among all of the history's by default.
        """
        for _ in range(count):
            self.step(operations or self._operations)

    def step(self, operations: Mapping[Operation, int]) -> None:
        """Do one operation that can be done now."""
        while True:
            (operation,) = self.chance.choices(list(operations), list(operations.values()))
            try:
                self.log.append(f"{operation.__name__}: {operation(self)}")
            except NotNow:
                continue
            return

    def end(self) -> None:
        """End what is open."""
        for write in list(self._open):
            self._finish(write)
        for stream in list(self._streams):
            self._close(stream)

    def close(self) -> None:
        """End what is open; the history cannot go on."""
        self.end()
        self.client.close()

    # -- for operations --------------------------------------------------------------------------------

    def sql(self, statement: str) -> bool:
        """Run a statement; whether Hive took it."""
        self.log.append(f"  {statement}")
        try:
            self._sql.execute(statement)
        except HiveSqlError as error:
            self.refused.append(f"{statement}: {error.message}")
            self.log.append("  refused")
            return False
        return True

    def pick(self, *kinds: Kind, partitioned: bool | None = None, free: bool = False) -> Table:
        """A table of one of these kinds.

        :param free: nothing that is open may have to do with it: what has is ended.
        """
        tables = [
            table
            for table in self.tables
            if (not kinds or table.kind in kinds) and partitioned in {None, table.partitioned}
        ]
        if not tables:
            raise NotNow
        table = self.chance.choice(tables)
        if free:
            self.free(table)
        return table

    def free(self, table: Table) -> None:
        """End what is open on a table: a statement would wait for its locks."""
        for write in [write for write in self._open if table in write.tables]:
            self._finish(write)
        for stream in [stream for stream in self._streams if stream.table is table]:
            self._close(stream)

    def partition(self, table: Table) -> str:
        """The value of a partition that there is."""
        names = self.client.list_partition_names(table.database, table.name)
        if not names:
            raise NotNow
        return unescaped(self.chance.choice(sorted(names)))

    def may_rename(self, table: Table) -> bool:
        """Return True if a table can get another name."""
        if not self.drops_renamed and table.partitioned and table.kind is Kind.EXTERNAL:
            return False
        return not any(view is table for view in self.views.values())

    def new_name(self) -> str:
        return f"t{next(self._numbers)}"

    def row(self, table: Table) -> Row:
        return {name: self._value(kind, name) for name, kind in table.columns.items()}

    def literals(self, table: Table, *, partition: bool = True) -> str:
        """Rows for VALUES."""
        rows = []
        for _ in range(self.chance.randrange(1, 4)):
            values = [literal(value) for value in self.row(table).values()]
            if table.partitioned and partition:
                values.append(literal(self.chance.choice(PARTITIONS)))
            rows.append(f"({', '.join(values)})")
        return ", ".join(rows)

    def _value(self, kind: str, name: str) -> Any:
        if name == "id":
            return next(self._numbers)
        if self.chance.random() < 0.1:
            return None
        if kind in {"int", "bigint"}:
            return self.chance.randrange(1000)
        return self.chance.randrange(100) / 4 if kind == "double" else self.chance.choice(WORDS)

    # -- parts -----------------------------------------------------------------------------------------

    def _create(self, database: str, kind: Kind, *, partitioned: bool, buckets: int) -> str:
        table = Table(
            database=database,
            name=self.new_name(),
            kind=kind,
            columns={"id": "int", "s": "string", "n": "int"},
            partitioned=partitioned,
            buckets=buckets if kind is Kind.ACID else 0,
        )
        if self.sql(f"CREATE {self.definition(table)}"):
            self.tables.append(table)
        return table.full_name

    def definition(self, table: Table) -> str:
        """Return the statement's text after CREATE."""
        columns = ", ".join(f"`{name}` {kind}" for name, kind in table.columns.items())
        parts = [f"({columns})", "PARTITIONED BY (p string)" if table.partitioned else ""]
        if table.buckets:
            parts.append(f"CLUSTERED BY (id) INTO {table.buckets} BUCKETS")
        if table.kind is Kind.EXTERNAL:
            place = self._external / f"{table.database}_files" / table.name
            parts.append(
                f"ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' STORED AS TEXTFILE LOCATION 'file:{place}'"
            )
            return " ".join(["EXTERNAL TABLE", table.full_name, *parts])
        only = ", 'transactional_properties'='insert_only'" if table.kind is Kind.INSERT_ONLY else ""
        parts.append(
            f"STORED AS ORC TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true'{only})"
        )
        return " ".join(["TABLE", table.full_name, *parts])

    def begin(self) -> OpenWrite:
        """Write new rows to files of some tables, in one transaction."""
        candidates = [table for table in self.tables if table.kind is not Kind.EXTERNAL and not table.buckets]
        if not candidates:
            raise NotNow
        tables = self.chance.sample(candidates, min(len(candidates), self.chance.choice((1, 1, 1, 2, 3))))
        write = OpenWrite(Transaction(self.client).__enter__(), tables)
        self._open.append(write)
        writes = [
            TableWrite(database=table.database, table=table.name, kind=WriteKind.INSERT) for table in tables
        ]
        write.transaction.lock(writes)
        for table in tables:
            self._insert(write.transaction, table)
        return write

    def _insert(self, transaction: Transaction, table: Table) -> None:
        values = self.chance.sample(PARTITIONS, self.chance.randrange(1, 3)) if table.partitioned else [""]
        rows = {value: [self.row(table) for _ in range(self.chance.randrange(1, 4))] for value in values}
        write_id = transaction.write_id(table.database, table.name)
        places = prepare_partitions(self.client, transaction, table.database, table.name, values)
        acid = table.kind is Kind.ACID
        schema = pa.schema([(name, ARROW[kind]) for name, kind in table.columns.items()])
        for value, table_rows in rows.items():
            insert_rows(places[value], write_id, table_rows, schema, acid=acid, bucket=self.bucket)
            if acid:
                table.rows += [(value, write_id, number) for number in range(len(table_rows))]

    def _finish(self, write: OpenWrite) -> str:
        self._open.remove(write)
        committed = self.chance.random() < 0.6
        self.log.append(f"  {'commit' if committed else 'abort'} {write.transaction.id}")
        write.transaction.commit() if committed else write.transaction.abort()
        return ", ".join(table.full_name for table in write.tables)

    def _stream(self, table: Table) -> Stream:
        connection = (
            HiveStreamingConnection.new_builder()
            .with_database(table.database)
            .with_table(table.name)
            .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
            .with_conf(self._settings)
            .with_transaction_batch_size(self.chance.choice((1, 2, 5)))
            .with_buffer_bytes(64)
            .connect()
        )
        stream = Stream(connection, table)
        self._streams.append(stream)
        return stream

    def _close(self, stream: Stream) -> None:
        self._streams.remove(stream)
        self.log.append(f"  close the stream into {stream.table.full_name}")
        stream.connection.close()

    def streamed(self, stream: Stream) -> str:
        """One transaction of a stream."""
        table = stream.table
        stream.connection.begin_transaction()
        for _ in range(self.chance.randrange(1, 5)):
            fields = ["" if value is None else str(value) for value in self.row(table).values()]
            if table.partitioned:
                fields.append(self.chance.choice(PARTITIONS))
            stream.connection.write(",".join(fields))
        committed = self.chance.random() < 0.7
        try:
            stream.connection.flush()
        except StreamingTransactionError as error:
            if "was overwritten" not in error.message:
                raise
            # Since the batch began, and the batch has not written to the partition before.
            stream.connection.abort_transaction()
            return f"{table.full_name} aborted, overwritten"
        stream.connection.commit_transaction() if committed else stream.connection.abort_transaction()
        return f"{table.full_name} {'committed' if committed else 'aborted'}"

    def files(self, table: Table) -> list[Path]:
        """Files of an external table, and where new ones may go."""
        described: Any = self.client.get_table(table.database, table.name)
        places = (
            [partition.sd.location for partition in self.client.iter_partitions(table.database, table.name)]  # type: ignore[union-attr]
            if table.partitioned
            else [described.sd.location]
        )
        return [Path(str(place).removeprefix("file:")) for place in sorted(map(str, places))]

    def place(self, table: Table, value: str = "") -> Path:
        """The directory of a table, or of its partition of a value."""
        described: Any = self.client.get_table(table.database, table.name)
        if table.partitioned:
            name = partition_name(["p"], [value])
            (described,) = self.client.iter_partitions(table.database, table.name, names=[name])
        return Path(str(described.sd.location).removeprefix("file:"))

    def elsewhere(self, database: str) -> Path:
        """A directory of a database that does not exist, in one that does."""
        home = self._homes[database] / "elsewhere"
        home.mkdir(parents=True, exist_ok=True)
        return home / self.new_name()

    def has_aborted(self, table: Table, place: Path) -> bool:
        """Return True if a directory has rows of aborted transactions.

        Hive would show them if it forgot these.
        """
        # (Nothing is open on the table.)
        aborted = self.client.get_valid_write_ids([table.full_name])[table.full_name].invalidWriteIds or ()
        deltas = [parse_directory(path.name) for path in place.glob("*delta_*")]
        return any(
            delta.min_write_id <= write_id <= delta.max_write_id for delta in deltas for write_id in aborted
        )

    def forget_places(self, table: Table) -> None:
        """Forget the former directories of a table: it is another one."""
        self.left = {owned: places for owned, places in self.left.items() if owned[0] is not table}

    def rename_partition(self, table: Table, old: str, new: str) -> None:
        if self.sql(
            f"ALTER TABLE {table.full_name} PARTITION (p = '{old}') RENAME TO PARTITION (p = '{new}')"
        ):
            table.rows = [(new if value == old else value, *rest) for value, *rest in table.rows]  # type: ignore[misc]

    def drop_partition(self, table: Table, value: str) -> None:
        self.sql(f"ALTER TABLE {table.full_name} DROP PARTITION (p = '{value}')")

    def compact(self, table: Table, kind: CompactionKind) -> list[str]:
        return [
            report.state for report in compact_table(self._settings, table.full_name, kind, in_threads(1))
        ]


ARROW: Mapping[str, pa.DataType] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}


def literal(value: Any) -> str:
    if value is None:
        return "null"
    return f"'{value}'" if isinstance(value, str) else str(value)


def unescaped(partition: str) -> str:
    """The value in the name of a partition."""
    return unescape(partition.partition("=")[2])
