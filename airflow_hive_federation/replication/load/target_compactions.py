"""Requests compactions of the target's tables.

A metastore's initiator finds tables with new deltas by their completed writes (``COMPLETED_TXN_COMPONENTS``).
A replayed transaction leaves none there, unless its commit names every file that it wrote, as Hive's own
loads do (``CommitTxnRequest.writeEventInfos``): the metastore then looks up each partition, and reads the
checksum of each file, while the transaction commits. A load of this package has listed the directories
anyway, and requests the compactions itself: where an initiator is on, and by its thresholds
(``CompactorUtil.determineCompactionType``). Loads follow each other faster than the rounds of an initiator,
so that each commit to a small table would be followed by a compaction. Therefore a partition with few deltas
gets at most one request per interval of those rounds.

Results of the source's compactions are copied, and replace directories that the target has. Only the end of a
compaction gives such directories to the target's cleaner, so these partitions get a request, too.

No partition gets a request while a streaming batch in it is half committed: Hive's worker would hide its rows
(:func:`~airflow_hive_federation.compaction.plan.compactor_write_ids`).
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from airflow_hive_federation import __version__
from airflow_hive_federation.acid.snapshot import AcidState, acid_state
from airflow_hive_federation.compaction.plan import compactor_write_ids
from airflow_hive_federation.compaction.worker_names import worker_name
from airflow_hive_federation.errors import AcidFormatError, InvalidOperationError, MetastoreServerError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.progress.cycle_events import CompactionsRequested
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import Observer, Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.copying import TableCopy, partition_names
from airflow_hive_federation.replication.load.own_compactions import divided
from airflow_hive_federation.replication.replica.layout import TargetLayout, final_uri
from airflow_hive_federation.runtime.durations import parse_duration_s
from airflow_hive_federation.storage.filesystem import canonical

N = TypeVar("N", int, float)

logger = logging.getLogger(__name__)

_INITIATOR = ("metastore.compactor.initiator.on", "hive.compactor.initiator.on")
_DELTAS, _SHARE = "hive.compactor.delta.num.threshold", "hive.compactor.delta.pct.threshold"
_INTERVAL = ("metastore.compactor.check.interval", "hive.compactor.check.interval")
#: Seconds between two rounds of an initiator, by default.
_USUAL_INTERVAL_S = 300.0
#: Begins a table's parameter with a threshold of its own (``Initiator.COMPACTORTHRESHOLD_PREFIX``).
_OF_TABLE = "compactorthreshold."
_NOT_BY_ITSELF = "no_auto_compaction"
#: Readers wait for the publication meanwhile, and workers do not compact more during a usual cycle.
_MOST_REQUESTS = 1000
#: A load does not know which compactions of the target are committed.
_NO_COMPACTION = ValidTxns(high_watermark=0)
#: The metastore refuses another request for a partition in these states.
_PENDING = frozenset({"initiated", "working", "ready for cleaning"})


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The limits beyond which a partition is compacted.

    :param deltas: number of its deltas.
    :param share: size of its deltas, as a share of the size of its base.
    """

    deltas: int = 10
    share: float = 0.1

    def of_table(self, parameters: Mapping[str, str]) -> Thresholds:
        """Return the thresholds of a table, whose parameters may have others."""
        return Thresholds(
            deltas=_number(parameters.get(_OF_TABLE + _DELTAS), self.deltas),
            share=_number(parameters.get(_OF_TABLE + _SHARE), self.share),
        )


@dataclass(frozen=True, kw_only=True)
class Need:
    """The compaction that a partition needs.

    :param can_wait: another one that was requested a moment ago suffices: the partition has few deltas, and
        the cleaner none to remove.
    """

    kind: types.CompactionType
    can_wait: bool = False


def compaction_needed(state: AcidState, thresholds: Thresholds) -> Need | None:
    """Return the compaction that a partition needs; ``None`` if it needs none. Pure.

    :param state: the directories that its readers see, and those that others of them replace.
    """
    deltas = (*state.deltas, *state.delete_deltas)
    base_bytes = _size(state.base.files) if state.base else _size(state.originals)
    delta_bytes = sum(_size(delta.files) for delta in deltas)
    are_many = len(deltas) > thresholds.deltas
    if base_bytes and delta_bytes / base_bytes > thresholds.share:
        return Need(kind=types.CompactionType.MAJOR, can_wait=not are_many and not state.obsolete)
    if are_many:
        return Need(kind=types.CompactionType.MINOR if base_bytes else types.CompactionType.MAJOR)
    # The worker merges nothing, and leaves them to the cleaner.
    return Need(kind=types.CompactionType.MINOR) if state.obsolete else None


class TargetCompactions:
    """The compactions that a load's tables need on the target.

    :param client: client of the target.
    :param directory: the dump.
    :param layout: maps its tables to the target.
    """

    def __init__(
        self, client: MetastoreClient, directory: DumpDirectory, layout: TargetLayout, *, database: str
    ) -> None:
        self._client = client
        self._directory = directory
        self._layout = layout
        self._database = database
        self._needed: dict[str, dict[str, Need]] = {}

    def note(
        self,
        document: TableDocument,
        there: Mapping[str, FileEntry],
        copy: TableCopy,
        only: Collection[str] | None,
    ) -> None:
        """Find the partitions of a table that need a compaction after the load.

        :param there: the files on the target, by canonical URI.
        :param copy: the files that the load adds.
        :param only: names of the partitions that the load works on; ``None`` for the whole table.
        """
        write_ids = document.write_ids
        if write_ids is None or not document.kind.transactional or not self._is_automatic(document):
            return
        thresholds = self._thresholds.of_table(document.table.parameters or {})
        partitions = partition_names(self._directory, self._layout, document, only)
        needed = {}
        for home, listing in _by_directory(there, copy).items():
            need = _need(listing, write_ids, thresholds) if home in partitions else None
            if need is not None:
                needed[partitions[home]] = need
        self._needed[document.name] = needed

    def request(self, step: Steps, observer: Observer) -> None:
        """Add compactions to the metastore's queue that it does not have: 1,000 of them at most.

        Later loads that work on the other partitions request those.
        """
        if not any(self._needed.values()):
            return
        pending, recent = self._queue()
        requested, room = 0, _MOST_REQUESTS
        for table, needed in self._needed.items():
            new = [
                (name, need.kind)
                for name, need in needed.items()
                if (table, name) not in (recent if need.can_wait else pending)
            ][:room]
            if new:
                step(Step.REQUEST_COMPACTIONS, table)
                requested += self._request(table, new)
                room -= len(new)
        if requested:
            observer(CompactionsRequested(database=self._database, partitions=requested))

    def _request(self, table: str, needed: Iterable[tuple[str, types.CompactionType]]) -> int:
        request = types.CompactionRequest(
            dbname=self._database,
            tablename=table,
            initiatorId=worker_name(),
            initiatorVersion=__version__,
        )
        accepted = 0
        for name, kind in needed:
            request.partitionname, request.type = name or None, kind
            try:
                accepted += bool(self._client.call("compact2", request).accepted)
            except (InvalidOperationError, MetastoreServerError) as error:
                # The replica is right without it, and the next load that works on the table asks again.
                logger.warning(
                    "The target refuses to compact %s.%s, whose readers get slower with each cycle: %s",
                    self._database,
                    table,
                    error,
                )
                break
        return accepted

    def _queue(self) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """Return the partitions with pending requests, and those with pending or recent ones.

        The clocks of this machine and of the metastore's database are taken for equal: a difference changes
        when a partition is compacted, and nothing else.
        """
        answer = self._client.call("show_compact", types.ShowCompactRequest(dbName=self._database))
        since_ms = (time.time() - self._interval_s) * 1000
        pending, recent = set(), set()
        for entry in answer.compacts or ():
            if entry.dbname != self._database:
                continue
            partition = (str(entry.tablename), entry.partitionname or "")
            if entry.state in _PENDING:
                pending.add(partition)
            if max(entry.enqueueTime or 0, entry.start or 0) > since_ms:
                recent.add(partition)
        return pending, pending | recent

    @property
    def _interval_s(self) -> float:
        given = (parse_duration_s(self._setting(name)) for name in _INTERVAL)
        return next((seconds for seconds in given if seconds), _USUAL_INTERVAL_S)

    def _is_automatic(self, document: TableDocument) -> bool:
        parameters = document.table.parameters or {}
        value = parameters.get(_NOT_BY_ITSELF, parameters.get(_NOT_BY_ITSELF.upper()))
        if value is None:
            value = self._database_parameters.get(_NOT_BY_ITSELF, "")
        return value.lower() != "true" and self._has_initiator

    @cached_property
    def _database_parameters(self) -> Mapping[str, str]:
        return self._directory.database().parameters or {}

    @cached_property
    def _has_initiator(self) -> bool:
        return any(self._setting(name) == "true" for name in _INITIATOR)

    @cached_property
    def _thresholds(self) -> Thresholds:
        usual = Thresholds()
        return Thresholds(
            deltas=_number(self._setting(_DELTAS), usual.deltas),
            share=_number(self._setting(_SHARE), usual.share),
        )

    def _setting(self, name: str) -> str:
        return str(self._client.call("get_config_value", name, "") or "").lower()


def _by_directory(there: Mapping[str, FileEntry], copy: TableCopy) -> dict[str, list[FileEntry]]:
    """Return the files after the load by the directories of tables and partitions, with paths inside."""
    sizes = {uri: entry.size_bytes for uri, entry in there.items()}
    sizes |= {canonical(final_uri(item.target)): item.size_bytes for item in copy.items}
    listings: defaultdict[str, list[FileEntry]] = defaultdict(list)
    for uri, size_bytes in sizes.items():
        home, path = divided(uri)
        listings[home].append(FileEntry(path=path, size_bytes=size_bytes))
    return listings


def _need(listing: Sequence[FileEntry], write_ids: ValidWriteIds, thresholds: Thresholds) -> Need | None:
    try:
        if _is_half_committed(listing, write_ids):
            return None
        return compaction_needed(acid_state(listing, write_ids), thresholds)
    except AcidFormatError:
        # Readers and workers name the file; a load that has found it right goes on.
        return None


def _is_half_committed(listing: Iterable[FileEntry], write_ids: ValidWriteIds) -> bool:
    """Return whether a delta has write ids on both sides of the highest one that a compactor may read."""
    top = write_ids.for_compactor().high_watermark
    return compactor_write_ids(write_ids, listing, _NO_COMPACTION).high_watermark < top


def _size(files: Iterable[FileEntry]) -> int:
    return sum(entry.size_bytes for entry in files)


def _number(text: str | None, usual: N) -> N:
    try:
        return type(usual)(text) if text else usual
    except ValueError:
        # The initiator would fail at the table; a replica is not held up by it.
        return usual
