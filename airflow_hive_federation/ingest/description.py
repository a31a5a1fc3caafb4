"""Describes a streaming connection and checks the description before the connection is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.errors import ConfigurationError, NoSuchObjectError
from airflow_hive_federation.ingest.dead_letters import DeadLetterHandler
from airflow_hive_federation.ingest.errors import InvalidConnection, InvalidTable, metastore_errors
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.model.remote_links import remote_of
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.write.constraints import writable_layout
from airflow_hive_federation.tables.write.partition_values import value_text
from airflow_hive_federation.tables.write.plan import TableLayout, refuse_checks
from airflow_hive_federation.transactions.transaction import LOCK_POLICY
from airflow_hive_federation.waiting import PollPolicy

_BUFFER_BYTES = 128 << 20


@dataclass(frozen=True, kw_only=True)
class Description:
    """The settings that the builder has collected for one connection."""

    database: str = ""
    table: str = ""
    writer: AbstractRecordWriter | None = None
    settings: MetastoreSettings | None = None
    static: tuple[str, ...] = ()
    agent_info: str = "airflow-hive-federation"
    batch_size: int = 1
    buffer_bytes: int = _BUFFER_BYTES
    dead_letters: DeadLetterHandler | None = None
    dead_letter_limit: int | None = None
    position_key: str | None = None
    storage_options: StorageOptions | None = field(default=None, repr=False)
    lock_policy: PollPolicy = LOCK_POLICY
    at: Callable[[str], None] = lambda _step: None
    #: Files are written quickly: without compression, dictionaries and indexes.
    optimized: bool = True


def check_description(description: Description) -> None:
    """Check that no setting is missing.

    :raises InvalidConnection: a setting is missing; the error names the calls that set it.
    """
    missing = [
        name
        for name, value in (
            ("with_database", description.database),
            ("with_table", description.table),
            ("with_record_writer", description.writer),
            ("with_conf", description.settings),
        )
        if not value
    ]
    if missing:
        raise InvalidConnection("The connection is not described.", remedy=f"Call {', '.join(missing)} too.")
    if description.batch_size < 1 or description.buffer_bytes < 1:
        raise InvalidConnection("The size of a transaction batch, and of the buffer, is at least 1.")


def described_table(
    client: MetastoreClient, description: Description
) -> tuple[Any, TableLayout, tuple[str, ...]]:
    """Read the table and check that records can be streamed into it.

    :return: the table, its layout, and the static values as Hive writes them in partition names.
    :raises InvalidTable: the table does not exist, is a view, external, not transactional or not ORC, or has
        an enabled CHECK constraint.
    :raises InvalidConnection: the static values do not fit the table's partition keys.
    """
    name = f"{description.database}.{description.table}"
    with metastore_errors(InvalidTable, name, table=name):
        try:
            table = client.get_table(description.database, description.table)
        except NoSuchObjectError as error:
            raise InvalidTable(
                f"There is no table {name}.", remedy="Create it, or check its name.", table=name
            ) from error
    if table.tableType == "EXTERNAL_TABLE" and not remote_of(table.parameters):
        raise InvalidTable(
            f"{name} is an external table.", remedy="Stream into a transactional table.", table=name
        )
    try:
        with metastore_errors(InvalidTable, name, table=name):
            layout = writable_layout(client, table)
        refuse_checks(layout)
    except ConfigurationError as error:
        raise InvalidTable(error.message, remedy=error.remedy, table=name) from error
    if not layout.is_full_acid:
        raise InvalidTable(
            f"{name} is insert-only, not full ACID.", remedy="Stream into a full ACID table.", table=name
        )
    return table, layout, _static_values(description, layout)


def _static_values(description: Description, layout: TableLayout) -> tuple[str, ...]:
    keys = layout.key_names
    if description.static and len(description.static) != len(keys):
        raise InvalidConnection(
            f"{layout.name} has {len(keys)} partition keys, but {len(description.static)} static values "
            "are given.",
            remedy=f"Give a value for each of {', '.join(keys)}."
            if keys
            else "It has no partitions: give none.",
        )
    pairs = zip(layout.partition_keys, description.static, strict=False)
    return tuple(_static_value(layout.name, key, value) for key, value in pairs)


def _static_value(table: str, key: Column, value: str) -> str:
    if value.lower().startswith(f"{key.name}="):
        raise InvalidConnection(
            f"The value of partition key {key.name} of {table} is {value!r}.",
            remedy=f"Give the value alone: {value[len(key.name) + 1 :]!r}.",
        )
    try:
        return value_text(value, key.type)
    except ValueError as error:
        raise InvalidConnection(
            f"The value of partition key {key.name} of {table} is no {key.type}: {error}.",
            remedy="Give a value for each of the table's partition keys, of its type, in the table's order.",
        ) from error
