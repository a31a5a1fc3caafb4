"""Lists the objects whose state is published, and forgets those that a person names.

A forgotten object appears again as soon as a task or command publishes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.published.clusters import (
    CLUSTERS,
    PLACED,
    ROUTED,
    ROUTES,
    DatabaseTables,
    PlacedTable,
)
from airflow_hive_federation.published.directory import (
    CYCLES,
    POSITION,
    REPLICATION,
    TABLES,
    VERIFICATION,
    StateDirectory,
)
from airflow_hive_federation.published.documents import PolicyName
from airflow_hive_federation.published.remotes import REMOTE, REMOTES
from airflow_hive_federation.published.work import COMPACTED, COMPACTION, INGEST, INGESTED


class Kind(StrEnum):
    """The kinds of objects on the page."""

    POLICY = "policy"
    REMOTE = "remote"
    TABLE = "table"
    CLUSTER = "cluster"
    INGEST = "ingest"
    QUEUE = "queue"


@dataclass(frozen=True, kw_only=True, order=True)
class Known:
    """An object whose state is published.

    :param of: the target database of a policy, or the metastore of any other object; empty for a document
        that cannot be read, whose name is its key.
    :param key: the key of the document.
    """

    kind: Kind
    name: str
    of: str
    key: str


def known_objects(directory: StateDirectory) -> list[Known]:
    """Return the objects whose state is published, in their order.

    :raises StorageError: the directory cannot be listed.
    """
    return sorted(
        {
            *_policies(directory),
            *_each(directory, Kind.REMOTE, REMOTES, lambda key: _remote(directory, key)),
            *_tables(directory),
            *_each(directory, Kind.INGEST, INGEST, lambda key: _ingest(directory, key)),
            *_each(directory, Kind.QUEUE, COMPACTION, lambda key: _queue(directory, key)),
        }
    )


def forget(directory: StateDirectory, kind: Kind, name: str, *, of: str | None = None) -> Known:
    """Forget what is published about one object.

    :param name: its name, or the key of its documents.
    :param of: the target database of a policy, or the metastore of any other object; it may be left out if
        only one object has the name.
    :raises ConfigurationError: no object has the name, or several have it.
    :raises StorageError: a document cannot be removed or written.
    """
    found = [
        each
        for each in known_objects(directory)
        if each.kind is kind and name in {each.name, each.key} and of in {None, each.of}
    ]
    if not found:
        raise ConfigurationError(
            f"No {kind} {name!r} is published in {directory.uri}.",
            remedy="hive-federation state list prints what is.",
        )
    # A cluster has tables in several databases, and each has a document.
    different = {each.of if kind is Kind.CLUSTER else each.key for each in found}
    if len(different) > 1:
        places = ", ".join(sorted({each.of for each in found}))
        raise ConfigurationError(
            f"Several objects of kind {kind} have the name {name!r}, in {places}.",
            remedy=f"Name one of these with {'--target' if kind is Kind.POLICY else '--metastore'}.",
        )
    for each in found:
        _forget(directory, each)
    return found[0]


def _forget(directory: StateDirectory, known: Known) -> None:
    match known.kind:
        case Kind.POLICY:
            directory.remove(REPLICATION, known.key)
        case Kind.REMOTE:
            directory.remove(REMOTES, known.key)
        case Kind.INGEST:
            directory.remove(INGEST, known.key)
        case Kind.QUEUE:
            directory.remove(COMPACTION, known.key)
        case Kind.TABLE:
            _fold(directory, known.key, lambda table: None if table.name == known.name else table)
        case Kind.CLUSTER:
            _fold(directory, known.key, lambda table: _without(table, known.name))
            _forget_routes(directory, known)


def _fold(directory: StateDirectory, key: str, change: Callable[[PlacedTable], PlacedTable | None]) -> None:
    before = directory.readable(CLUSTERS, key, PLACED)
    tables = [after for table in before.tables if (after := change(table))] if before else []
    if before is None or not tables:
        directory.remove(CLUSTERS, key)
    else:
        directory.write(CLUSTERS, key, PLACED, replace(before, tables=tuple(tables)))


def _without(table: PlacedTable, cluster: str) -> PlacedTable | None:
    if table.primary == cluster:
        return None
    return replace(table, copies=tuple(copy for copy in table.copies if copy.cluster != cluster))


def _forget_routes(directory: StateDirectory, known: Known) -> None:
    for key in directory.keys(ROUTES):
        routes = directory.readable(ROUTES, key, ROUTED)
        if routes is not None and routes.metastore == known.of:
            kept = tuple(route for route in routes.routes if route.cluster != known.name)
            directory.write(ROUTES, key, ROUTED, replace(routes, routes=kept))


def _policies(directory: StateDirectory) -> Iterator[Known]:
    for key in directory.keys(REPLICATION):
        policy = _policy(directory, key)
        if policy is None:
            yield Known(kind=Kind.POLICY, name=key, of="", key=key)
        else:
            yield Known(kind=Kind.POLICY, name=policy.name, of=policy.target_database, key=key)


def _policy(directory: StateDirectory, key: str) -> PolicyName | None:
    for document in (
        directory.readable(REPLICATION, key, POSITION),
        directory.readable(REPLICATION, key, CYCLES),
        directory.readable(REPLICATION, key, VERIFICATION),
        directory.readable(REPLICATION, key, TABLES),
    ):
        if document is not None:
            return document.policy
    return None


def _each(
    directory: StateDirectory, kind: Kind, folder: str, name_of: Callable[[str], tuple[str, str] | None]
) -> Iterator[Known]:
    for key in directory.keys(folder):
        name, of = name_of(key) or (key, "")
        yield Known(kind=kind, name=name, of=of, key=key)


def _remote(directory: StateDirectory, key: str) -> tuple[str, str] | None:
    state = directory.readable(REMOTES, key, REMOTE)
    return None if state is None else (state.remote, state.metastore)


def _ingest(directory: StateDirectory, key: str) -> tuple[str, str] | None:
    state = directory.readable(INGEST, key, INGESTED)
    return None if state is None else (state.table, state.metastore)


def _queue(directory: StateDirectory, key: str) -> tuple[str, str] | None:
    state = directory.readable(COMPACTION, key, COMPACTED)
    return None if state is None else (state.metastore, state.metastore)


def _tables(directory: StateDirectory) -> Iterator[Known]:
    for key in directory.keys(CLUSTERS):
        state = directory.readable(CLUSTERS, key, PLACED)
        if state is None:
            yield Known(kind=Kind.TABLE, name=key, of="", key=key)
        else:
            yield from _of_database(key, state)


def _of_database(key: str, state: DatabaseTables) -> Iterator[Known]:
    for table in state.tables:
        yield Known(kind=Kind.TABLE, name=table.name, of=state.metastore, key=key)
        for cluster in (table.primary, *(copy.cluster for copy in table.copies)):
            if cluster:
                yield Known(kind=Kind.CLUSTER, name=cluster, of=state.metastore, key=key)
