"""Brings links up to date with their remotes by applying only the changed tables and partitions.

The position of a link is the last event of the remote that it contains. A refresh reads the new position
before it reads any table, and writes it after it has applied every change. After an interruption the next
refresh begins at the old position, and finds the applied changes done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_hive_federation.catalog.hive import POOL_SIZE
from airflow_hive_federation.catalog.roles import EventSource, TableStatistics
from airflow_hive_federation.errors import (
    CyclicRemoteError,
    InvalidObjectError,
    InvalidOperationError,
    RemoteDroppedError,
    RemoteUnsupportedError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.view_text import Renaming
from airflow_hive_federation.remotes import definitions, partitions, views
from airflow_hive_federation.remotes.changes import TableChange
from airflow_hive_federation.remotes.ends import KEEP_STATISTICS, Ends, drop_link, names_of
from airflow_hive_federation.remotes.links import (
    DEFINITION,
    NO_EVENT,
    READ_BY,
    DamagedLink,
    Link,
    link_of,
    names_digest,
    path_behind,
    readable_link,
    refuse_cycle,
    refuse_location,
)
from airflow_hive_federation.remotes.positions import (
    Try,
    alter,
    changes_after,
    earlier_tries,
    publish_database,
    publish_table,
)
from airflow_hive_federation.remotes.remote_tables import (
    EVERYTHING,
    Answer,
    Found,
    Refused,
    ask,
    changed_tables,
    every_table,
    local_tables,
    name_at_the_catalog,
    remote_database,
)
from airflow_hive_federation.remotes.reports import RefreshReport
from airflow_hive_federation.remotes.statement import Kind, Name

log = logging.getLogger(__name__)

#: Half of the tables are read from the remote while the other half is written to the local metastore.
_TABLES_AT_ONCE = 2 * POOL_SIZE


class OnDropped(StrEnum):
    """The treatment of a link whose table the remote has dropped."""

    DROP = "drop"
    KEEP = "keep"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    name: str
    action: str = ""  # a list of RefreshReport, or nothing
    why_skipped: str = ""
    linked: bool = False  # the link shows the remote's present definition
    behind: bool = False  # the link lacks changes, for which a later refresh reads the same events again
    added: int = 0
    altered: int = 0
    dropped: int = 0


def refresh(
    ends: Ends,
    link: Link,
    *,
    on_dropped: OnDropped | None = None,
    whole: bool = False,
    tried: Try | None = None,
) -> RefreshReport:
    """Bring a link up to date with its remote.

    :param on_dropped: treatment of tables that the remote has dropped; by default their links in a remote
        database are dropped, and a remote table fails.
    :param whole: compare every table, even if events name the changes.
    :param tried: the try of a task's run in which the link is refreshed.
    :raises RemoteUnavailableError: if the remote does not answer; applied changes stay.
    :raises RemoteDroppedError: if the remote has dropped the table or database.
    :raises RemoteUnsupportedError: if the remote's table can no longer be linked.
    """
    with ends.breaker.guard():
        # Read before the position: if the address changes in between, the next refresh notices it.
        identity = ends.remote.identity()
        moved = link.is_of_another(identity)
        last = ends.remote.last_event_id() if isinstance(ends.remote, EventSource) else None
        position = NO_EVENT if last is None else last
        changes = None if whole or moved else changes_after(ends.remote, link, position)
    if moved:
        log.warning("%s leads to another metastore than before: every table is compared.", link.local)
    work = _Work(ends=ends, link=link, identity=identity, on_dropped=on_dropped or _default(link))
    database = work.remote_database()
    outcomes = work.table(changes) if database is None else work.database(changes)
    path = work.path(database)
    if any(outcome.behind for outcome in outcomes):
        # With its earlier path, a link that leads to another metastore is compared as a whole again.
        position, path = NO_EVENT if link.event_id is None else link.event_id, link.path
    report = _report(link, position, whole=changes is None, outcomes=outcomes)
    if tried is not None:
        linked = [outcome.name for outcome in outcomes if outcome.linked]
        link, earlier = earlier_tries(ends, link, tried, linked=linked, whole=changes is None, moved=moved)
        report = replace(report, named=sorted({*report.named, *earlier}))
    elif moved:
        link = replace(link, runs=())
    present = replace(link, event_id=position, table_names=work.names_digest(position), path=path)
    if database is not None:
        publish_database(ends, present, database.description)
    elif link != present and not report.dropped:
        publish_table(ends, present)
    return report


def _default(link: Link) -> OnDropped:
    return OnDropped.DROP if link.kind is Kind.DATABASE else OnDropped.FAIL


def _report(link: Link, position: int, *, whole: bool, outcomes: Sequence[_Outcome]) -> RefreshReport:
    def names(action: str) -> list[str]:
        return [outcome.name for outcome in outcomes if outcome.action == action]

    return RefreshReport(
        remote=str(link.local),
        event_id=position,
        whole=whole,
        created=names("created"),
        altered=names("altered"),
        dropped=names("dropped"),
        gone=names("gone"),
        skipped={outcome.name: outcome.why_skipped for outcome in outcomes if outcome.why_skipped},
        with_partitions=[
            outcome.name for outcome in outcomes if outcome.added or outcome.altered or outcome.dropped
        ],
        named=[] if whole else [outcome.name for outcome in outcomes if outcome.linked],
        partitions_added=sum(outcome.added for outcome in outcomes),
        partitions_altered=sum(outcome.altered for outcome in outcomes),
        partitions_dropped=sum(outcome.dropped for outcome in outcomes),
    )


@dataclass(frozen=True, kw_only=True)
class _Work:
    ends: Ends
    link: Link
    identity: str | None  # id of the remote's metastore
    on_dropped: OnDropped
    listed: list[str] = field(default_factory=list)  # the tables of the remote, if all of them were compared

    def names_digest(self, position: int) -> str:
        """Return the digest of the names that a link keeps with a position."""
        if self.link.kind is Kind.TABLE or position != NO_EVENT:
            return ""
        return names_digest(self.listed)

    # -- which tables --------------------------------------------------------------------------------------

    def table(self, changes: Mapping[str, TableChange] | None) -> list[_Outcome]:
        change = EVERYTHING if changes is None else changes.get(self.link.remote.table or "")
        if change is None:
            return []
        link = self.link
        table = self._local_tables([link.local.table or ""]).get(link.local.table or "")
        database, name = names_of(link.remote)
        there = name_at_the_catalog(name, table)
        remote = ask(self.ends, lambda: self.ends.remote.get_table(database, there))
        return [self._apply(link, remote, table, change)]

    def remote_database(self) -> types.Database | None:
        """Read the database of a remote database; return ``None`` for a remote table.

        :raises RemoteDroppedError: if the database does not exist any more.
        :raises CyclicRemoteError: if it leads back to the local metastore by now.
        """
        if self.link.kind is Kind.TABLE:
            return None
        database = remote_database(self.ends, self.link)
        if (path := self.path(database)) != self.link.path:
            refuse_cycle(self.link.local, self.link.remote, path, self.ends.here)
        return database

    def path(self, database: types.Database | None) -> tuple[str, ...]:
        """Return the ids of the metastores behind the link; a table's own parameters have the newer ones."""
        if database is None or self.identity is None:
            return self.link.path
        return path_behind(self.identity, database.parameters)

    def database(self, changes: Mapping[str, TableChange] | None) -> list[_Outcome]:
        if changes is None:
            return self._tables_then_views(every_table(self.ends, self.link, self.listed))
        return self._tables_then_views(changed_tables(self.ends, self.link, changes))

    def _tables_then_views(self, entries: Iterable[Found]) -> list[_Outcome]:
        """Link the tables, then the views whose tables and views are all linked."""
        waiting: dict[str, tuple[str, types.Table, Mapping[str, types.Table], TableChange]] = {}

        def tables() -> Iterator[Found]:
            for name, remote, present, change in entries:
                if isinstance(remote, types.Table) and definitions.is_view(remote):
                    waiting[name] = name, remote, present, change
                else:
                    yield name, remote, present, change

        outcomes = self._side_by_side(tables())
        while waiting:
            read = {table for view in waiting.values() for table in views.names_read(view[1])}
            linked = views.linked(self._local_tables(sorted(read - waiting.keys())), self.link)
            reasons = {
                name: definitions.why_not_view(view[1], self._names, linked) for name, view in waiting.items()
            }
            ready = [name for name, reason in reasons.items() if reason is None]
            outcomes += [self._member(*waiting.pop(name)) for name in ready]
            if not ready:
                outcomes += [self._left_out(view, reasons[name] or "") for name, view in waiting.items()]
                break
        return outcomes

    def _left_out(self, entry: Found, reason: str) -> _Outcome:
        """Leave a table out, and drop its link, which would show rows of the earlier table."""
        name, _, present, _ = entry
        table = present.get(name)
        link = table and readable_link(Kind.TABLE, self._local(name), table.parameters)
        if not isinstance(link, Link) or not link.member:
            return _Outcome(name=name, why_skipped=reason)
        with self.ends.local.client() as client:
            drop_link(client, link.local)
        return _Outcome(name=name, why_skipped=reason, action="dropped")

    def _local(self, name: str) -> Name:
        return Name(database=self.link.local.database, table=name)

    @property
    def _names(self) -> Renaming:
        return views.renaming(self.link)

    def _side_by_side(self, tables: Iterable[Found]) -> list[_Outcome]:
        with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="remote") as threads:
            running = [threads.submit(self._member, *table) for table in tables]
            try:
                return [task.result() for task in running]
            finally:
                for task in running:
                    task.cancel()

    def _member(
        self, name: str, remote: Answer, present: Mapping[str, types.Table], change: TableChange
    ) -> _Outcome:
        table = present.get(name)
        link = self._link_of_member(name, table)
        if isinstance(link, str):
            return _Outcome(name=name, why_skipped=link)
        if isinstance(remote, Refused):
            return _Outcome(name=name, why_skipped=remote.reason)
        try:
            return self._apply(link, remote, table, change)
        except RemoteUnsupportedError as error:
            if "location" in error.facts:
                # The link may be one of an earlier version, which took such locations: it stays as it is.
                return _Outcome(name=name, why_skipped=str(error), behind=table is not None)
            return self._left_out((name, remote, present, change), error.message)
        except (CyclicRemoteError, InvalidObjectError) as error:
            # InvalidObjectError comes from the local metastore: it lacks a type, or does not allow a name.
            return _Outcome(name=name, why_skipped=error.message)

    def _link_of_member(self, name: str, table: types.Table | None) -> Link | str:
        """Return the link of a table of the remote database, or the reason why the local name is no link."""
        if table is None:
            return Link(
                kind=Kind.TABLE,
                local=self._local(name),
                remote=Name(database=self.link.remote.database, table=name),
                member=True,
            )
        stored = readable_link(Kind.TABLE, self._local(name), table.parameters)
        if isinstance(stored, DamagedLink):
            return str(stored.error)
        if stored is None or not stored.member:
            return "the local name belongs to another table"
        return stored

    # -- one table -----------------------------------------------------------------------------------------

    def _apply(
        self, link: Link, remote: types.Table | None, table: types.Table | None, change: TableChange
    ) -> _Outcome:
        if remote is None:
            return self._gone(link, table)
        is_view = link.member and definitions.is_view(remote)
        if not is_view and (reason := definitions.why_not(remote)):
            raise RemoteUnsupportedError(
                f"{link.remote} cannot be linked: {reason}.",
                remedy="Link the tables that it reads."
                if "view" in reason
                else "Read the table at its own metastore or catalog.",
                remote=str(link.local),
            )
        refuse_location(link, remote.sd.location)
        path = path_behind(self.identity, remote.parameters)
        refuse_cycle(link.local, link.remote, path, self.ends.here)
        made, link = self._made(replace(link, path=path), remote)
        if table is None:
            return self._create(link, remote, made)
        return self._alter(link, remote, made, table, change)

    def _made(self, link: Link, remote: types.Table) -> tuple[types.Table, Link]:
        def make(link: Link) -> types.Table:
            if definitions.is_view(remote):
                return definitions.local_view(
                    remote,
                    self._names,
                    name=link.local.table or "",
                    owner=self.ends.owner,
                    link=link.parameters(),
                )
            return definitions.local_table(
                remote,
                database=link.local.database or "",
                name=link.local.table or "",
                owner=self.ends.owner,
                link=link.parameters(),
            )

        link = replace(link, definition=definitions.digest(make(link), remote))
        return make(link), link

    def _gone(self, link: Link, table: types.Table | None) -> _Outcome:
        name = link.local.table or ""
        if self.on_dropped is OnDropped.FAIL:
            raise RemoteDroppedError(
                f"{link.remote}, to which {link.local} is linked, no longer exists at the remote.",
                remedy=f"DROP REMOTE TABLE {link.local}, or restore it.",
                remote=str(link.local),
            )
        if table is None:
            return _Outcome(name=name)
        if self.on_dropped is OnDropped.KEEP:
            log.warning("%s no longer exists at the remote; its link is kept.", link.remote)
            return _Outcome(name=name, action="gone")
        with self.ends.local.client() as client:
            drop_link(client, link.local)
        return _Outcome(name=name, action="dropped")

    def _create(self, link: Link, remote: types.Table, made: types.Table) -> _Outcome:
        self._with_statistics(made, remote, link)
        pages = partitions.at_the_remote(self.ends, link, remote)
        # The first batch is read before the table is made: so a remote that fails leaves no table behind.
        page, added = next(pages, []), 0
        if page:
            # A table without its definition counts as incomplete: a refresh compares all of its partitions.
            made.parameters.pop(DEFINITION, None)
        with self.ends.local.client() as client:
            client.create_table(made, environment=KEEP_STATISTICS)
        while page:
            with self.ends.local.client() as client:
                partitions.write(client, link, added=page)
            added += len(page)
            page = next(pages, [])
        if added:
            self._complete(link)
        return _Outcome(name=link.local.table or "", action="created", linked=True, added=added)

    def _complete(self, link: Link) -> None:
        """Give a table its definition, after all of its partitions."""
        with self.ends.local.client() as client:
            table = client.get_table(*names_of(link.local))
            table.parameters = {**(table.parameters or {}), DEFINITION: link.definition}
            alter(client, table)

    def _alter(
        self, link: Link, remote: types.Table, made: types.Table, table: types.Table, change: TableChange
    ) -> _Outcome:
        """Alter the partitions, then the table, whose new definition marks the refresh as complete."""
        before = link_of(Kind.TABLE, link.local, table.parameters)
        same = before is not None and before.definition == link.definition and before.path == link.path
        read_by_changed = table.parameters.get(READ_BY) != made.parameters[READ_BY]
        # Earlier versions gave links of partitioned tables the remote's directory.
        has_remote_location = bool(
            remote.partitionKeys and not made.sd.location and table.sd.location == remote.sd.location
        )
        if read_by_changed or has_remote_location or definitions.keys_changed(made, table):
            return self._make_anew(link, remote, made)
        outcome = _Outcome(name=link.local.table or "", action="" if same else "altered", linked=True)
        if remote.partitionKeys:
            incomplete = before is None or not before.definition
            everything = incomplete or change.all_partitions or definitions.schema_changed(made, table)
            names = None if everything else partitions.changed_names(self.ends, link, remote, change)
            added, altered, dropped = partitions.refresh(self.ends, link, remote, names)
            outcome = replace(outcome, added=added, altered=altered, dropped=dropped)
        if not same and not self._replace(before or link, remote, made, table):
            return self._make_anew(link, remote, made)
        return outcome

    def _make_anew(self, link: Link, remote: types.Table, made: types.Table) -> _Outcome:
        with self.ends.local.client() as client:
            drop_link(client, link.local)
        return replace(self._create(link, remote, made), action="altered")

    def _replace(self, link: Link, remote: types.Table, made: types.Table, table: types.Table) -> bool:
        """Alter the local table; return ``False`` if it has to be recreated.

        :param link: the link as it was read with the local table.
        """
        self._with_statistics(made, remote, link)
        statistics, made.colStats = made.colStats, None
        made.createTime = table.createTime
        if made.sd.location is None:
            made.sd.location = table.sd.location
        with self.ends.local.client() as client:
            try:
                alter(client, made, link)
            except InvalidOperationError as error:
                # metastore.disallow.incompatible.col.type.changes forbids this change of types.
                log.info("%s is made anew: %s", link.local, error.message)
                made.colStats = statistics
                return False
            if statistics is not None:
                client.set_column_statistics([statistics])
        return True

    def _with_statistics(self, made: types.Table, remote: types.Table, link: Link) -> None:
        if made.colStats is not None or remote.partitionKeys:
            return
        catalog = self.ends.remote
        if isinstance(catalog, TableStatistics):
            with self.ends.breaker.guard():
                statistics = catalog.table_statistics(remote)
            made.colStats = definitions.table_statistics(statistics, made) if statistics else None
        elif definitions.has_column_statistics(remote):
            with_statistics = ask(self.ends, lambda: catalog.get_table(*names_of(link.remote)))
            if with_statistics is not None:
                made.colStats = definitions.local_table(
                    with_statistics, database=made.dbName, name=made.tableName, owner="", link={}
                ).colStats

    def _local_tables(self, names: list[str]) -> dict[str, types.Table]:
        return local_tables(self.ends, self.link, names)
