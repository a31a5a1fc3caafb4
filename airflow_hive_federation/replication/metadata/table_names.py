"""Tables that bear other names on the target: a policy's source, seen as the target names its tables.

A dump is written with the target's names, so loads and comparisons know no others. Where the source is asked,
names are translated on the way there, and in what it answers on the way back.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.events import Event, TableAltered, TableEvent
from airflow_hive_federation.model.view_text import Renaming
from airflow_hive_federation.model.views import reason_to_leave_out
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.definitions import not_replicated, table_kind
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


#: Why a table stays out that the policy does not ask for.
LEFT_OUT = "the policy leaves it out"

#: Parameters by which a client's methods are told of tables.
_TABLES = {"table", "tables", "full_table_names"}


def named_source(pool: MetastorePool, policy: ReplicationPolicy) -> MetastorePool:
    """Connections to the source that speak of tables by their names on the target.

    :raises ConfigurationError: when tables are listed, and two of them would have one name.
    """
    return cast("MetastorePool", _NamedPool(pool, policy)) if policy.table_names else pool


def named_event(policy: ReplicationPolicy, event: Event) -> Event:
    """An event of the source, with the target's names of its tables."""
    ours = policy.source_database
    if policy.table_names and isinstance(event, TableEvent):
        if event.database == ours:
            event = replace(event, table=policy.target_table(event.table))
        if isinstance(event, TableAltered) and event.old_database == ours:
            event = replace(event, old_table=policy.target_table(event.old_table))
    return event


def reason_to_skip(policy: ReplicationPolicy, table: Any) -> str | None:
    """Say why a table of the source stays out of the replica; ``None`` if it does not.

    :param table: wire ``Table``, with its name on the target.
    """
    if not policy.replicates(table.tableName):
        return LEFT_OUT
    if table_kind(table) is TableKind.VIEW:
        return reason_to_leave_out(table, _renaming(policy))
    return not_replicated(table)


def asked_for(skipped: Mapping[str, str] | None) -> dict[str, str]:
    """Those of the tables that stay out which the policy asks for all the same.

    :param skipped: names of tables with the reason why each stays out (:func:`reason_to_skip`).
    """
    # (Of increments, earlier versions noted the names alone.)
    found = skipped if isinstance(skipped, Mapping) else {}
    return {name: why for name, why in found.items() if why != LEFT_OUT}


def is_left_from_before(policy: ReplicationPolicy, table: Any) -> bool:
    """Whether a view of the target stayed out when the target was the source, before a failover.

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
    """Lends clients as a pool does."""

    def __init__(self, pool: MetastorePool, policy: ReplicationPolicy) -> None:
        self._pool, self._policy = pool, policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    @contextmanager
    def client(self) -> Iterator[Any]:
        with self._pool.client() as client:
            yield _NamedClient(client, self._policy)


class _NamedClient:
    """Asks as a client does; what dumps ask of tables, by their names on the target."""

    def __init__(self, client: MetastoreClient, policy: ReplicationPolicy) -> None:
        self._client, self._policy = client, policy

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if callable(found) and _TABLES & inspect.signature(found).parameters.keys():
            # It would ask for the table that bears this name on the source, which is another one.
            raise NotImplementedError(f"{name} does not translate names of tables")
        return found

    def list_tables(self, database: str) -> list[str]:
        found = self._client.list_tables(database)
        names = Counter(map(self._policy.target_table, found))
        for twice in (name for name, count in names.items() if count > 1):
            both = ", ".join(sorted(one for one in found if self._policy.target_table(one) == twice))
            raise ConfigurationError(
                f"Policy {self._policy.name!r} gives several tables of {database} the name {twice}: {both}.",
                remedy="Give one of them another name in table_names, or leave it out of the source.",
                table=twice,
            )
        return list(names)

    def get_tables(self, database: str, names: Sequence[str]) -> list[Any]:
        found: Any = self._client.get_tables(database, list(map(self._policy.source_table, names)))
        return [self._named(one) for one in found]

    def get_table(self, database: str, table: str, **how: Any) -> Any:
        return self._named(self._client.get_table(database, self._policy.source_table(table), **how))

    def get_table_constraints(self, database: str, table: str) -> Any:
        found: Any = self._client.get_table_constraints(database, self._policy.source_table(table))
        for constraints in vars(found).values():
            for one in constraints or ():
                for side in ("", "pk", "fk"):
                    self._rename(one, f"{side}table_name", getattr(one, f"{side}table_db", database))
        return found

    def partition_pages(self, database: str, table: str, **how: Any) -> Any:
        return self._client.partition_pages(database, self._policy.source_table(table), **how)

    def read_page(self, database: str, table: str, page: Any) -> list[Any]:
        found = self._client.read_page(database, self._policy.source_table(table), page)
        return [self._named(one) for one in found]

    def iter_partitions(self, database: str, table: str, **how: Any) -> Iterator[Any]:
        found = self._client.iter_partitions(database, self._policy.source_table(table), **how)
        return (self._named(one) for one in found)

    def get_partitions_column_statistics(
        self, database: str, table: str, names: Sequence[str], **how: Any
    ) -> Any:
        source = self._policy.source_table(table)
        return self._client.get_partitions_column_statistics(database, source, names, **how)

    def get_valid_write_ids(self, tables: Sequence[str], **how: Any) -> dict[str, Any]:
        by_source = {self._full(one): one for one in tables}
        found = self._client.get_valid_write_ids(list(by_source), **how)
        return {by_source[name]: answer for name, answer in found.items()}

    def keep_history(self, txn_id: int, tables: Sequence[str]) -> None:
        self._client.keep_history(txn_id, list(map(self._full, tables)))

    def _full(self, name: str) -> str:
        database, _, table = name.partition(".")
        return f"{database}.{self._policy.source_table(table)}"

    def _named(self, one: Any) -> Any:
        """A wire ``Table`` or ``Partition`` with the target's name."""
        self._rename(one, "tableName", one.dbName)
        if one.colStats is not None:
            self._rename(one.colStats.statsDesc, "tableName", one.dbName)
        return one

    def _rename(self, one: Any, field: str, database: str | None) -> None:
        name = getattr(one, field, None)
        if name and (database or "").lower() == self._policy.source_database:
            setattr(one, field, self._policy.target_table(name))
