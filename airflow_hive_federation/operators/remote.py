"""Creates, refreshes, describes and drops remote tables and databases, in Airflow tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.compat import AirflowNotFoundException
from airflow_hive_federation.hooks.error_translation import as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import RemotesLink
from airflow_hive_federation.hooks.remotes import remotes_of
from airflow_hive_federation.operators.lineage import (
    REFRESHED,
    Lineage,
    LineageOperator,
    TableDataset,
    announce,
    behind,
    datasets,
    run_key,
)
from airflow_hive_federation.operators.remote_state import RemoteStatePublished
from airflow_hive_federation.operators.results import ResultOperator
from airflow_hive_federation.runtime.arguments import choice, flag, mapping

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.remotes.describe import Answer, Answers
    from airflow_hive_federation.remotes.positions import Try
    from airflow_hive_federation.remotes.reports import DropReport, RefreshReport
    from airflow_hive_federation.remotes.statement import Kind

KindName = Literal["table", "database"]


class _RemoteOperator(ResultOperator):
    """Base of the operators of remotes.

    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of tables whose names contain none. (templated)
    """

    template_fields: Sequence[str] = ("metastore_conn_id", "database")
    ui_color = "#dde8f4"
    operator_extra_links = (RemotesLink(),)

    def __init__(
        self,
        *,
        metastore_conn_id: str = HiveMetastoreHook.default_conn_name,
        database: str = "default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.metastore_conn_id = metastore_conn_id
        self.database = database

    def _state(self, context: Context, remote: str, kind: str) -> RemoteStatePublished:
        return RemoteStatePublished(
            metastore=self.metastore_conn_id,
            remote=remote,
            kind=kind,
            database=self.database,
            context=context,
            log=self.log,
        )

    def _name_left_out(self, report: RefreshReport) -> None:
        for name, reason in report.skipped.items():
            self.log.warning("%s is left out: %s", name, reason)


class _CreateRemoteOperator(_RemoteOperator):
    template_fields: Sequence[str] = (
        *_RemoteOperator.template_fields,
        "remote",
        "connected_to",
        "via",
        "properties",
    )
    kind: KindName = "table"

    def __init__(
        self,
        *,
        remote: str,
        connected_to: str | None = None,
        via: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.remote = remote
        self.connected_to = connected_to
        self.via = via
        self.properties = properties
        self.if_not_exists = flag("if_not_exists", if_not_exists)

    def perform(self, context: Context) -> RefreshReport:
        from airflow_hive_federation.remotes.statement import CreateRemote, Kind, parse_name

        kind = Kind(self.kind)
        with as_airflow_error():
            properties = {} if self.properties is None else mapping("properties", self.properties)
        with (
            self._state(context, self.remote, self.kind) as state,
            as_airflow_error(),
            remotes_of(self.metastore_conn_id, database=self.database) as remotes,
        ):
            report = remotes.create(
                CreateRemote(
                    kind=kind,
                    name=parse_name(kind, self.remote),
                    if_not_exists=self.if_not_exists,
                    connected_to=parse_name(kind, self.connected_to) if self.connected_to else None,
                    via=self.via,
                    properties=properties,
                )
            )
            state.refreshed(remotes, report)
        self.log.info("Remote %s %s at event %d.", kind, report.remote, report.event_id)
        self._name_left_out(report)
        return report


class CreateRemoteTableOperator(_CreateRemoteOperator):
    """Links a table of another metastore or catalog into the local metastore (``CREATE REMOTE TABLE``).

    Returns ``{"remote", "event_id", "whole", "created", "altered", "dropped", "gone", "skipped",
    "with_partitions", "named", "partitions_added", "partitions_altered", "partitions_dropped"}``; ``named``
    holds the linked tables that the events of a refresh name.

    :param remote: the local name, ``[database.]table``. (templated)
    :param connected_to: the name at the remote; by default the local name. (templated)
    :param via: the class or short name of the factory; by default ``thrift``. (templated)
    :param properties: the properties of the factory. A property names the Airflow connection that holds the
        secrets. (templated)
    :param if_not_exists: leave an existing remote of that name as it is, and complete one that is incomplete.
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of tables whose names contain none. (templated)
    """

    kind: KindName = "table"


class CreateRemoteDatabaseOperator(_CreateRemoteOperator):
    """Links a database of another metastore or catalog, with all its tables, into the local metastore.

    Returns the same report as :class:`CreateRemoteTableOperator`.

    :param remote: the local name. (templated)
    :param connected_to: the name at the remote; by default the local name. (templated)
    :param via: the class or short name of the factory; by default ``thrift``. (templated)
    :param properties: the properties of the factory. A property names the Airflow connection that holds the
        secrets. (templated)
    :param if_not_exists: leave an existing remote of that name as it is, and complete one that is incomplete.
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of tables whose names contain none. (templated)
    """

    kind: KindName = "database"


class DropRemoteOperator(_RemoteOperator):
    """Drops a remote; the remote's data and definitions stay. Returns ``{"remote", "existed"}``.

    :param remote: the local name. (templated)
    :param kind: ``table`` or ``database``. (templated)
    :param if_exists: do nothing if the remote does not exist.
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of tables whose names contain none. (templated)
    """

    template_fields: Sequence[str] = (*_RemoteOperator.template_fields, "remote", "kind")

    def __init__(
        self, *, remote: str, kind: KindName = "table", if_exists: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.remote = remote
        self.kind = kind
        self.if_exists = flag("if_exists", if_exists)

    def perform(self, context: Context) -> DropReport:
        from airflow_hive_federation.remotes.reports import DropReport
        from airflow_hive_federation.remotes.statement import parse_name

        kind = _kind(self.kind)
        with (
            self._state(context, self.remote, kind) as state,
            as_airflow_error(),
            remotes_of(self.metastore_conn_id, database=self.database) as remotes,
        ):
            existed = remotes.drop(kind, parse_name(kind, self.remote), if_exists=self.if_exists)
            if existed:
                state.dropped()
        return DropReport(remote=self.remote, existed=existed)


class RefreshRemoteOperator(LineageOperator, _RemoteOperator):
    """Refreshes a remote: the tables that its events name, or all tables if it has no events.

    Tables whose definition or partitions changed update their assets, ``hive://host:port/database/table`` of
    the local metastore, with ``event_id`` and ``remote`` in the event's extra. So do all linked tables that
    the events since the first try name: an earlier try may have applied their changes, and Airflow updates no
    asset for a task that fails. If all tables are compared, those update their assets that the task has
    changed, and all linked ones if it is tried again. Returns the same report as
    :class:`CreateRemoteTableOperator`.

    :param remote: the local name. (templated)
    :param kind: ``table`` or ``database``. (templated)
    :param on_dropped: the treatment of links whose table is gone: ``drop``, ``keep`` or ``fail``. By default,
        such tables of a remote database are dropped, and such a remote table fails the task.
    :param whole: compare all tables, even if events name the changes.
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of tables whose names contain none. (templated)
    """

    template_fields: Sequence[str] = (*_RemoteOperator.template_fields, "remote", "kind")

    def __init__(
        self,
        *,
        remote: str,
        kind: KindName = "database",
        on_dropped: Literal["drop", "keep", "fail"] | None = None,
        whole: bool = False,
        outlets: Sequence[object] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(outlets=[*(outlets or ()), REFRESHED], **kwargs)
        self.remote = remote
        self.kind = kind
        self.on_dropped = on_dropped
        self.whole = flag("whole", whole)

    def perform(self, context: Context) -> RefreshReport:
        from airflow_hive_federation.remotes.refresh import OnDropped
        from airflow_hive_federation.remotes.statement import parse_name

        kind = _kind(self.kind)
        with as_airflow_error():
            on_dropped = None if self.on_dropped is None else choice("on_dropped", self.on_dropped, OnDropped)
            settings = HiveMetastoreHook(self.metastore_conn_id).settings
        read: list[TableDataset] = []
        with (
            self._state(context, self.remote, kind) as state,
            as_airflow_error(),
            remotes_of(self.metastore_conn_id, database=self.database) as remotes,
        ):
            remotes.tried = _try(context)
            report = remotes.refresh(
                kind,
                parse_name(kind, self.remote),
                on_dropped=on_dropped,
                whole=self.whole,
            )
            # The tables are refreshed: from here on, nothing but a kill may fail the task.
            names = sorted({*report.created, *report.altered, *report.with_partitions, *report.named})
            changed = datasets(settings, report.remote.partition(".")[0], names)
            announce(context, REFRESHED, changed, {"event_id": report.event_id, "remote": report.remote})
            state.refreshed(remotes, report)
            if names:
                with self._optional_lineage():
                    read = behind(remotes.open(kind, parse_name(kind, self.remote)), names)
        self._name_left_out(report)
        self.lineage = Lineage(inputs=read, outputs=changed)
        return report

    @contextmanager
    def _optional_lineage(self) -> Iterator[None]:
        """Let the task go on if the tables behind the links cannot be found out."""
        try:
            yield
        except (HiveFederationError, AirflowNotFoundException) as error:
            self.log.warning("The lineage of this task lacks the tables of the remote. %s", error)


def _try(context: Context) -> Try | None:
    """Return the present try of a task's run; ``None`` outside Airflow."""
    from airflow_hive_federation.remotes.positions import Try

    key = run_key(context)
    return Try(key=key, number=context["ti"].try_number) if key else None


def _kind(kind: str) -> Kind:
    """Return the kind of a remote from an operator's argument.

    :raises AirflowFailException: there is no such kind.
    """
    from airflow_hive_federation.remotes.statement import Kind

    with as_airflow_error():
        return choice("kind", kind, Kind)


class DescribeRemoteOperator(_RemoteOperator):
    """Describes a remote. Returns ``{"columns", "rows"}``, where each row is a list.

    :param remote: the local name. (templated)
    :param kind: ``table`` or ``database``. (templated)
    :param extended: add location, formats and parameters.
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of tables whose names contain none. (templated)
    """

    template_fields: Sequence[str] = (*_RemoteOperator.template_fields, "remote", "kind")

    def __init__(
        self, *, remote: str, kind: KindName = "table", extended: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.remote = remote
        self.kind = kind
        self.extended = flag("extended", extended)

    def perform(self, context: Context) -> Answer:
        from airflow_hive_federation.remotes.statement import parse_name

        kind = _kind(self.kind)
        with as_airflow_error(), remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            return remotes.describe(kind, parse_name(kind, self.remote), extended=self.extended)


class RemoteSqlOperator(_RemoteOperator):
    """Runs statements of remotes (``CREATE REMOTE TABLE …``, ``SHOW REMOTES``), separated by semicolons.

    All statements are parsed before the first one runs; the first failure ends the run. Returns
    ``{"answers"}``, one per statement, each with ``columns`` and ``rows``.

    :param sql: the statements, or the name of a file that holds them. (templated)
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of tables whose names contain none. (templated)
    """

    template_fields: Sequence[str] = (*_RemoteOperator.template_fields, "sql")
    template_ext: Sequence[str] = (".sql", ".hql")
    template_fields_renderers = {"sql": "sql"}

    def __init__(self, *, sql: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sql = sql

    def perform(self, context: Context) -> Answers:
        from airflow_hive_federation.remotes.describe import Answers

        with as_airflow_error(), remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            answers = remotes.run(self.sql)
        for answer in answers:
            for row in answer.rows:
                self.log.info("%s", "\t".join(row))
        return Answers(answers=answers)
