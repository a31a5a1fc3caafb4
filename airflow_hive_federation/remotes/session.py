"""Runs the statements of remotes against a local metastore.

>>> with Remotes(settings) as remotes:  # doctest: +SKIP
...     remotes.run("CREATE REMOTE TABLE sales VIA 'thrift' 'hive.metastore.uris' = 'thrift://far:9083'")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, singledispatchmethod
from typing import Any, Self

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.catalog.factories import Connections
from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.catalog.roles import Catalog
from airflow_hive_federation.errors import (
    AlreadyExistsError,
    ConfigurationError,
    NameTakenError,
    NoSuchObjectError,
    NotARemoteError,
    RemoteDroppedError,
    RemoteUnavailableError,
)
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import describe
from airflow_hive_federation.remotes.alone import alone
from airflow_hive_federation.remotes.describe import Answer
from airflow_hive_federation.remotes.ends import Ends, drop_remote, is_droppable, name_taken, not_a_remote
from airflow_hive_federation.remotes.left_out import find_guarded, find_left_out
from airflow_hive_federation.remotes.links import (
    NO_EVENT,
    READ_ONLY_DATABASE,
    DamagedLink,
    Link,
    is_member,
    link_of,
    path_behind,
    readable_link,
    refuse_cycle,
)
from airflow_hive_federation.remotes.positions import TABLES_PER_CALL, Try
from airflow_hive_federation.remotes.refresh import OnDropped, refresh
from airflow_hive_federation.remotes.reports import RefreshReport
from airflow_hive_federation.remotes.statement import (
    AlterRemote,
    CreateRemote,
    DescribeRemote,
    DropRemote,
    Kind,
    Name,
    RefreshRemote,
    ShowCreateRemote,
    ShowRemotes,
    Statement,
    Use,
    parse_script,
)


@dataclass(frozen=True, kw_only=True)
class OpenRemote:
    """A remote with its catalog.

    :param link: link of the remote.
    :param owner: the link that has factory and properties: the remote's own, or its database's.
    :param catalog: catalog of the remote.
    :param breaker: circuit breaker of the catalog.
    """

    link: Link
    owner: Link
    catalog: Catalog
    breaker: CircuitBreaker


class Remotes:
    """The remotes of one local metastore.

    :param settings: the local metastore; its user owns the created links, and connects to the remotes.
    :param connections: looks up the connections that properties name.
    :param database: the current database.
    :param catalogs: the kinds of catalogs; :meth:`close` closes them too.
    :ivar tried: the try of a task's run that refreshes remotes here; ``None`` outside of tasks.
    """

    def __init__(
        self,
        settings: MetastoreSettings,
        *,
        connections: Connections | None = None,
        database: str = "default",
        catalogs: Catalogs | None = None,
    ) -> None:
        self.database = database.lower()
        self.tried: Try | None = None
        self._local = HiveCatalog(settings)
        self._user = settings.effective_user()
        self._catalogs = catalogs or Catalogs(connections, user=settings.user)

    # -- statements ----------------------------------------------------------------------------------------

    def run(self, script: str) -> list[Answer]:
        """Run the statements of a script in order, and stop at the first that fails.

        :raises StatementError: before any statement runs, if one of them cannot be parsed.
        """
        return list(self.answers(script))

    def answers(self, script: str) -> Iterator[Answer]:
        """Run the statements of a script as :meth:`run` does, and yield each answer after its statement."""
        statements = parse_script(script)
        return map(self.execute, statements)

    @singledispatchmethod
    def execute(self, statement: Statement) -> Answer:
        """Run one statement.

        :raises RemoteError: (its subclasses) if the remote or the local name does not allow the statement.
        :raises ConfigurationError: if the factory or its properties are invalid.
        """
        raise TypeError(f"{statement!r} is not a statement of remotes")

    @execute.register
    def _(self, statement: CreateRemote) -> Answer:
        report, guarded = self.create(statement), list[str]()
        if statement.kind is Kind.DATABASE:
            guarded = find_guarded(self._local, self.link(statement.kind, statement.name))
        return describe.created(statement.kind, report, guarded)

    @execute.register
    def _(self, statement: AlterRemote) -> Answer:
        report = self.alter(statement.kind, statement.name, statement.properties)
        return describe.refreshed(report)

    @execute.register
    def _(self, statement: DropRemote) -> Answer:
        dropped = self.drop(statement.kind, statement.name, if_exists=statement.if_exists)
        local = self._qualified(statement.name)
        return describe.message(
            f"Remote {statement.kind} {local} {'dropped' if dropped else 'did not exist'}."
        )

    @execute.register
    def _(self, statement: RefreshRemote) -> Answer:
        return describe.refreshed(self.refresh(statement.kind, statement.name))

    @execute.register
    def _(self, statement: ShowRemotes) -> Answer:
        return describe.show_remotes(self.listed(statement.database))

    @execute.register
    def _(self, statement: ShowCreateRemote) -> Answer:
        link = self.link(statement.kind, statement.name)
        return describe.show_create(self._with_properties(link))

    @execute.register
    def _(self, statement: DescribeRemote) -> Answer:
        return self.describe(statement.kind, statement.name, extended=statement.extended)

    @execute.register
    def _(self, statement: Use) -> Answer:
        self._local.get_database(statement.database)
        self.database = statement.database
        return describe.message(f"Database {statement.database}.")

    # -- operations ---------------------------------------------------------------------------------------

    def create(self, statement: CreateRemote) -> RefreshReport:
        """Create a remote, or complete one whose creation was interrupted.

        :raises NameTakenError: if the local name belongs to another object.
        :raises NoSuchObjectError: if the remote has no such table or database.
        :raises CyclicRemoteError: if the remote leads back to the local metastore.
        :raises RemoteUnsupportedError: if the table is of a kind that cannot be linked.
        """
        local = self._qualified(statement.name)
        link = Link(
            kind=statement.kind,
            local=local,
            remote=_completed(statement.connected_to or local, local.database),
            via=statement.via,
            properties=statement.properties,
        )
        self._catalogs.factory(link.via).check(link.properties)
        present = self._unfinished(link)
        if not isinstance(present, RefreshReport):
            with alone(self._local, link.kind, link.local) as guarded:
                present = self._unfinished(link)
                if not isinstance(present, RefreshReport):
                    return self._create(guarded, present or link, exists=present is not None)
        if statement.if_not_exists:
            return present
        raise NameTakenError(
            f"Remote {link.kind} {local} exists.",
            remedy="Write IF NOT EXISTS, change it by ALTER REMOTE … SET, or drop it.",
            remote=str(local),
        )

    def alter(self, kind: Kind, name: Name, properties: Mapping[str, str]) -> RefreshReport:
        """Change properties of a remote, and refresh it with the new properties before they are stored.

        :raises ConfigurationError: if the factory does not have such properties.
        :raises NotARemoteError: if the name is not a remote, or is a table of a remote database.
        """
        link = self.link(kind, name)
        if link.member:
            raise NotARemoteError(
                f"{link.local} is part of the remote database {link.local.database}.",
                remedy=f"ALTER REMOTE DATABASE {link.local.database} SET ….",
                remote=str(link.local),
            )
        with alone(self._local, link.kind, link.local) as local:
            link = self.link(kind, link.local)
            changed = replace(link, properties={**link.properties, **properties}, event_id=None)
            opened = self._open_stored(changed, changed)
            # The new properties may lead to a metastore with other event ids: so everything is compared.
            return self._refresh(local, opened, None)

    def drop(self, kind: Kind, name: Name, *, if_exists: bool = False) -> bool:
        """Drop the link of a remote, and leave the remote's data and definitions untouched.

        A link whose parameters cannot be read, or are refused, can be dropped.

        :return: true if the remote existed.
        :raises NotARemoteError: if the name belongs to another object, or to none.
        :raises LockTimeoutError: if another process works on the link for ten minutes.
        :raises LockLostError: if this process was suspended, and another one may work on the link.
        """
        local = self._qualified(name)
        parameters = self._parameters(kind, local)
        if not is_droppable(kind, local, parameters, if_exists=if_exists):
            return False
        # The refresh of a remote database writes its tables, too.
        is_part = kind is Kind.TABLE and is_member(parameters)
        owner = (Kind.DATABASE, replace(local, table=None)) if is_part else (kind, local)
        with alone(self._local, *owner) as guarded:
            # Another process may have dropped it meanwhile, and given its name to another object.
            if not is_droppable(kind, local, self._parameters(kind, local), if_exists=if_exists):
                return False
            found = self._links_in(local.database or "") if kind is Kind.DATABASE else ()
            links = {link.local.table for link in found}
            with guarded.client() as client:
                drop_remote(client, local, links)
        return True

    def refresh(
        self, kind: Kind, name: Name, *, on_dropped: OnDropped | None = None, whole: bool = False
    ) -> RefreshReport:
        """Bring a remote's link up to date; see :func:`.refresh.refresh`.

        :raises LockTimeoutError: if another process works on the link for ten minutes.
        :raises LockLostError: if this process was suspended, and another one may work on the link.
        """
        link = self.open(kind, name).link
        if link.member:
            link = self.open(Kind.DATABASE, Name(database=link.local.database)).link
        with alone(self._local, link.kind, link.local) as local:
            # Another process may have refreshed or altered the link until now.
            return self._refresh(local, self.open(link.kind, link.local), on_dropped, whole=whole)

    def describe(self, kind: Kind, name: Name, *, extended: bool = False) -> Answer:
        """Describe a remote from the remote itself, or from the last refresh if it does not answer."""
        opened = self.open(kind, name)
        description, down = self._described(opened)
        if kind is Kind.DATABASE:
            left_out = {} if down else find_left_out(self._local, opened.catalog, opened.link, opened.breaker)
            return describe.describe_database(
                description,
                opened.link,
                extended=extended,
                down=down,
                left_out=left_out,
                guarded=find_guarded(self._local, opened.link),
            )
        return describe.describe_table(description, opened.link, opened.owner, extended=extended, down=down)

    def links(self, database: str | None = None) -> list[Link]:
        """Return the links of a database, or of all databases, without those that cannot be read.

        :raises NoSuchObjectError: if the database does not exist.
        """
        return [link for link in self.listed(database) if isinstance(link, Link)]

    def listed(self, database: str | None = None) -> list[Link | DamagedLink]:
        """Return the links of a database, or of all databases, those that cannot be read among them.

        :raises NoSuchObjectError: if the database does not exist.
        """
        with self._local.client() as client:
            names = [database.lower()] if database else client.list_databases()
        return [link for name in names for link in self._links_in(name)]

    def link(self, kind: Kind, name: Name) -> Link:
        """Return the link behind a local name.

        :raises NotARemoteError: if the name has no link.
        """
        local = self._qualified(name)
        exists, link = self._present(kind, local)
        if link is None:
            raise not_a_remote(kind, local, exists=exists)
        return link

    def open(self, kind: Kind, name: Name) -> OpenRemote:
        """Return a remote with its catalog, without a call to the catalog.

        :raises NotARemoteError: if the remote does not exist.
        :raises ConfigurationError: if the stored factory or properties are refused, for instance because an
            earlier version of the package allowed them.
        """
        link = self.link(kind, name)
        return self._open_stored(link, self._with_properties(link))

    def local_partition_names(self, name: Name) -> list[str]:
        """Return the names of the partitions of a local table that is a link."""
        return self._local.list_partition_names(name.database or "", name.table or "")

    def close(self) -> None:
        """Close all connections without raising an error."""
        self._catalogs.close()
        self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- parts ---------------------------------------------------------------------------------------------

    @cached_property
    def _here(self) -> str | None:
        return self._local.identity()

    def _qualified(self, name: Name) -> Name:
        return _completed(name, self.database)

    def _open(self, link: Link, owner: Link) -> OpenRemote:
        catalog, breaker = self._catalogs.open(owner.via, owner.properties, remote=str(owner.local))
        return OpenRemote(link=link, owner=owner, catalog=catalog, breaker=breaker)

    def _open_stored(self, link: Link, owner: Link) -> OpenRemote:
        try:
            return self._open(link, owner)
        except ConfigurationError as error:
            kind = owner.kind.value
            raise ConfigurationError(
                f"Remote {kind} {owner.local}: {error.message}",
                remedy=f"{error.remedy} ALTER REMOTE {kind.upper()} {owner.local} SET … changes a property; "
                f"to remove one, DROP REMOTE {kind.upper()} {owner.local} and create it again.",
                remote=str(owner.local),
            ) from error

    def _create(self, guarded: HiveCatalog, link: Link, *, exists: bool) -> RefreshReport:
        opened = self._open(link, link)
        if link.kind is Kind.DATABASE:
            if not exists:
                opened = self._create_database(guarded, opened)
            return self._refresh(guarded, opened, None)
        try:
            return self._refresh(guarded, opened, OnDropped.FAIL)
        except RemoteDroppedError as error:
            # It never existed as a link, so nothing was dropped.
            raise NoSuchObjectError(
                f"The remote of {link.local} has no table {link.remote}.",
                remedy="Name one that it has by CONNECTED TO.",
                remote=str(link.local),
            ) from error

    def _refresh(
        self, guarded: HiveCatalog, opened: OpenRemote, on_dropped: OnDropped | None, *, whole: bool = False
    ) -> RefreshReport:
        ends = Ends(
            local=guarded,
            here=self._here,
            owner=self._user,
            remote=opened.catalog,
            breaker=opened.breaker,
        )
        return refresh(ends, opened.link, on_dropped=on_dropped, whole=whole, tried=self.tried)

    def _present(self, kind: Kind, local: Name) -> tuple[bool, Link | None]:
        """Return true if the name exists, and its link if it is a remote."""
        parameters = self._parameters(kind, local)
        return parameters is not None, link_of(kind, local, parameters)

    def _parameters(self, kind: Kind, local: Name) -> Mapping[str, str] | None:
        """Return the parameters of a local table or database; ``None`` if the name is free."""
        try:
            entry: Any = (
                self._local.get_database(local.database or "")
                if kind is Kind.DATABASE
                else self._local.get_table(local.database or "", local.table or "")
            )
        except NoSuchObjectError:
            return None
        return entry.parameters or {}

    def _unfinished(self, link: Link) -> Link | RefreshReport | None:
        """Return the link of that name if its creation was interrupted, a report if the link is complete.

        ``None`` means that the name is free.

        :raises NameTakenError: if the name belongs to another object.
        """
        exists, present = self._present(link.kind, link.local)
        if not exists:
            return None
        if present is None:
            raise name_taken(f"{link.kind.value.title()} {link.local}")
        if present.event_id is not None or not present.leads_to_the_same(link):
            return RefreshReport(
                remote=str(link.local), event_id=NO_EVENT if present.event_id is None else present.event_id
            )
        return present

    def _with_properties(self, link: Link) -> Link:
        if not link.member:
            return link
        owner = self.link(Kind.DATABASE, Name(database=link.local.database))
        return replace(
            link, via=owner.via, properties=owner.properties, event_id=owner.event_id, path=owner.path
        )

    def _links_in(self, database: str) -> Iterator[Link | DamagedLink]:
        database_link = readable_link(
            Kind.DATABASE, Name(database=database), self._local.get_database(database).parameters
        )
        if database_link is not None:
            yield database_link
        for table_names in batches(self._local.list_tables(database), TABLES_PER_CALL):
            for table in self._local.get_tables(database, table_names):
                name = Name(database=database, table=table.tableName)
                if (link := readable_link(Kind.TABLE, name, table.parameters)) is not None:
                    yield link

    def _create_database(self, guarded: HiveCatalog, opened: OpenRemote) -> OpenRemote:
        remote = self._remote_database(opened)
        path = path_behind(opened.catalog.identity(), remote.parameters)
        link = replace(opened.link, path=path)
        refuse_cycle(link.local, link.remote, path, self._here)
        database = types.Database(
            name=link.local.database,
            description=remote.description,
            ownerName=self._user,
            ownerType=types.PrincipalType.USER,
            parameters={**link.parameters(), **READ_ONLY_DATABASE},
        )
        with guarded.client() as client:
            try:
                client.create_database(database)
            except AlreadyExistsError as error:
                raise name_taken(f"Database {link.local}") from error
        return replace(opened, link=link)

    def _remote_database(self, opened: OpenRemote) -> types.Database:
        with opened.breaker.guard():
            try:
                return opened.catalog.get_database(opened.link.remote.database or "")
            except NoSuchObjectError as error:
                raise NoSuchObjectError(
                    f"The remote of {opened.link.local} has no database {opened.link.remote}.",
                    remedy="Name one that it has by CONNECTED TO.",
                    remote=str(opened.link.local),
                ) from error

    def _described(self, opened: OpenRemote) -> tuple[Any, str]:
        link = opened.link
        try:
            if link.kind is Kind.DATABASE:
                return self._remote_database(opened), ""
            with opened.breaker.guard():
                return opened.catalog.get_table(link.remote.database or "", link.remote.table or ""), ""
        except NoSuchObjectError as error:
            raise RemoteDroppedError(
                f"{link.remote}, to which {link.local} is linked, no longer exists at the remote.",
                remedy=f"DROP REMOTE {link.kind.value.upper()} {link.local}, or restore it.",
                remote=str(link.local),
            ) from error
        except RemoteUnavailableError as error:
            down = error.message
        if link.kind is Kind.DATABASE:
            return self._local.get_database(link.local.database or ""), down
        return self._local.get_table(link.local.database or "", link.local.table or ""), down


def _completed(name: Name, database: str | None) -> Name:
    """Complete the name of a table without a database by the name of one."""
    return name if name.database else replace(name, database=database)
