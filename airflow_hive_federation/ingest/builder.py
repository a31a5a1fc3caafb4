"""The builder describes a streaming connection, with the names of Hive's builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from airflow_hive_federation.ingest.dead_letters import DeadLetterFile, DeadLetterHandler
from airflow_hive_federation.ingest.description import Description, check_description
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter
from airflow_hive_federation.ingest.hive_conf import metastore_settings, site_settings, warn_of_overridden
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from airflow_hive_federation.waiting import PollPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.ingest.connection import HiveStreamingConnection


class StreamingConnectionBuilder:
    """Describes a connection; the names are those of Hive's builder."""

    def __init__(self) -> None:
        self._said = Description()

    def with_database(self, database: str) -> Self:
        """Name the table's database."""
        return self._with(database=database.lower())

    def with_table(self, table: str) -> Self:
        """Name the table."""
        return self._with(table=table.lower())

    def with_record_writer(self, writer: AbstractRecordWriter) -> Self:
        """Say how records are read. A writer serves one connection."""
        return self._with(writer=writer)

    def with_static_partition_values(self, values: Sequence[str | None]) -> Self:
        """Name the one partition to write to, created if need be; without, the records' last fields do."""
        return self._with(
            static=tuple(DEFAULT_PARTITION if one in {None, ""} else str(one) for one in values)
        )

    def with_agent_info(self, agent_info: str) -> Self:
        """Say who is writing; ``SHOW TRANSACTIONS`` and ``SHOW LOCKS`` show it."""
        return self._with(agent_info=agent_info)

    def with_conf(self, conf: MetastoreSettings | Mapping[str, str] | None) -> Self:
        """Say where the metastore is.

        :param conf: settings of a client; or Hive's own settings, with ``metastore.thrift.uris`` among them;
            or ``None`` for those of ``hive-site.xml`` in ``HIVE_CONF_DIR``. Those that
            :data:`~.hive_conf.OVERRIDDEN` names have no other value here; one that is given is logged.
        :raises InvalidConnection: no metastore is named.
        """
        if isinstance(conf, MetastoreSettings):
            return self._with(settings=conf)
        given = site_settings() if conf is None else conf
        warn_of_overridden(given)
        return self._with(settings=metastore_settings(given))

    def with_transaction_batch_size(self, size: int) -> Self:
        """Say how many transactions are opened together, and share files (1)."""
        return self._with(batch_size=size)

    def with_streaming_optimizations(self, enabled: bool) -> Self:
        """Write quickly (the default): without compression, dictionaries and indexes.

        Compaction adds them.
        """
        return self._with(optimized=enabled)

    def with_dead_letters(self, to: str | DeadLetterHandler, *, limit: int | None = None) -> Self:
        """Put bad records aside instead of raising.

        :param to: a file of this machine, or what takes each :class:`DeadLetter`, as a ``DeadLetterFile`` of
            another place does.
        :param limit: how many at most; ``None`` is any number.
        """
        handler = DeadLetterFile(to) if isinstance(to, str) else to
        return self._with(dead_letters=handler, dead_letter_limit=limit)

    def with_position_key(self, key: str) -> Self:
        """Name the table parameter that commits set (``_meta…``); connecting makes it, and reads it back."""
        return self._with(position_key=key)

    def with_buffer_bytes(self, size_bytes: int) -> Self:
        """Say how many bytes of rows are held before they are written to the files (128 MiB)."""
        return self._with(buffer_bytes=size_bytes)

    def with_storage_options(self, options: Mapping[str, Any] | None) -> Self:
        """Give the options of the store the table lies in."""
        return self._with(storage_options=options)

    def with_lock_policy(self, policy: PollPolicy) -> Self:
        """Say how to wait for locks."""
        return self._with(lock_policy=policy)

    def with_steps_told(self, at: Callable[[str], None]) -> Self:
        """Have every step told before the next one is taken, by tests that kill there."""
        return self._with(at=at)

    def connect(self) -> HiveStreamingConnection:
        """Connect: look at the table, and at the records' columns as far as they are known.

        :raises InvalidConnection: something is missing, or does not go together.
        :raises ConnectionError: no metastore answers.
        :raises InvalidTable: records cannot be streamed into the table.
        :raises InvalidColumn: the records' columns are not the table's.
        """
        from airflow_hive_federation.ingest.connection import HiveStreamingConnection

        check_description(self._said)
        return HiveStreamingConnection(self._said)

    def _with(self, **said: Any) -> Self:
        self._said = replace(self._said, **said)
        return self
