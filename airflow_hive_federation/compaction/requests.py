"""Requests compactions from the metastore's queue and waits for them."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from airflow_hive_federation import __version__
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker, MergeRunner
from airflow_hive_federation.compaction.worker_names import host_prefix, worker_name
from airflow_hive_federation.errors import (
    ConfigurationError,
    InvalidOperationError,
    MetastoreServerError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.progress.quantities import several
from airflow_hive_federation.runtime.arguments import texts
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.snapshots import is_transactional

# The metastore may add a request to the queue between two requests of this process.
_TRIES = 3
_TYPES = {CompactionKind.MAJOR: types.CompactionType.MAJOR, CompactionKind.MINOR: types.CompactionType.MINOR}


@dataclass(frozen=True, kw_only=True)
class CompactionRequested:
    """A request in the compaction queue.

    :param id: number of the request.
    :param table: ``database.table``.
    :param partition: the partition's name; empty for a table without partitions.
    :param pool_name: pool of the workers that serve the request; ``None`` for workers without a pool.
    :param accepted: false if the queue already had a waiting or working request for the same partition; then
        the other fields describe that request.
    """

    id: int
    table: str
    partition: str
    pool_name: str | None
    accepted: bool


@dataclass(frozen=True, kw_only=True)
class CompactionResult:
    """The result of a table's compaction, or of the requests for one.

    :param compactions: the outcome per partition.
    :param requests: the requests that wait for a worker.
    """

    compactions: Sequence[CompactionReport] = ()
    requests: Sequence[CompactionRequested] = ()


@dataclass(frozen=True, kw_only=True)
class CompactionCounts:
    """The number of requests that a worker has served, per final state of :class:`CompactionReport`."""

    compacted: int = 0
    cleaning: int = 0
    refused: int = 0
    failed: int = 0

    @classmethod
    def of(cls, reports: Iterable[CompactionReport]) -> Self:
        """Count the reports by their states."""
        return cls(**Counter(report.state for report in reports))


def request_compaction(
    client: MetastoreClient,
    table: str,
    kind: CompactionKind,
    *,
    partitions: Sequence[str] | None = None,
    pool_name: str | None = None,
) -> list[CompactionRequested]:
    """Add a table's compaction to the queue, as ``ALTER TABLE … COMPACT`` does.

    :param client: client of the metastore.
    :param table: ``database.table``.
    :param kind: major or minor.
    :param partitions: names of partitions (``day=2026-01-01/hour=7``); ``None`` means all.
    :param pool_name: pool of the workers that serve the request.
    :raises NoSuchObjectError: the table or a named partition does not exist.
    :raises ConfigurationError: the table is not transactional, or partitions are named and it has none.
    :raises InvalidOperationError: the metastore refuses the request.
    """
    request = types.CompactionRequest(
        type=_TYPES[kind],
        initiatorId=worker_name(),
        initiatorVersion=__version__,
        poolName=pool_name,
    )
    names = partitions_of(client, table, partitions)
    return [_requested(client, table, partition, request) for partition in names]


def compact_table(
    settings: MetastoreSettings,
    table: str,
    kind: CompactionKind,
    run_merges: MergeRunner,
    *,
    partitions: Sequence[str] | None = None,
    batch_size: int = 64,
    storage_options: StorageOptions | None = None,
    on_report: Callable[[CompactionReport], None] | None = None,
) -> list[CompactionReport]:
    """Compact a table at once, in this process.

    The requests still pass through the queue, in a pool of their own that no other worker serves, so that the
    metastore knows them and its cleaner follows. If a request for the same partition is waiting already (the
    metastore creates some itself), it is served first, together with the earlier requests of its pool. If it
    is a major compaction or of the requested kind, its report is the partition's report.

    :param run_merges: merges bucket files.
    :param batch_size: number of partitions that are compacted at the same time.
    :param on_report: receives the report of each finished partition.
    :return: one report per partition; failures are reported, not raised. The state ``refused`` also covers
        partitions that another worker is compacting and, in Hive 4.2, those whose last compaction is not yet
        cleaned up.
    """
    own_pool = f"hive-federation-{uuid.uuid4().hex[:12]}"

    def worker(pool_name: str | None) -> CompactionWorker:
        return CompactionWorker(
            settings, run_merges, pool_name=pool_name, batch_size=batch_size, storage_options=storage_options
        )

    with MetastoreClient(settings) as client:
        revoke_dead_workers(client)
        reports = []
        for partition in partitions_of(client, table, partitions):
            try:
                early_report = _request_own(
                    client, table, partition, kind=kind, own_pool=own_pool, worker=worker
                )
            except InvalidOperationError as error:
                early_report = _refusal(table, partition, kind, error)
            if early_report is not None:
                reports.append(early_report)
    for report in reports:
        if on_report is not None:
            on_report(report)
    return [*reports, *worker(own_pool).serve(until_empty=True, on_report=on_report)]


def partitions_of(client: MetastoreClient, table: str, partitions: Sequence[str] | None = None) -> list[str]:
    """Return the names of the partitions to compact; one empty name for a table without partitions.

    :param partitions: names of partitions; ``None`` means all.
    :raises NoSuchObjectError: the table or a named partition does not exist.
    :raises ConfigurationError: the table is not transactional, partitions are named and it has none, or a
        name is empty.
    """
    named = None if partitions is None else texts("partitions", partitions)
    database, _, name = table.partition(".")
    if not (database and name):
        raise ConfigurationError(f"{table!r} names no table.", remedy="Write database.table.")
    try:
        described = client.get_table(database, name)
    except NoSuchObjectError as error:
        raise NoSuchObjectError(
            f"There is no table {table}.", remedy="Check its name, and the metastore.", table=table
        ) from error
    if not is_transactional(described):
        raise ConfigurationError(
            f"{table} is not transactional: there is nothing to compact.",
            remedy="Name a transactional table.",
        )
    keys = [str(key.name) for key in described.partitionKeys or []]
    if not keys:
        if named:
            raise ConfigurationError(
                f"{table} has no partitions.", remedy="Leave partitions (--partition) out."
            )
        return [""]
    if named is not None:
        if "" in named:
            raise ConfigurationError(
                f"A partition of {table} is named by an empty text.",
                remedy=f"Give names like {keys[0]}=VALUE, or none for all partitions.",
            )
        return _existing(client, table, keys, named)
    return [
        partition_name(keys, partition.values or []) for partition in client.iter_partitions(database, name)
    ]


def _existing(
    client: MetastoreClient, table: str, keys: Sequence[str], partitions: Sequence[str]
) -> list[str]:
    """Return named partitions, all of which exist.

    :raises NoSuchObjectError: some do not.
    """
    database, _, name = table.partition(".")
    found = {
        partition_name(keys, partition.values or [])
        for partition in client.get_partitions_of(database, name, list(partitions))
    }
    if missing := [partition for partition in partitions if partition not in found]:
        others = f" (nor {several(len(missing) - 1, 'other')})" if len(missing) > 1 else ""
        form = "/".join(f"{key}=VALUE" for key in keys)
        raise NoSuchObjectError(
            f"{table}, whose partition keys are {', '.join(keys)}, has no partition {missing[0]}{others}.",
            remedy=f"Write {form} as SHOW PARTITIONS {table} does, or name none for all partitions.",
            table=table,
            partitions=missing,
        )
    return list(partitions)


def _requested(
    client: MetastoreClient, table: str, partition: str, request: types.CompactionRequest
) -> CompactionRequested:
    request.dbname, _, request.tablename = table.lower().partition(".")
    request.partitionname = partition or None
    answer: Any = client.call("compact2", request)
    if answer.accepted:
        return CompactionRequested(
            id=answer.id, table=table, partition=partition, pool_name=request.poolName, accepted=True
        )
    # The answer of Hive 4.2 does not name the earlier request, so the queue is searched for it.
    for entry in _queue(client, dbName=request.dbname, tbName=request.tablename):
        if (entry.partitionname or "") == partition and entry.state in {"initiated", "working"}:
            return CompactionRequested(
                id=int(entry.id or 0),
                table=table,
                partition=partition,
                pool_name=entry.poolName,
                accepted=False,
            )
    raise InvalidOperationError(
        f"The metastore refuses to compact {table} {partition}: {answer.errormessage or answer.state}.",
        remedy="Look up the details with SHOW COMPACTIONS.",
        table=table,
        partition=partition,
    )


def _refusal(
    table: str, partition: str, kind: CompactionKind, error: InvalidOperationError
) -> CompactionReport:
    return CompactionReport(
        id=0, table=table, partition=partition, kind=kind.value, state="refused", message=str(error)
    )


def _request_own(
    client: MetastoreClient,
    table: str,
    partition: str,
    *,
    kind: CompactionKind,
    own_pool: str,
    worker: Callable[[str | None], CompactionWorker],
) -> CompactionReport | None:
    """Add a request to the own pool, or serve an earlier equivalent request and return its report."""
    enough = {CompactionKind.MAJOR.value, kind.value}
    for _ in range(_TRIES):
        (requested,) = request_compaction(
            client, table, kind, partitions=[partition] if partition else None, pool_name=own_pool
        )
        if requested.accepted:
            return None
        server = worker(requested.pool_name)
        while queue_entry(client, requested.id).state == "initiated":
            served = server.serve_next()
            for report in served:
                if report.id == requested.id and report.state == "compacted" and report.kind in enough:
                    return report
            if not served:
                break
        if queue_entry(client, requested.id).state == "working":
            break
    raise InvalidOperationError(
        f"{table} {partition}: another worker is compacting it.".replace(" :", ":"),
        remedy="Wait for that worker: SHOW COMPACTIONS shows its name and start time.",
        table=table,
        partition=partition,
    )


def queue_entry(client: MetastoreClient, compaction_id: int) -> types.ShowCompactResponseElement:
    """Return the entry of a request in the queue or its history.

    :raises MetastoreServerError: neither has a request of that number.
    """
    for entry in _queue(client, id=compaction_id):
        if entry.id == compaction_id:
            return entry
    raise MetastoreServerError(
        f"The metastore has no compaction {compaction_id}.",
        remedy="Check the id: Hive removes old compactions from its history.",
    )


def revoke_dead_workers(client: MetastoreClient) -> list[int]:
    """Mark the unfinished requests of killed workers of this machine as failed; abort their transactions.

    Otherwise these requests would block further compactions of their partitions for a day
    (``metastore.compactor.worker.timeout``).
    """
    revoked = []
    for entry in _queue(client):
        pid = (entry.workerid or "").removeprefix(host_prefix())
        if entry.state != "working" or not pid.isdecimal() or _lives(int(pid)):
            continue
        client.call(
            "mark_failed",
            types.CompactionInfoStruct(
                id=entry.id,
                dbname=entry.dbname,
                tablename=entry.tablename,
                partitionname=entry.partitionname,
                type=entry.type,
                workerId=entry.workerid,
                errorMessage="The worker was killed.",
            ),
        )
        if entry.txnId:
            client.abort_txns([entry.txnId])
        revoked.append(int(entry.id or 0))
    return revoked


def _queue(client: MetastoreClient, **filters: Any) -> list[types.ShowCompactResponseElement]:
    entries: list[types.ShowCompactResponseElement] = (
        client.call("show_compact", types.ShowCompactRequest(**filters)).compacts or []
    )
    return entries


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
