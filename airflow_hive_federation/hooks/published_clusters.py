"""Publishes what tasks and commands learn about clusters, without failing them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Self

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.published import (
    Log,
    StatePublished,
    described,
    publication,
    state_directory,
)

if TYPE_CHECKING:
    from airflow_hive_federation.clusters.assignment import AssignReport
    from airflow_hive_federation.clusters.look import TableLook
    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.clusters.routing.decision import Decision
    from airflow_hive_federation.clusters.running import LiveRouter
    from airflow_hive_federation.metastore import MetastoreClient
    from airflow_hive_federation.published.clusters import ClusterPublisher, PublishedRoute
    from airflow_hive_federation.published.documents import Publisher


class ClusterStatePublished(StatePublished):
    """Publishes the state of clusters, and the error with which a block of a task ends, which it lets pass.

    :param metastore: the connection, or the URIs, of the metastore.
    :param by: the task or command.
    :param table: the table that the block works for, as ``database.table``; empty if it works for several.
    """

    def __init__(self, log: Log, *, metastore: str, by: Publisher, table: str = "") -> None:
        super().__init__(log)
        self._metastore = metastore
        self._by = by
        self._table = table.strip().lower()

    def _failed(self, error: Exception) -> None:
        # Without a database, it is no name of a table.
        if "." in self._table:
            self._publisher().failure(self._table, *described(error))

    def looked(self, client: MetastoreClient, registry: ClusterRegistry, table: str) -> None:
        """Look at a table that a task has worked on with success, and publish its clusters."""
        self._publish(lambda publisher: publisher.looked(_look(client, registry, table), succeeded=True))

    def succeeded(self) -> None:
        """Publish that a task has succeeded without a change of its table."""
        self._publish(lambda publisher: publisher.succeeded(self._table))

    def assigned(self, report: AssignReport, registry: ClusterRegistry) -> None:
        """Publish the tables that an assignment has put into clusters, or taken out."""
        default = (registry.default or "") if registry.use_default else ""
        primaries = dict.fromkeys(report.changed, default if report.undo else report.cluster)
        if not report.dry_run:
            self._publish(
                lambda publisher: publisher.assigned(
                    {**primaries, **report.elsewhere}, unassigned=report.changed if report.undo else ()
                )
            )

    def looked_at_all(self, database: str, looks: Iterable[TableLook]) -> None:
        """Publish looks at all tables of a database."""
        self._publish(lambda publisher: publisher.looked_at_all(database, looks))

    def routed(self, routes: Sequence[PublishedRoute], looks: Sequence[TableLook]) -> None:
        """Publish the routes of statements, and the tables that routing has looked at."""
        self._publish(lambda publisher: publisher.looked(looks))
        self._publish(lambda publisher: publisher.routed(routes))

    def _publish(self, publish: Callable[[ClusterPublisher], None]) -> None:
        with publication(self._log):
            publish(self._publisher())

    def _publisher(self) -> ClusterPublisher:
        from airflow_hive_federation.published.clusters import ClusterPublisher

        return ClusterPublisher(state_directory(), metastore=self._metastore, by=self._by)


class RoutesPublished:
    """Publishes the routes of the statements of a block at its end, and the tables that routing has read.

    :param state: the publisher of the task or command.
    """

    def __init__(self, router: LiveRouter, state: ClusterStatePublished, log: Log) -> None:
        self._router = router
        self._state = state
        self._log = log
        self._routes: list[PublishedRoute] = []
        self._looks: dict[str, TableLook] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._state.routed(self._routes, list(self._looks.values()))

    def note(self, decision: Decision, refused: str = "") -> None:
        """Note the route of a statement, right after its decision.

        :param refused: the reason for which the statement is not run.
        """
        with publication(self._log):
            self._routes.append(published_route(decision, refused))
            self._looks.update({look.table: look for look in self._router.looks(decision)})


def table_of(rule: str) -> str:
    """Return the table of a rule that keeps copies current; empty for a text that is no rule."""
    from airflow_hive_federation.clusters.keep_rules import read_rule

    try:
        return read_rule(rule).table
    except ConfigurationError:
        return ""


def published_route(decision: Decision, refused: str = "") -> PublishedRoute:
    """Return the route of a statement for publication, without the statement's text.

    :param refused: the reason for which the statement was not run.
    """
    from airflow_hive_federation.clusters.routing.explain import in_words, without_text
    from airflow_hive_federation.published.clusters import PublishedRoute

    shown = without_text(decision)
    if decision.unanalysable is not None:
        refused = refused and shown.reason
    written = [str(use.table) for use in decision.outputs]
    tables = [*written, *(str(use.table) for use in decision.inputs)]
    return PublishedRoute(
        at_s=round(time.time(), 3),
        cluster="" if refused else decision.cluster or "",
        rule=str(decision.rule),
        refused=refused,
        tables=tuple(dict.fromkeys(tables)),
        lines=tuple(in_words(shown).splitlines()),
    )


def _look(client: MetastoreClient, registry: ClusterRegistry, table: str) -> list[TableLook]:
    from airflow_hive_federation.clusters.altering import split_name
    from airflow_hive_federation.clusters.catalog import MetastoreFacts
    from airflow_hive_federation.clusters.look import look_at_table

    look = look_at_table(MetastoreFacts(client, registry), registry, *split_name(table))
    return [] if look is None else [look]
