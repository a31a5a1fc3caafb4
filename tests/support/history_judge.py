"""Judges a replica: compares real Hive's answers of both sides, table by table."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.side_parameters import SIDE_PREFIXES
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.definitions import definition, name_of, table_kind
from tests.support.histories import Sql

#: Parts of definitions that may differ between two equal tables.
_PASSING = ("transient_lastDdlTime", "last_modified_", *SIDE_PREFIXES, "'readonly'")
#: Numbers that each side counts for itself; ``wrong_counts`` looks at those which Hive believes.
_COUNTED = frozenset(
    {
        "COLUMN_STATS_ACCURATE",
        "numFiles",
        "numFilesErasureCoded",
        "numPartitions",
        "numRows",
        "rawDataSize",
        "totalSize",
    }
)


#: Returns the lines of a table's definition that must be equal on both sides.
Created = Callable[[Sql, Any], Iterator[str]]


@dataclass(frozen=True)
class Seen:
    """The rows, definition and partitions of a table, as Hive returns them.

    :param rows: with their ``ROW__ID``, for a full ACID table.
    :param created: lines of its definition.
    :param partitions: name → definition.
    :param transactional: all rows of it that a dump has are of one moment.
    :param keys: number of its partition columns, the last ones of a row.
    """

    rows: tuple[Any, ...]
    created: tuple[str, ...]
    partitions: Mapping[str, Any]
    transactional: bool
    keys: int


def shown(sql: Sql, table: Any) -> Iterator[str]:
    """Yield lines of SHOW CREATE TABLE, to compare what one version of Hive shows."""
    lines = [str(row[0]) for row in sql.execute(f"SHOW CREATE TABLE {table.dbName}.{table.tableName}")]
    for number, line in enumerate(lines):
        if number and lines[number - 1].strip() == "LOCATION":
            continue  # elsewhere, as it must be; the verification checks the place
        text = _without_database(line, table).strip(" ,)")
        if text and not any(phrase in text for phrase in _PASSING):
            yield text


def stored(sql: Sql, table: Any) -> Iterator[str]:
    """Yield what the metastore has of a table: versions of Hive show the same definition differently."""
    storage = table.sd
    serde = storage.serdeInfo
    # Hive 4's metastore leaves out the default.
    properties = {("serialization.format", "1"), *((serde and serde.parameters) or {}).items()}
    for described in (
        table.tableType,
        [(column.name, column.type, column.comment) for column in storage.cols],
        [(key.name, key.type) for key in table.partitionKeys or ()],
        (storage.inputFormat, storage.outputFormat, storage.bucketCols or [], storage.sortCols or []),
        f"{storage.numBuckets} buckets",
        (serde and serde.serializationLib, sorted(properties)),
        (table.viewOriginalText, table.viewExpandedText),
    ):
        yield _without_database(str(described), table)
    for name, value in sorted((table.parameters or {}).items()):
        if name not in _COUNTED and not any(phrase in f"'{name}'" for phrase in _PASSING):
            yield f"{name}={value}"


def look(
    pool: MetastorePool,
    sql: Sql,
    database: str,
    names: Collection[str] | None = None,
    *,
    created: Created = shown,
) -> dict[str, Seen | None]:
    """Return the contents of a database's tables as Hive reads them, by name.

    :param names: tables to look at; of the others only that they are there.
    """
    sql.set("hive.compute.query.using.stats", "false")
    with pool.client() as client:
        tables: list[Any] = list(client.get_tables(database, client.list_tables(database)))
        return {
            table.tableName: (
                _seen(client, sql, table, created) if names is None or table.tableName in names else None
            )
            for table in tables
        }


def wrong_counts(pool: MetastorePool, sql: Sql, database: str) -> list[str]:
    """Tables whose ``count(*)``, which Hive may answer from statistics, is not their number of rows."""
    differences = []
    with pool.client() as client:
        for table in client.get_tables(database, client.list_tables(database)):
            if not _claims_accuracy(client, table):
                continue
            counts = []
            for trusting in ("true", "false"):
                sql.set("hive.compute.query.using.stats", trusting)
                ((count,),) = sql.execute(f"SELECT count(*) FROM {database}.{table.tableName}")
                counts.append(count)
            if counts[0] != counts[1]:
                differences.append(f"{table.tableName}: count(*) says {counts[0]} of {counts[1]} rows")
    return differences


def differences(source: Mapping[str, Seen | None], target: Mapping[str, Seen | None]) -> list[str]:
    """Return a line per difference."""
    differences = [f"{name}: only on one side" for name in sorted(source.keys() ^ target.keys())]
    for name in sorted(source.keys() & target.keys()):
        ours, other = source[name], target[name]
        if ours and other:
            differences += [f"{name}: {difference}" for difference in _differences(ours, other)]
    return differences


def of_no_moment(states: Sequence[Mapping[str, Seen | None]], target: Mapping[str, Seen | None]) -> list[str]:
    """Return a line per partition of a transactional table whose rows it had at none of several moments.

    The name of a partition, and the columns, may be those of another moment than the rows.
    """
    strange = []
    for name, seen in sorted(target.items()):
        if seen is None or not seen.transactional:
            continue
        known = [state[name] for state in states if name in state]
        usual = {rows for one in known if one for rows in _by_partition(one).values()}
        strange += [
            f"{name} {partition}: {len(rows)} rows of no moment: {sorted(rows, key=repr)[:5]}, "
            f"and not {[sorted(other - rows, key=repr)[:3] for other in usual if other & rows]}"
            for partition, rows in _by_partition(seen).items()
            if rows not in usual
        ]
    return strange


def evidence(client: MetastoreClient, database: str, tables: Collection[str]) -> Iterator[str]:
    """Yield the state of tables in a metastore and its directories, for the message of a failure."""
    open_txns: Any = client.call("get_open_txns_info")
    yield f"{database}: transactions not committed {open_txns.open_txns}"
    for table in client.get_tables(database, sorted(tables)):
        name = f"{database}.{table.tableName}"
        yield f"{name}: {client.get_valid_write_ids([name])[name]}"
        yield f"{name}: id {table.id}, write id {table.writeId}, {table.parameters}"
        place = Path(urlsplit(str(table.sd.location)).path)
        for path in sorted(place.rglob("*")):
            if path.is_file():
                yield f"  {path.relative_to(place.parent)} {path.stat().st_size}"


def _differences(source: Seen, target: Seen) -> Iterator[str]:
    if source.rows != target.rows:
        missing = sorted(set(source.rows) - set(target.rows), key=repr)
        more = sorted(set(target.rows) - set(source.rows), key=repr)
        yield f"{len(target.rows)} rows for {len(source.rows)}; missing {missing[:5]}; too many {more[:5]}"
    if source.created != target.created:
        yield f"{sorted(set(source.created) ^ set(target.created))}"
    for name in sorted(source.partitions.keys() | target.partitions.keys()):
        ours, other = source.partitions.get(name), target.partitions.get(name)
        if ours != other:
            yield f"partition {name}: {ours} became {other}"


def _by_partition(seen: Seen) -> dict[str, frozenset[Any]]:
    """Group rows by their partitions, without the nulls of columns that may have been added."""
    partitions: dict[str, set[Any]] = {} if seen.keys else {"": set()}
    for row in seen.rows:
        values = list(row[: len(row) - seen.keys])
        while values and values[-1] is None:
            values.pop()
        partitions.setdefault("/".join(map(str, row[len(row) - seen.keys :])), set()).add(tuple(values))
    return {partition: frozenset(rows) for partition, rows in partitions.items()}


def _seen(client: MetastoreClient, sql: Sql, table: Any, created: Created) -> Seen:
    name, kind = f"{table.dbName}.{table.tableName}", table_kind(table)
    columns = "ROW__ID, *" if kind is TableKind.FULL_ACID else "*"
    rows = tuple(sorted(sql.execute(f"SELECT {columns} FROM {name}"), key=repr))
    return Seen(
        rows=rows,
        created=tuple(created(sql, table)),
        partitions=_partitions(client, table) if table.partitionKeys and kind.has_files else {},
        transactional=kind.transactional,
        keys=len(table.partitionKeys or ()),
    )


def _claims_accuracy(client: MetastoreClient, table: Any) -> bool:
    partitions = client.iter_partitions(table.dbName, table.tableName) if table.partitionKeys else ()
    described: list[Any] = [table, *partitions]
    return any("COLUMN_STATS_ACCURATE" in (table.parameters or {}) for table in described)


def _without_database(text: str, table: Any) -> str:
    return re.sub(rf"`{table.dbName}`|\b{table.dbName}\.", "DATABASE.", text)


def _partitions(client: MetastoreClient, table: Any) -> dict[str, Any]:
    partitions: dict[str, Any] = {}
    for partition in client.iter_partitions(table.dbName, table.tableName):
        essence = {key: value for key, value in definition(partition).items() if key not in _ELSEWHERE}
        wire: Any = partition
        partitions[name_of(table, wire)] = {**essence, "values": to_json(wire)["values"]}
    return partitions


_ELSEWHERE = {"dbName", "storage.location"}
