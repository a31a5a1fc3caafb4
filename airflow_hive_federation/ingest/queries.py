"""Ingests the rows of a database query exactly once, in the order of their key, from the last run's position.

The key (``order_by``) has a contract, which a run checks as far as it can:

- no row has null in its key, and no two rows have the same key;
- new rows have a greater key than all earlier rows;
- the database returns, compares and accepts the key's values exactly: whole numbers, decimals, dates,
  timestamps of microseconds, or texts in the order of their code points.

So ``WHERE key > last ORDER BY key`` returns each row in exactly one run.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.dead_letters import BadRecords, DeadLetterFile
from airflow_hive_federation.ingest.errors import InvalidSource, SourceError
from airflow_hive_federation.ingest.formats.arrow_records import ArrowRecordWriter
from airflow_hive_federation.ingest.formats.not_null import without_nulls
from airflow_hive_federation.ingest.formats.sql_rows import Row, row_text, rows_parsed
from airflow_hive_federation.ingest.formats.writers import check_names
from airflow_hive_federation.ingest.runs import IngestReport, IngestRun, IngestTarget, Stopped
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.model import bounded_json, json_values
from airflow_hive_federation.model.json_values import Fields, list_of, pair_of
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.runtime.arguments import texts
from airflow_hive_federation.storage.options import StorageOptions

_FIRST_FETCH_ROWS, _MOST_FETCH_ROWS = 100, 10_000
# This limits the buffered part of the result; its rows need several times as much memory on their way.
_FETCH_BYTES = 8 << 20
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*\Z")
_TABLE = re.compile(r"[^\s();]+\Z")


@dataclass(frozen=True, kw_only=True)
class QueryRequest(IngestTarget):
    """A request to ingest the rows of a query into a table.

    :param sql: a query, or the name of a table of the database.
    :param order_by: columns of the result that form the key; see the contract above. Key columns that the
        Hive table does not have are read and not written.
    """

    sql: str
    order_by: Sequence[str]
    name: str = "query"


@dataclass(frozen=True, kw_only=True)
class KeyPosition:
    """A position in the rows of a query: the key of the last row that was read."""

    columns: tuple[str, ...]
    values: tuple[Any, ...]

    def to_text(self) -> str:
        """Return the position as the value of a table parameter."""
        values = [[_kind(value), str(value)] for value in self.values]
        return json.dumps({"order_by": self.columns, "values": values}, ensure_ascii=False)

    @classmethod
    def of(cls, text: str | None, columns: Sequence[str]) -> KeyPosition | None:
        """Parse a position that :meth:`to_text` wrote.

        :raises ConfigurationError: the text is not a position of rows with these key columns.
        """
        if not text:
            return None
        try:
            fields = Fields(bounded_json.loads(text))
            kinds_and_values = fields.needed("values", list_of(pair_of(json_values.text, json_values.text)))
            key = cls(
                columns=fields.needed("order_by", list_of(json_values.text)),
                values=tuple(_KEY_KINDS[kind](value) for kind, value in kinds_and_values),
            )
        except (ValueError, LookupError, TypeError, ArithmeticError) as error:
            raise ConfigurationError(
                f"The committed position is none of a query: {text!r}.", remedy="Use another name."
            ) from error
        if key.columns != tuple(columns):
            raise ConfigurationError(
                f"The committed position is one of {', '.join(key.columns)}, not of {', '.join(columns)}.",
                remedy="Order by the same columns, or use another name.",
            )
        return key


def ingest_query(
    settings: MetastoreSettings,
    request: QueryRequest,
    connect: Callable[[], Any],
    *,
    placeholder: str = "?",
    storage_options: StorageOptions | None = None,
    stopped: Stopped = lambda: False,
    on_columns: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> IngestReport:
    """Ingest the rows that no earlier run of the same name has ingested.

    :param connect: makes a connection to the database (PEP 249). The result is fetched in batches. PostgreSQL
        and MySQL, whose default cursors buffer the whole result, use cursors of the server.
    :param placeholder: placeholder of a parameter in this database's SQL.
    :param stopped: returns true once the run is to end; its open transaction is aborted then.
    :param on_columns: is called with the columns that are written, each with its name in the result.
    :raises ConfigurationError: the request contradicts itself or lacks a setting.
    :raises InvalidSource: the result breaks the contract of the key.
    :raises InvalidColumn: the columns of the result are not the table's.
    :raises SourceError: the database refuses the query or has disconnected.
    :raises StreamingException: see :mod:`~airflow_hive_federation.ingest.errors`. Committed records
        stay; the next run continues after them.
    """
    _check(request)
    began = time.monotonic()
    builder = request.connection(settings, ArrowRecordWriter(), storage_options)
    letters = None
    if request.dead_letters is not None:
        letters = DeadLetterFile(request.dead_letters, storage_options)
        # The connection flushes the file of dead letters before each commit.
        builder = builder.with_dead_letters(letters)
    bad = BadRecords(letters, request.dead_letter_limit)
    with builder.connect() as connection:
        position = KeyPosition.of(connection.committed_position, request.order_by)
        rows = _Rows(IngestRun(connection, request, stopped=stopped), connection, request, bad, position)
        query, parameters = keyset_query(request.sql, request.order_by, position, placeholder)
        with closing(connect()) as database, _database_errors(database, query):
            fetched = _fetched(
                database, query, parameters, request, connection.record_columns, on_columns=on_columns
            )
            # It closes its cursor even if an error's traceback keeps it: the database may wait for that.
            with closing(fetched):
                for names, batch in fetched:
                    rows.write(names, batch)
        rows.run.finish()
        return rows.run.report(began, dead_letters=bad.count)


def keyset_query(
    sql: str, order_by: Sequence[str], position: KeyPosition | None, placeholder: str
) -> tuple[str, list[Any]]:
    """Return the query for the rows after a position, and its parameters.

    The query also selects rows with a null in their key, so that the run can refuse them.
    """
    inner = sql.strip().rstrip(";").strip()
    source = inner if _TABLE.match(inner) else f"({inner}) ingested"
    order = ", ".join(order_by)
    if position is None:
        return f"SELECT * FROM {source} ORDER BY {order}", []  # noqa: S608 - the caller's own query
    if "%" in placeholder:
        # Drivers with such placeholders format the statement if it has parameters.
        source = source.replace("%", "%%")
    conditions: list[str] = []
    parameters: list[object] = []
    for place, column in enumerate(order_by):
        equal = [f"{name} = {placeholder} AND " for name in order_by[:place]]
        conditions.append(f"{''.join(equal)}{column} > {placeholder}")
        parameters += position.values[: place + 1]
    conditions += [f"{column} IS NULL" for column in order_by]
    where = " OR ".join(f"({condition})" for condition in conditions)
    return f"SELECT * FROM {source} WHERE {where} ORDER BY {order}", parameters  # noqa: S608


def checked_key(values: Row, last: KeyPosition | None, columns: Sequence[str]) -> KeyPosition:
    """Check a row's key and return it.

    :raises InvalidSource: the key breaks the contract: it has a null or a value of an inexact type, or it is
        not greater than the last key.
    """
    key = KeyPosition(columns=tuple(columns), values=tuple(values))
    for column, value in zip(columns, key.values, strict=True):
        if value is None:
            raise InvalidSource(
                f"A row has null in {column}, by which rows are ordered.",
                remedy="Order by columns without nulls, or leave such rows out of the query.",
            )
        if _kind(value) not in _KEY_KINDS:
            raise InvalidSource(
                f"{column} is {value!r} ({type(value).__name__}), by which rows are not ordered.",
                remedy="Order by whole numbers, decimals, dates, timestamps or texts.",
            )
    try:
        is_greater = last is None or key.values > last.values
    except TypeError as error:
        raise InvalidSource(
            f"{', '.join(columns)}: {error}.", remedy="Order by columns whose values are of one type."
        ) from error
    if not is_greater:
        raise InvalidSource(
            f"{', '.join(columns)}: {_shown(key)} comes after {_shown(last)}, and is not greater.",
            remedy="Order by a unique key that only grows; texts in the order of their code points "
            "(COLLATE), timestamps without fractions of a microsecond.",
        )
    return key


class _Rows:
    """A writer of rows that keeps the key of the last row.

    :param last: the key after which the run continues.
    """

    def __init__(
        self,
        run: IngestRun,
        connection: HiveStreamingConnection,
        request: QueryRequest,
        bad: BadRecords,
        last: KeyPosition | None,
    ) -> None:
        self._request, self._bad, self._last = request, bad, last
        self._columns, self._not_null = connection.record_columns, connection.layout.not_null
        self.run = run

    def write(self, names: Sequence[str], rows: Sequence[Row]) -> None:
        """Write rows, and commit if the run is due for a commit.

        :param names: names of the result's columns, in lower case.
        """
        places = {name: place for place, name in enumerate(names)}
        order_by = self._request.order_by
        keys = [places[column.lower()] for column in order_by]
        first, *others = ([row[place] for place in keys] for row in rows)
        last = checked_key(first, self._last, order_by)
        for key in others:
            last = checked_key(key, last, order_by)
        self._last = last
        parsed = rows_parsed(rows, [places[column.name] for column in self._columns], self._columns)
        parsed = without_nulls(parsed, self._not_null, len(rows))
        self.run.begin()
        texts = {record.index: row_text(names, rows[record.index]) for record in parsed.bad}
        self._bad.deal_with(texts, parsed.bad, self.run.pending)
        self.run.write(parsed.rows, last.to_text(), count=len(rows))
        if self.run.is_due():
            self.run.commit()


def _check(request: QueryRequest) -> None:
    request.check()
    if not request.sql.strip():
        raise ConfigurationError(
            "There is nothing to ingest.", remedy="Give a query, or the name of a table."
        )
    keys = texts("order_by", request.order_by)
    if not keys:
        raise ConfigurationError(
            "A query needs columns by which its rows are ordered.", remedy="List a unique key in order_by."
        )
    for column in keys:
        if not _IDENTIFIER.match(column):
            raise ConfigurationError(
                f"{column!r} in order_by is not the name of a column.",
                remedy="Give it a plain name in the query (AS).",
            )


def _fetched(
    database: object,
    query: str,
    parameters: Sequence[object],
    request: QueryRequest,
    columns: Sequence[Column],
    *,
    on_columns: Callable[[Mapping[str, str]], None],
) -> Generator[tuple[Sequence[str], Sequence[Row]]]:
    """Run the query and yield its rows in batches, with the lower-case names of its columns."""
    names: list[str] | None = None
    with closing(_cursor(database)) as cursor:
        cursor.execute(query, tuple(parameters)) if parameters else cursor.execute(query)
        size = _FIRST_FETCH_ROWS
        while True:
            rows = cursor.fetchmany(min(size, request.commit_records))
            # Server cursors of PostgreSQL have a description only after the first fetch.
            if names is None and cursor.description:
                spelled = {str(column[0]).lower(): str(column[0]) for column in cursor.description}
                names = [str(column[0]).lower() for column in cursor.description]
                _check_columns(names, request.order_by, columns)
                on_columns({column.name: spelled[column.name] for column in columns})
            if not rows or names is None:
                return
            yield names, rows
            size = _next_fetch_rows(rows)


def _next_fetch_rows(rows: Sequence[Row]) -> int:
    """Return the number of rows of this size that fit into the buffer."""
    values = (value for row in rows for value in row)
    held = sum(len(value) for value in values if isinstance(value, str | bytes | memoryview))
    return max(1, min(_MOST_FETCH_ROWS, _FETCH_BYTES * len(rows) // max(held, 1)))


def _check_columns(names: Sequence[str], order_by: Sequence[str], columns: Sequence[Column]) -> None:
    wanted, keys = {column.name for column in columns}, {column.lower() for column in order_by}
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates or not keys <= set(names):
        raise InvalidSource(
            f"The answer has {', '.join(duplicates)} twice."
            if duplicates
            else f"The answer lacks {', '.join(sorted(keys - set(names)))}, by which it is to be ordered.",
            remedy="Name the columns in the query (AS).",
        )
    if set(names) | keys != wanted | keys:
        check_names([name for name in names if name in wanted or name not in keys], columns)


def _cursor(database: Any) -> Any:
    """Make a cursor that does not fetch the whole result at once."""
    driver = _driver(database)
    if driver in {"psycopg", "psycopg2"}:
        return database.cursor(name="hive_ingest")
    if driver in {"MySQLdb", "pymysql"}:
        return database.cursor(importlib.import_module(f"{driver}.cursors").SSCursor)
    return database.cursor()


@contextmanager
def _database_errors(database: object, query: str) -> Iterator[None]:
    """Translate the errors of the database's driver, whose base class differs per driver."""
    base = getattr(database, "Error", None) or getattr(sys.modules.get(_driver(database)), "Error", None)
    errors: tuple[type[Exception], ...] = (base,) if base else ()
    try:
        yield
    except errors as error:
        raise SourceError(
            f"{type(error).__name__}: {error} (query: {query})",
            remedy="Check the query and its database. A run begins at the position that the table holds.",
        ) from error


def _driver(database: object) -> str:
    return type(database).__module__.partition(".")[0]


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "")


def _shown(key: KeyPosition | None) -> str:
    return "nothing" if key is None else ", ".join(str(value) for value in key.values)


_KINDS = {int: "int", Decimal: "decimal", datetime: "timestamp", date: "date", str: "text"}
_KEY_KINDS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "decimal": Decimal,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "text": str,
}
