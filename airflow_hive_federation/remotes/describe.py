"""Formats the results of DESCRIBE and SHOW, without any I/O: first the description, then the link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_hive_federation.catalog.factories import shown_properties
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.quantities import several
from airflow_hive_federation.remotes.links import NO_EVENT, THRIFT, DamagedLink, Link
from airflow_hive_federation.remotes.reports import RefreshReport
from airflow_hive_federation.remotes.statement import Kind

Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a statement: rows under column names, as a SQL shell shows them."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The results of several statements, in their order."""

    answers: Sequence[Answer]


#: The tables that a message names.
_NAMED = 10
_DESCRIBED = ("col_name", "data_type", "comment")


def describe_table(table: types.Table, link: Link, owner: Link, *, extended: bool, down: str = "") -> Answer:
    """Describe a remote table.

    :param table: wire ``Table``: the remote's own, or the local one while the remote is down.
    :param link: link of the table.
    :param owner: the link that has factory and properties: the table's own, or its database's.
    :param extended: location, formats and parameters are described too.
    :param down: reason why the remote does not answer; empty if it answered.
    """
    rows: list[Row] = [_column(column) for column in table.sd.cols or []]
    if table.partitionKeys:
        rows += [_title("Partition Information"), *(_column(key) for key in table.partitionKeys)]
    if extended:
        rows += [_title("Detailed Table Information"), *_details(table)]
    rows += _remote_rows(link, owner, down)
    return Answer(columns=_DESCRIBED, rows=tuple(rows))


def describe_database(
    database: types.Database,
    link: Link,
    *,
    extended: bool,
    down: str = "",
    left_out: Mapping[str, str] | None = None,
    guarded: Sequence[str] = (),
) -> Answer:
    """Describe a remote database, with the parameters of :func:`describe_table`.

    :param left_out: tables and views of the remote that are not linked, each with the reason.
    :param guarded: transactional tables, which ordinary engines cannot read.
    """
    rows: list[Row] = [
        ("Database:", str(database.name), ""),
        ("Comment:", database.description or "", ""),
        ("Location:", database.locationUri or "", ""),
        ("Owner:", database.ownerName or "", ""),
    ]
    if extended:
        rows += _parameters(database.parameters)
    rows += _remote_rows(link, link, down)
    if guarded:
        rows += [_title("Read by read_remote_table Only"), *((name, "", "transactional") for name in guarded)]
    if left_out:
        rows += [_title("Left Out"), *((name, "", reason) for name, reason in sorted(left_out.items()))]
    return Answer(columns=_DESCRIBED, rows=tuple(rows))


def show_remotes(links: Iterable[Link | DamagedLink]) -> Answer:
    """List remotes; a link that cannot be read has its error for a state."""
    rows = [_listed(link) for link in links]
    return Answer(columns=("kind", "name", "connected_to", "via", "state"), rows=tuple(sorted(rows)))


def _listed(link: Link | DamagedLink) -> Row:
    if isinstance(link, DamagedLink):
        return (link.kind.value, str(link.local), "", "", str(link.error))
    return (
        link.kind.value,
        str(link.local),
        str(link.remote),
        "" if link.member else link.via or THRIFT,
        "of the remote database" if link.member else _state(link),
    )


def show_create(link: Link) -> Answer:
    """Return the statement that creates a remote, with its secrets hidden."""
    return Answer(
        columns=("createremote_stmt",), rows=((link.statement(shown_properties(link.properties)),),)
    )


def message(text: str) -> Answer:
    """Return a result of one line."""
    return Answer(columns=("result",), rows=((text,),))


def created(kind: Kind, report: RefreshReport, guarded: Sequence[str] = ()) -> Answer:
    """Return the result of ``CREATE REMOTE``.

    :param guarded: transactional tables of a database, which ordinary engines cannot read.
    """
    if not report.changed and kind is Kind.TABLE:
        return message(f"Remote table {report.remote} exists.")
    tables = "" if kind is Kind.TABLE else f" with {several(len(report.created), 'table')}"
    text = f"Remote {kind} {report.remote} created{tables}."
    if guarded:
        names = ", ".join(guarded[:_NAMED])
        more = f" and {len(guarded) - _NAMED:,} more" if len(guarded) > _NAMED else ""
        text += f" Transactional, read by read_remote_table only: {names}{more}."
    return message(f"{text}{_skipped(report)}")


def refreshed(report: RefreshReport) -> Answer:
    """Return the result of a refresh."""
    counts = (
        f"{len(report.created)} created, {len(report.altered)} altered, {len(report.dropped)} dropped; "
        f"partitions: {report.partitions_added} added, {report.partitions_altered} altered, "
        f"{report.partitions_dropped} dropped"
    )
    return message(f"Remote {report.remote} refreshed: tables: {counts}.{_skipped(report)}")


def _skipped(report: RefreshReport) -> str:
    if not report.skipped:
        return ""
    tables = "; ".join(f"{name} ({reason.rstrip('.')})" for name, reason in sorted(report.skipped.items()))
    return f" Left out: {tables}."


def _remote_rows(link: Link, owner: Link, down: str) -> list[Row]:
    rows = [
        _title("Remote Information"),
        ("Connected To:", str(link.remote), ""),
        ("Via:", owner.via or THRIFT, ""),
        *((f"  {name}", value, "") for name, value in sorted(shown_properties(owner.properties).items())),
        ("State:", _state(owner), ""),
    ]
    if down:
        rows.append(("Remote Is Down:", f"shown as of the last refresh; {down}", ""))
    return rows


def _state(link: Link) -> str:
    if link.event_id is None:
        return "not complete: continue it with REFRESH REMOTE"
    return "no events" if link.event_id == NO_EVENT else f"event {link.event_id}"


def _details(table: types.Table) -> Sequence[Row]:
    sd = table.sd
    return [
        ("Location:", sd.location or "", ""),
        ("Table Type:", table.tableType or "", ""),
        ("Owner:", table.owner or "", ""),
        ("InputFormat:", sd.inputFormat or "", ""),
        ("OutputFormat:", sd.outputFormat or "", ""),
        ("SerDe Library:", (sd.serdeInfo and sd.serdeInfo.serializationLib) or "", ""),
        *_parameters(table.parameters),
    ]


def _parameters(parameters: Mapping[str, str] | None) -> list[Row]:
    shown = shown_properties(parameters or {})
    own = "hive.federation.remote."
    return [(f"  {name}", value, "") for name, value in sorted(shown.items()) if not name.startswith(own)]


def _column(column: types.FieldSchema) -> Row:
    return (column.name or "", column.type or "", column.comment or "")


def _title(text: str) -> Row:
    return (f"# {text}", "", "")
