"""Defines the records of routed statements, from which the history for the advice on copies is made. Pure.

A record names the tables and partitions that a statement read, and the clusters that could run it. It
contains no literal of the statement: strings and numbers are replaced, and comments are omitted.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime

from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.routing.decision import Decision, InputUse
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.statement import Statement, UnreadableError
from airflow_hive_federation.clusters.statements.tokens import tokens_of
from airflow_hive_federation.model import bounded_json, json_values
from airflow_hive_federation.model.json_values import Fields, count, items, list_of, or_none

FORMAT = 1
#: The number of characters of a template that are kept; the digests of longer templates differ.
MAX_TEMPLATE = 1000
#: The largest number of tables in a record; a statement that reads more has no record.
MAX_TABLES = 200
_TEXTS = list_of(json_values.text)
_LITERALS = frozenset(
    {
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.NATIONAL_STRING,
        TokenType.RAW_STRING,
        TokenType.HEX_STRING,
        TokenType.BIT_STRING,
        TokenType.BYTE_STRING,
        TokenType.HEREDOC_STRING,
        TokenType.UNICODE_STRING,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRead:
    """The part of a table that a statement read.

    :param table: ``database.table``.
    :param bytes: the size of the part; ``None`` if it was unknown.
    :param partitions: the number of partitions; ``None`` if the table has none.
    :param values: the values of all these partitions; empty if there were too many.
    :param spans: each partition key, with its least and greatest value.
    """

    table: str
    bytes: int | None = None
    partitions: int | None = None
    values: tuple[tuple[str, ...], ...] = ()
    spans: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StatementRecord:
    """A statement that was routed or refused.

    :param template: the statement without literals and comments, cut to :data:`MAX_TEMPLATE` characters.
    :param digest: the digest of the whole template.
    :param time: the time of the routing, in UTC.
    :param day: the day of ``current_date`` in the statement.
    :param run: the run that the statement belongs to; a retry has the run of the first try.
    :param source: the task, or the program.
    :param cluster: the cluster that ran the statement; ``None`` if it was refused.
    :param candidates: the clusters that could run it with copies of all the data that it reads.
    """

    template: str
    digest: str
    time: datetime
    day: date
    run: str
    source: str
    cluster: str | None
    candidates: tuple[str, ...]
    reads: tuple[TableRead, ...]

    def to_json(self) -> dict[str, object]:
        """Return the record as JSON values."""
        return {
            **asdict(self),
            "format": FORMAT,
            "time": self.time.astimezone(UTC).isoformat(timespec="seconds"),
            "day": self.day.isoformat(),
        }


def template_of(text: str) -> str:
    """Return the statement with ``?`` for each literal or list of literals, without layout, comments, case.

    :raises UnreadableError: the statement has no tokens.
    """
    parts: list[str] = []
    for token in tokens_of(text):
        if token.token_type is TokenType.SEMICOLON:
            continue
        if token.token_type not in _LITERALS:
            quoted = token.token_type is TokenType.IDENTIFIER
            parts.append(f"`{token.text}`" if quoted else token.text.lower())
        elif parts[-2:] == ["?", ","]:
            # Lists of literals differ in length between two runs, so a list becomes one ``?``.
            parts.pop()
        elif parts[-1:] != ["?"]:
            parts.append("?")
    return " ".join(parts)


def record_of(
    text: str,
    session: Session,
    decision: Decision,
    *,
    time: datetime,
    day: date,
    run: str,
    source: str,
) -> StatementRecord | None:
    """Return the record of a statement; ``None`` if it reads no table that can be copied.

    :param text: the statement as the user wrote it.
    """
    if not isinstance(analyse(text), Statement):
        return None
    inputs = [use for use in decision.inputs if use.groups and use.unplaced == ""]
    # A temporary table belongs to its session, so a copy of it is useless.
    permanent = [use for use in inputs if not _is_temporary(use, session)]
    if not permanent or len(permanent) > MAX_TABLES:
        return None
    try:
        template = template_of(text)
    except UnreadableError:
        return None
    return StatementRecord(
        template=template[:MAX_TEMPLATE],
        digest=hashlib.sha256(template.encode("utf-8", "surrogateescape")).hexdigest()[:16],
        time=time.astimezone(UTC).replace(microsecond=0),
        day=day,
        run=run,
        source=source,
        cluster=decision.cluster,
        candidates=_candidates(decision),
        reads=tuple(_table_read(use, session) for use in permanent),
    )


def record_from_json(line: str | bytes) -> StatementRecord:
    """Read a record from a JSON line.

    :raises ValueError: the line is no record, or one of a later version.
    """
    fields = Fields(bounded_json.loads(line))
    if fields.optional("format", json_values.whole, default=None) != FORMAT:
        raise ValueError("it is no record of this format")
    return StatementRecord(
        template=fields.needed("template", json_values.text),
        digest=fields.needed("digest", json_values.text),
        time=fields.needed("time", _time),
        day=date.fromisoformat(fields.needed("day", json_values.text)),
        run=fields.needed("run", json_values.text),
        source=fields.needed("source", json_values.text),
        cluster=fields.needed("cluster", or_none(json_values.text)),
        candidates=fields.needed("candidates", _TEXTS),
        reads=fields.needed("reads", list_of(_read_from_json)),
    )


def partition_day(text: str) -> date | None:
    """Return the day of a partition's value ``2026-01-31`` or ``20260131``; ``None`` for other values."""
    if len(text) not in {8, 10} or not text.replace("-", "").isdecimal() or not text.isascii():
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _is_temporary(use: InputUse, session: Session) -> bool:
    return use.table.database is None and use.table.name in session.temporary


def _candidates(decision: Decision) -> tuple[str, ...]:
    if decision.cluster is not None:
        return (decision.cluster,)
    clusters = []
    for attempt in decision.attempts:
        of_inputs = sum(len(use.problems(attempt.cluster)) for use in decision.inputs)
        # Copies do not help with outputs in other clusters, or with clusters that are not configured.
        if len(attempt.problems) == of_inputs:
            clusters.append(attempt.cluster)
    return tuple(clusters)


def _table_read(use: InputUse, session: Session) -> TableRead:
    groups = use.groups
    sizes = [group.bytes for group in groups]
    values = tuple(values_of_partition for group in groups for values_of_partition in group.values)
    partitions = None if use.total is None else sum(group.partitions or 0 for group in groups)
    spans: dict[str, tuple[str, str]] = {}
    for group in groups:
        for key, least, greatest in group.spans:
            low, high = spans.get(key, (least, greatest))
            spans[key] = min(low, least), max(high, greatest)
    return TableRead(
        table=f"{use.table.database or session.database}.{use.table.name}",
        bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        partitions=partitions,
        values=values if len(values) == partitions else (),
        spans=tuple((key, *span) for key, span in spans.items()),
    )


def _read_from_json(value: object) -> TableRead:
    fields = Fields(value)
    table = fields.needed("table", json_values.text)
    if table.count(".") != 1:
        raise ValueError(f"{table!r} is no name of a table")
    return TableRead(
        table=table,
        bytes=fields.needed("bytes", or_none(count)),
        partitions=fields.needed("partitions", or_none(count)),
        values=fields.needed("values", list_of(_TEXTS)),
        spans=fields.needed("spans", list_of(_span)),
    )


def _span(value: object) -> tuple[str, str, str]:
    key, least, greatest = map(json_values.text, items(value, 3))
    return key, least, greatest


def _time(value: object) -> datetime:
    time = datetime.fromisoformat(json_values.text(value))
    if time.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return time
