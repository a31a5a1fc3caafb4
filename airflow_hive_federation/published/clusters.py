"""Defines and publishes the state of clusters: the places of tables, stale copies, and the last routes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_hive_federation.model.json_values import list_of, reader_of
from airflow_hive_federation.published.directory import StateDirectory, Subject, key_of
from airflow_hive_federation.published.documents import Publisher, read_publisher, reading_version
from airflow_hive_federation.published.folding import shortened

if TYPE_CHECKING:
    from airflow_hive_federation.clusters.look import TableLook

#: Folders of the documents: one per database, and one per metastore.
CLUSTERS, ROUTES = "clusters", "routes"
#: The most routes that are kept, and of each the most lines, tables, and characters of a text.
_ROUTES, _LINES, _TABLES, _TEXT = 100, 20, 20, 500


@dataclass(frozen=True, kw_only=True)
class PlacedCopy:
    """The copies of one table in one secondary cluster; see ``clusters.look.CopyLook``."""

    cluster: str
    objects: int
    stale: int = 0
    stale_bytes: int | None = None
    lacks_since_s: int | None = None
    lacks_writes: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlacedTable:
    """The clusters of one table; see ``clusters.look.TableLook``.

    :param name: ``database.table``.
    :param looked_s: the time of the look, in seconds since 1970; ``None`` before the first.
    :param error: the class and the message of the error of the last task on the table; empty if it succeeded.
    :param failures: number of tasks that have failed since the last one that succeeded.
    """

    name: str
    primary: str = ""
    assigned: bool = False
    partitions: int | None = None
    copies: tuple[PlacedCopy, ...] = ()
    problem: str = ""
    looked_s: float | None = None
    error: str = ""
    remedy: str = ""
    failures: int = 0
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class DatabaseTables:
    """The tables of one database, in the order of their names.

    :param metastore: the connection, or the URIs, of the metastore.
    """

    metastore: str
    database: str
    tables: tuple[PlacedTable, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class PublishedRoute:
    """The route of one statement, without its text.

    :param at_s: the time of the decision, in seconds since 1970.
    :param cluster: the cluster; empty if none could run the statement.
    :param rule: the rule that decided.
    :param refused: the reason for which the statement was not run.
    :param tables: names of tables that the statement reads or writes.
    :param lines: the decision in words.
    """

    at_s: float
    cluster: str = ""
    rule: str
    refused: str = ""
    tables: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    by: Publisher = field(default_factory=Publisher)


@dataclass(frozen=True, kw_only=True)
class ClusterRoutes:
    """The last routes of statements on one metastore, oldest first."""

    metastore: str
    routes: tuple[PublishedRoute, ...] = ()
    published_s: float
    by: Publisher = field(default_factory=Publisher)


_BY: Mapping[str, Callable[[object], Publisher]] = {"by": read_publisher}
read_database_tables: Callable[[object], DatabaseTables] = reading_version(
    reader_of(
        DatabaseTables,
        readers={
            **_BY,
            "tables": list_of(
                reader_of(PlacedTable, readers={**_BY, "copies": list_of(reader_of(PlacedCopy))})
            ),
        },
    )
)
read_routes: Callable[[object], ClusterRoutes] = reading_version(
    reader_of(ClusterRoutes, readers={**_BY, "routes": list_of(reader_of(PublishedRoute, readers=_BY))})
)
PLACED: Subject[DatabaseTables] = Subject("tables", read_database_tables)
ROUTED: Subject[ClusterRoutes] = Subject("routes", read_routes)


class ClusterPublisher:
    """Publishes what a task or command has learned about the clusters of one metastore.

    Every method raises a ``StorageError`` if a document cannot be written.

    :param metastore: the connection, or the URIs, of the metastore.
    :param by: the task or command.
    """

    def __init__(self, directory: StateDirectory, *, metastore: str, by: Publisher) -> None:
        self._directory = directory
        self._metastore = metastore
        self._by = by

    def looked(self, looks: Iterable[TableLook], *, succeeded: bool = False) -> None:
        """Publish looks at some tables; all other tables stay as they are.

        :param succeeded: a task on these tables has succeeded, which ends its failures.
        """
        by_database: defaultdict[str, list[TableLook]] = defaultdict(list)
        for look in looks:
            by_database[look.table.partition(".")[0]].append(look)
        for database, some in by_database.items():
            self._fold(database, partial(self._with, looks=some, succeeded=succeeded))

    def looked_at_all(self, database: str, looks: Iterable[TableLook]) -> None:
        """Publish looks at all tables of a database: those that are not among them are gone."""
        found = {look.table: look for look in looks}

        def fold(known: Mapping[str, PlacedTable]) -> dict[str, PlacedTable]:
            present = {name: table for name, table in known.items() if name in found}
            return self._with(present, found.values())

        self._fold(database.lower(), fold)

    def assigned(self, primaries: Mapping[str, str], *, unassigned: Collection[str] = ()) -> None:
        """Publish the primary clusters of tables whose copies nobody has looked at.

        :param primaries: the clusters by ``database.table``.
        :param unassigned: those of the tables that are in their cluster because it is the default one.
        """
        by_database: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for name, cluster in primaries.items():
            by_database[name.lower().partition(".")[0]][name.lower()] = cluster
        for database, some in by_database.items():

            def fold(
                known: Mapping[str, PlacedTable], some: Mapping[str, str] = some
            ) -> dict[str, PlacedTable]:
                placed = {
                    name: replace(
                        known.get(name) or PlacedTable(name=name),
                        primary=cluster,
                        assigned=name not in unassigned,
                        by=self._by,
                    )
                    for name, cluster in some.items()
                }
                return {**known, **placed}

            self._fold(database, fold)

    def failure(self, table: str, error: str, remedy: str) -> None:
        """Publish that a task on a table has failed.

        :param table: ``database.table``.
        :param error: the class and the message of the error.
        """

        def fold(known: Mapping[str, PlacedTable]) -> dict[str, PlacedTable]:
            before = known.get(table) or PlacedTable(name=table)
            failed = replace(
                before,
                error=shortened(error),
                remedy=shortened(remedy),
                failures=before.failures + 1,
                by=self._by,
            )
            return {**known, table: failed}

        self._fold(table.partition(".")[0], fold)

    def succeeded(self, table: str) -> None:
        """End the failures of a table, if there are any, without a look at it."""
        database = table.partition(".")[0]
        before = self._directory.readable(CLUSTERS, key_of(database, self._metastore), PLACED)
        failed = [each for each in before.tables if each.name == table and each.failures] if before else []
        if failed:
            ended = replace(failed[0], error="", remedy="", failures=0, by=self._by)
            self._fold(database, lambda known: {**known, table: ended})

    def routed(self, routes: Sequence[PublishedRoute]) -> None:
        """Publish the routes of statements, in their order."""
        if not routes:
            return
        key, now_s = key_of(self._metastore), _now_s()
        before = self._directory.readable(ROUTES, key, ROUTED)
        bounded = [
            replace(
                route,
                by=self._by,
                refused=shortened(route.refused, _TEXT),
                tables=route.tables[:_TABLES],
                lines=tuple(shortened(line, _TEXT) for line in route.lines[:_LINES]),
            )
            for route in routes
        ]
        kept = (*(before.routes if before else ()), *bounded)[-_ROUTES:]
        self._directory.write(
            ROUTES,
            key,
            ROUTED,
            ClusterRoutes(metastore=self._metastore, routes=kept, published_s=now_s, by=self._by),
        )

    def _with(
        self, known: Mapping[str, PlacedTable], looks: Iterable[TableLook], *, succeeded: bool = False
    ) -> dict[str, PlacedTable]:
        now_s, after = _now_s(), dict(known)
        for look in looks:
            before = known.get(look.table)
            placed = PlacedTable(
                name=look.table,
                primary=look.primary,
                assigned=look.assigned,
                partitions=look.partitions,
                copies=tuple(PlacedCopy(**asdict(copy)) for copy in look.copies),
                problem=shortened(look.problem, _TEXT),
                looked_s=now_s,
                by=self._by,
            )
            if before is not None and not succeeded:
                placed = replace(placed, error=before.error, remedy=before.remedy, failures=before.failures)
            after[look.table] = placed
        return after

    def _fold(
        self, database: str, fold: Callable[[Mapping[str, PlacedTable]], Mapping[str, PlacedTable]]
    ) -> None:
        key = key_of(database, self._metastore)
        before = self._directory.readable(CLUSTERS, key, PLACED)
        tables = fold({table.name: table for table in before.tables} if before else {})
        self._directory.write(
            CLUSTERS,
            key,
            PLACED,
            DatabaseTables(
                metastore=self._metastore,
                database=database,
                tables=tuple(tables[name] for name in sorted(tables)),
                published_s=_now_s(),
                by=self._by,
            ),
        )


def _now_s() -> float:
    return round(time.time(), 3)
