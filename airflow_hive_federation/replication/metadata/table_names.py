"""Renames tables of the source, so that dumps, loads and comparisons know them by their names on the target.

A dump is written with the target's names. Calls to the source translate names from the target's to the
source's, and their results translate them back.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.calls.partition_pages import Page
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.objects import Described
from airflow_hive_federation.model.events import Event, TableAltered, TableEvent
from airflow_hive_federation.model.view_text import Renaming
from airflow_hive_federation.model.views import reason_to_leave_out
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.definitions import not_replicated, table_kind
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


#: The reason to skip a table that the policy does not select.
LEFT_OUT = "the policy leaves it out"

#: The parameters that carry names of tables in a client's methods.
_TABLES = {"table", "tables", "full_table_names"}


def named_source(pool: MetastorePool, policy: ReplicationPolicy) -> MetastorePool:
    """Return a pool of connections to the source that know tables by their names on the target.

    :raises ConfigurationError: when tables are listed, and two of them would have one name.
    """
    return cast("MetastorePool", _NamedPool(pool, policy)) if policy.table_names else pool


def named_event(policy: ReplicationPolicy, event: Event) -> Event:
    """Return an event of the source with the target's names of its tables."""
    source = policy.source_database
    if policy.table_names and isinstance(event, TableEvent):
        if event.database == source:
            event = replace(event, table=policy.target_table(event.table))
        if isinstance(event, TableAltered) and event.old_database == source:
            event = replace(event, old_table=policy.target_table(event.old_table))
    return event


def reason_to_skip(policy: ReplicationPolicy, table: types.Table) -> str | None:
    """Return the reason for which a table of the source is not replicated; ``None`` if it is.

    :param table: wire ``Table``, with its name on the target.
    """
    if not policy.replicates(table.tableName):
        return LEFT_OUT
    if table_kind(table) is TableKind.VIEW:
        return reason_to_leave_out(table, _renaming(policy))
    return not_replicated(table)


def asked_for(skipped: Mapping[str, str]) -> dict[str, str]:
    """Return the skipped tables that the policy nevertheless selects.

    :param skipped: names of skipped tables, each with the reason (:func:`reason_to_skip`).
    """
    return {name: why for name, why in skipped.items() if why != LEFT_OUT}


def is_left_from_before(policy: ReplicationPolicy, table: types.Table) -> bool:
    """Return whether a view of the target stayed out when the target was the source, before a failover.

    :param table: wire ``Table`` of the target.
    """
    if not policy.into_existing or table_kind(table) is not TableKind.VIEW:
        return False
    way_here = Renaming(
        source_database=policy.target_database,
        target_database=policy.source_database,
        tables={target: source for source, target in policy.table_names.items()},
    )
    return reason_to_leave_out(table, way_here) is not None


def _renaming(policy: ReplicationPolicy) -> Renaming:
    return Renaming(
        source_database=policy.source_database,
        target_database=policy.target_database,
        tables=policy.table_names,
    )


class _NamedPool:
    """Lends clients that know tables by their names on the target."""

    def __init__(self, pool: MetastorePool, policy: ReplicationPolicy) -> None:
        self._pool, self._policy = pool, policy

    def __getattr__(self, name: str) -> object:
        return getattr(self._pool, name)

    @contextmanager
    def client(self) -> Iterator[_NamedClient]:
        with self._pool.client() as client:
            yield _NamedClient(client, self._policy)


class _NamedClient:
    """Forwards calls to a client, and translates names of tables in the calls that dumps make."""

    def __init__(self, client: MetastoreClient, policy: ReplicationPolicy) -> None:
        self._client, self._policy = client, policy

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._client, name)
        if callable(attribute) and _TABLES & inspect.signature(attribute).parameters.keys():
            # The call would reach the table that bears this name on the source, which is another one.
            raise NotImplementedError(f"{name} does not translate names of tables")
        return attribute

    def list_tables(self, database: str) -> list[str]:
        sources = self._client.list_tables(database)
        names = Counter(map(self._policy.target_table, sources))
        for target in (name for name, count in names.items() if count > 1):
            both = ", ".join(
                sorted(source for source in sources if self._policy.target_table(source) == target)
            )
            raise ConfigurationError(
                f"Policy {self._policy.name!r} gives several tables of {database} the name {target}: {both}.",
                remedy="Give one of them another name in table_names, or leave it out of the source.",
                table=target,
            )
        return list(names)

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        wire_tables = self._client.get_tables(database, list(map(self._policy.source_table, names)))
        return [self._named(table) for table in wire_tables]

    def get_table(self, database: str, table: str, **how: Any) -> types.Table:
        return self._named(self._client.get_table(database, self._policy.source_table(table), **how))

    def get_table_constraints(self, database: str, table: str) -> object:
        wire_constraints = self._client.get_table_constraints(database, self._policy.source_table(table))
        for constraints in vars(wire_constraints).values():
            for constraint in constraints or ():
                for side in ("", "pk", "fk"):
                    self._rename(
                        constraint, f"{side}table_name", getattr(constraint, f"{side}table_db", database)
                    )
        return wire_constraints

    def partition_pages(
        self, database: str, table: str, *, with_column_stats: bool = False
    ) -> Iterator[Page]:
        source = self._policy.source_table(table)
        return self._client.partition_pages(database, source, with_column_stats=with_column_stats)

    def read_page(self, database: str, table: str, page: Page) -> list[types.Partition]:
        partitions = self._client.read_page(database, self._policy.source_table(table), page)
        return [self._named(partition) for partition in partitions]

    def iter_partitions(self, database: str, table: str, **how: Any) -> Iterator[types.Partition]:
        partitions = self._client.iter_partitions(database, self._policy.source_table(table), **how)
        return (self._named(partition) for partition in partitions)

    def get_partitions_column_statistics(
        self, database: str, table: str, names: Sequence[str], **how: Any
    ) -> object:
        source = self._policy.source_table(table)
        return self._client.get_partitions_column_statistics(database, source, names, **how)

    def get_valid_write_ids(
        self, tables: Sequence[str], *, valid_txn_list: str | None = None
    ) -> dict[str, types.TableValidWriteIds]:
        by_source = {self._full(table): table for table in tables}
        answers = self._client.get_valid_write_ids(list(by_source), valid_txn_list=valid_txn_list)
        return {by_source[name]: answer for name, answer in answers.items()}

    def keep_history(
        self, txn_id: int, tables: Sequence[str], *, locked: frozenset[str] = frozenset()
    ) -> frozenset[str] | None:
        # The names of locks stay the source's: only this method reads them.
        return self._client.keep_history(txn_id, list(map(self._full, tables)), locked=locked)

    def waits_for_locks(self, name: str) -> bool:
        return self._client.waits_for_locks(self._full(name))

    def _full(self, name: str) -> str:
        database, _, table = name.partition(".")
        return f"{database}.{self._policy.source_table(table)}"

    def _named(self, described: Described) -> Described:
        """Rename a wire ``Table`` or ``Partition`` to the target's name, and return it."""
        self._rename(described, "tableName", described.dbName)
        if described.colStats is not None:
            self._rename(described.colStats.statsDesc, "tableName", described.dbName)
        return described

    def _rename(self, described: object, field: str, database: str | None) -> None:
        name = getattr(described, field, None)
        if name and (database or "").lower() == self._policy.source_database:
            setattr(described, field, self._policy.target_table(name))
