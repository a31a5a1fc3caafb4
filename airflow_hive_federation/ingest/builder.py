"""Builds the description of a streaming connection, with the method names of Hive's builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

from airflow_hive_federation.ingest.dead_letters import DeadLetterFile, DeadLetterHandler
from airflow_hive_federation.ingest.description import Description, check_description
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter
from airflow_hive_federation.ingest.hive_conf import metastore_settings, site_settings, warn_of_overridden
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.runtime.arguments import listed
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.waiting import PollPolicy

ConnectionT = TypeVar("ConnectionT")


class StreamingConnectionBuilder(Generic[ConnectionT]):
    """A builder of streaming connections, with the method names of Hive's builder.

    :param open_connection: opens the connection that a checked description describes.
    """

    def __init__(self, open_connection: Callable[[Description], ConnectionT]) -> None:
        self._open_connection = open_connection
        self._description = Description()

    def with_database(self, database: str) -> Self:
        """Set the database of the table."""
        return self._with(database=database.lower())

    def with_table(self, table: str) -> Self:
        """Set the table that receives the records."""
        return self._with(table=table.lower())

    def with_record_writer(self, writer: AbstractRecordWriter) -> Self:
        """Set the writer that parses the records; a writer serves one connection."""
        return self._with(writer=writer)

    def with_static_partition_values(self, values: Sequence[str | None]) -> Self:
        """Set the one partition that receives all records; the connection creates it if it does not exist.

        Without this call the last fields of each record name its partition.

        :raises ConfigurationError: the values are no list.
        """
        return self._with(
            static=tuple(
                DEFAULT_PARTITION if value in {None, ""} else str(value)
                for value in listed("partition", values)
            )
        )

    def with_agent_info(self, agent_info: str) -> Self:
        """Set the name of the writing agent, which ``SHOW TRANSACTIONS`` and ``SHOW LOCKS`` list."""
        return self._with(agent_info=agent_info)

    def with_conf(self, conf: MetastoreSettings | Mapping[str, str] | None) -> Self:
        """Set the address of the metastore and the settings of its client.

        :param conf: settings of a client; or Hive's own settings, with ``metastore.thrift.uris`` among them;
            or ``None`` for those of ``hive-site.xml`` in ``HIVE_CONF_DIR``. The settings in
            :data:`~.hive_conf.OVERRIDDEN` have one fixed value here; another value is logged and ignored.
        :raises InvalidConnection: the settings name no metastore.
        """
        if isinstance(conf, MetastoreSettings):
            return self._with(settings=conf)
        properties = site_settings() if conf is None else conf
        warn_of_overridden(properties)
        return self._with(settings=metastore_settings(properties))

    def with_transaction_batch_size(self, size: int) -> Self:
        """Set the number of transactions that are opened together and share files (1)."""
        return self._with(batch_size=size)

    def with_streaming_optimizations(self, enabled: bool) -> Self:
        """Write files quickly (the default): without compression, dictionaries and indexes.

        Compaction adds them later.
        """
        return self._with(optimized=enabled)

    def with_dead_letters(self, to: str | DeadLetterHandler, *, limit: int | None = None) -> Self:
        """Put bad records aside instead of raising an error.

        :param to: a file of this machine, or a handler that receives each :class:`DeadLetter`, for instance a
            ``DeadLetterFile`` in another store.
        :param limit: the most bad records that are put aside; ``None`` sets no limit.
        """
        handler = DeadLetterFile(to) if isinstance(to, str) else to
        return self._with(dead_letters=handler, dead_letter_limit=limit)

    def with_position_key(self, key: str) -> Self:
        """Set the key (``_meta…``) of the table parameter in which commits store the position of the input.

        Connecting creates the parameter if it does not exist, and reads its value.
        """
        return self._with(position_key=key)

    def with_buffer_bytes(self, size_bytes: int) -> Self:
        """Set how many bytes of rows are buffered before they are written to the files (128 MiB)."""
        return self._with(buffer_bytes=size_bytes)

    def with_storage_options(self, options: StorageOptions | None) -> Self:
        """Set the options of the store that holds the table."""
        return self._with(storage_options=options)

    def with_lock_policy(self, policy: PollPolicy) -> Self:
        """Set how often and how long transactions wait for their locks."""
        return self._with(lock_policy=policy)

    def with_step_callback(self, at: Callable[[str], None]) -> Self:
        """Set a callback that receives each step before the next one; tests kill the process in it."""
        return self._with(at=at)

    def connect(self) -> ConnectionT:
        """Connect to the metastore and check the table and the known columns of the records.

        :raises InvalidConnection: a setting is missing, or two settings contradict each other.
        :raises ConnectionError: no metastore answers.
        :raises InvalidTable: records cannot be streamed into the table.
        :raises InvalidColumn: the records' columns are not the table's.
        """
        check_description(self._description)
        return self._open_connection(self._description)

    def _with(self, **changes: Any) -> Self:
        self._description = replace(self._description, **changes)
        return self
