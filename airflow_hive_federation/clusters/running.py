"""Routes statements by the present state of a metastore and by the files of the copies to read."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from airflow_hive_federation.clusters.catalog import MetastoreFacts, clusters_of
from airflow_hive_federation.clusters.look import TableLook, look_at_table
from airflow_hive_federation.clusters.notes import Kind, Note, forget, state_of, take_note
from airflow_hive_federation.clusters.placement import Clusters, Session
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.clusters.routing.cache import Router
from airflow_hive_federation.clusters.routing.decision import Decision
from airflow_hive_federation.clusters.routing.explain import as_json, in_words
from airflow_hive_federation.clusters.routing.route import Policy, failure, next_session
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.statement import (
    Statement,
    UnreadableError,
    UseCluster,
    UseDatabase,
)
from airflow_hive_federation.clusters.statements.tokens import placed_statements
from airflow_hive_federation.errors import FileVanishedError, RoutingError, StorageError, UnanalysableError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.storage.trees import remove_tree

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RoutedScript:
    """The result of a script.

    :param statements: per statement, its text, its route, and the columns and rows of a query.
    """

    statements: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RoutedStatement:
    """A statement and the decision about its cluster.

    :param text: the statement as the user wrote it.
    :param session: the session in which it runs.
    """

    text: str
    session: Session
    decision: Decision

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return str(self.decision.cluster)

    @property
    def runs(self) -> bool:
        """True if an engine runs the statement; ``USE`` only changes the session."""
        return not isinstance(analyse(self.text), UseCluster | UseDatabase)

    @property
    def reads(self) -> list[str]:
        """``database.table`` of all tables and views that the statement reads."""
        return [str(use.table) for use in self.decision.inputs]

    def explained(self) -> str:
        """Return the route as text."""
        return in_words(self.decision)

    def to_json(self) -> dict[str, Any]:
        """Return the statement and its route as JSON values."""
        return {"sql": self.text, **as_json(self.decision)}

    @contextmanager
    def written(
        self,
        cluster: Cluster,
        options: StorageOptions | None = None,
        acid: Sequence[Mapping[str, object]] = (),
    ) -> Iterator[str]:
        """Write the statement for a job in a cluster; yield its URI, and remove it after the block.

        A failed removal is only logged: a retry of the task would run the statement twice.

        :param acid: the transactional tables that it reads; see :func:`.acid_inputs.acid_inputs`.
        :raises StorageError: the file cannot be written.
        """
        directory = join(state_of(cluster), f"sql-{uuid.uuid4().hex}")
        uri = join(directory, "statement.json")
        take_note(cluster, Note(kind=Kind.STATEMENT, directory=directory), options)
        text = json.dumps({"database": self.session.database, "sql": self.text, "acid": list(acid)})
        write_atomically(uri, [text.encode()], options, private=True)
        try:
            yield uri
        finally:
            try:
                remove_statement(directory, options)
                forget(cluster, Kind.STATEMENT, directory, options)
            except StorageError as error:
                log.warning("The file of a statement stays until the next cluster sweep: %s", error)


def remove_statement(directory: str, options: StorageOptions | None = None) -> None:
    """Remove the directory of a finished statement, with its report, if it exists.

    :raises StorageError: the directory cannot be removed.
    """
    filesystem, path = open_filesystem(directory, options)
    with suppress(FileVanishedError), storage_errors(directory):
        remove_tree(filesystem, path)


def first_session(registry: ClusterRegistry, *, database: str, cluster: str | None) -> Session:
    """Return the session before the first statement.

    :raises UnknownClusterError: the cluster does not exist.
    """
    return Session(
        database=database.lower(), cluster=None if cluster is None else registry.cluster(cluster).name
    )


@dataclass(frozen=True, kw_only=True)
class LiveRouter:
    """Routes statements on the tables of one metastore.

    It keeps decisions and facts about tables while the metastore's events show no changes of them. Only one
    thread may use it, as is true of its client.

    :param registry: the clusters, at least one.
    :param policy: the treatment of statements whose tables are not known for certain.
    :param check_files: list the files of primaries and copies before a copy is used. Without it, the router
        misses writes that the metastore does not know of, such as Spark's writes to its own tables.
    :param options: the storage options of all clusters.
    :param pool: makes a pool of further clients, which read the partitions of several tables at the same
        time; without it, the tables are read one after the other.
    """

    client: MetastoreClient
    registry: ClusterRegistry
    policy: Policy = Policy.STRICT
    check_files: bool = True
    options: StorageOptions = field(default_factory=dict, repr=False)
    pool: Callable[[], MetastorePool] | None = field(default=None, repr=False)

    def script(self, script: str, session: Session) -> Iterator[RoutedStatement]:
        """Route the statements of a script lazily, each after the one before it has run.

        :raises UnanalysableError: the script cannot be divided into statements, or uses temporary tables,
            which cannot work because each statement has its own Spark session.
        :raises HiveFederationError: as :meth:`route`.
        """
        for place, text in _placed(script):
            with place.named(clusters_of(self.registry)):
                decision = self.route(text, session)
                _refuse_temporary(text, decision)
            yield RoutedStatement(text=text, session=session, decision=decision)
            session = next_session(self._spelled(text), session, clusters_of(self.registry), decision)

    def decisions(self, script: str, session: Session) -> Iterator[tuple[str, Decision]]:
        """Decide on the statements of a script without running them; a refusal ends the iteration.

        :raises UnanalysableError: the script cannot be divided into statements.
        :raises HiveFederationError: as :meth:`decide`.
        """
        for place, text in _placed(script):
            with place.named(clusters_of(self.registry)):
                decision = place.in_script(self.decide(text, session))
            yield text, decision
            if decision.cluster is None:
                return
            session = next_session(self._spelled(text), session, clusters_of(self.registry), decision)

    def decide(self, text: str, session: Session) -> Decision:
        """Return the decision about a statement; without a cluster, it contains the reasons.

        :raises UnknownClusterError: no cluster is configured.
        :raises ClusterMetadataError: the cluster metadata of a table in the statement is damaged.
        :raises StorageError: a directory cannot be listed.
        :raises MetastoreError: the metastore does not answer.
        """
        router, facts = self._router, self._facts
        checked: set[tuple[str, str, str]] = set()
        text = self._spelled(text)
        facts.refresh()
        facts.prefetch(_names_in(text, session))
        while True:
            decision = router.decide(text, facts, session)
            used = _copies_used(decision) if self.check_files else {}
            unchecked = sorted(used.keys() - checked)
            # Each of a few tables is checked once per cluster, so this loop ends.
            checked.update(unchecked)
            if not [
                stale_object
                for place in unchecked
                for stale_object in facts.check_files(*place, values=used[place], options=self.options)
            ]:
                return decision

    def looks(self, decision: Decision) -> list[TableLook]:
        """Describe the tables whose rows a statement reads, by the facts of its decision.

        :param decision: the last decision of this router.
        :raises MetastoreError: the metastore does not answer.
        """
        read = {
            (database, use.table.name)
            for use in decision.inputs
            if use.groups and (database := use.table.database)
        }
        found = (look_at_table(self._facts, self.registry, *name) for name in sorted(read))
        return [look for look in found if look is not None]

    @cached_property
    def _facts(self) -> MetastoreFacts:
        return MetastoreFacts(self.client, self.registry, pool=self.pool)

    @cached_property
    def _router(self) -> Router:
        return Router(clusters_of(self.registry), policy=self.policy)

    def _spelled(self, text: str) -> str:
        """Return the statement with the name after ``USE CLUSTER`` in its configured case."""
        statement = analyse(text)
        if isinstance(statement, UseCluster) and statement.cluster is not None:
            return f"USE CLUSTER {self.registry.cluster(statement.cluster).name}"
        return text

    def route(self, text: str, session: Session) -> Decision:
        """Choose the cluster that runs a statement.

        :raises RoutingError: no cluster can run the statement.
        :raises HiveFederationError: as :meth:`decide`.
        """
        decision = self.decide(text, session)
        if decision.cluster is None:
            raise failure(decision, clusters_of(self.registry))
        return decision


def statements_of(script: str) -> tuple[str, ...]:
    """Divide a script into its statements.

    :raises UnanalysableError: the script cannot be read, or has no statement.
    """
    return tuple(text for _, text in _placed(script))


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The place of a statement in its script: its number of all, and the line and column where it begins."""

    number: int
    count: int
    line: int
    column: int

    def in_script(self, decision: Decision) -> Decision:
        """Return the decision; a construct that cannot be analysed has its position in the script."""
        unread = decision.unanalysable
        if unread is None:
            return decision
        column = unread.column + (self.column - 1 if unread.line == 1 else 0)
        moved = replace(unread, line=unread.line + self.line - 1, column=column)
        reason = decision.reason.replace(str(unread), str(moved), 1)
        return replace(decision, unanalysable=moved, reason=reason)

    @contextmanager
    def named(self, clusters: Clusters) -> Iterator[None]:
        """Name the statement in the error of a refusal, unless it is the only one of its script."""
        try:
            yield
        except RoutingError as error:
            decision = error.facts.get("decision")
            if isinstance(decision, Decision) and decision.unanalysable is not None:
                error = failure(self.in_script(decision), clusters)
            if self.count == 1:
                raise error from None
            raise type(error)(
                f"Statement {self.number} of {self.count}, from line {self.line}: {error.message}",
                remedy=error.remedy,
                **{**error.facts, "statement": self.number},
            ) from None


def _placed(script: str) -> list[tuple[_Place, str]]:
    """Return the statements of a script with their places; see :func:`statements_of`."""
    try:
        statements = placed_statements(script)
    except UnreadableError as error:
        position = error.at(script)
        raise UnanalysableError(
            f"The script cannot be divided into statements: {position}.",
            remedy="Correct it there.",
            line=position.line,
            column=position.column,
        ) from error
    if not statements:
        raise UnanalysableError(
            "The script has no statement.",
            remedy="Write one; a template may have been rendered as an empty text.",
            line=1,
            column=1,
        )
    return [
        (
            _Place(
                number=number,
                count=len(statements),
                line=script.count("\n", 0, begin) + 1,
                column=begin - script.rfind("\n", 0, begin),
            ),
            text,
        )
        for number, (begin, text) in enumerate(statements, 1)
    ]


def _refuse_temporary(text: str, decision: Decision) -> None:
    statement = analyse(text)
    if isinstance(statement, Statement) and any(output.temporary for output in statement.outputs):
        raise RoutingError(
            "Temporary tables and views end with their statement: each has a session of its own.",
            remedy="Use a common table expression (WITH), or a table.",
            decision=decision,
        )


def _names_in(text: str, session: Session) -> list[tuple[str, str]]:
    statement = analyse(text)
    names = statement.names if isinstance(statement, Statement) else ()
    return [(name.database or session.database, name.name) for name in names]


def _copies_used(decision: Decision) -> dict[tuple[str, str, str], frozenset[tuple[str, ...]] | None]:
    """Return the tables of which the decision reads copies, with the cluster of these copies.

    :return: by database, table and cluster, the values of the partitions whose copies are read; ``None`` for
        an unpartitioned table, and if the decision does not name all of these partitions.
    """
    used: dict[tuple[str, str, str], frozenset[tuple[str, ...]] | None] = {}
    for use in decision.inputs if decision.cluster is not None else ():
        groups = [group for group in use.groups if group.readable[0] != decision.cluster]
        if groups:
            all_named = all(group.partitions == len(group.values) for group in groups)
            values = frozenset().union(*(group.values for group in groups)) if all_named else None
            used[use.table.database or "", use.table.name, str(decision.cluster)] = values
    return used
