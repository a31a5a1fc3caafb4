"""Asking for a compaction, and waiting for it."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation import __version__
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker, MergeRunner
from airflow_hive_federation.errors import ConfigurationError, InvalidOperationError, MetastoreServerError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.waiting import PollPolicy, wait_until

#: States in the queue (``CompactionState``) from which a request does not go on by a worker.
DONE_STATES = frozenset(
    {"ready for cleaning", "succeeded", "refused", "failed", "did not initiate", "aborted"}
)

# The metastore may put a request in the queue between two of ours.
_TRIES = 3
_TYPES = {CompactionKind.MAJOR: types.CompactionType.MAJOR, CompactionKind.MINOR: types.CompactionType.MINOR}


@dataclass(frozen=True, kw_only=True)
class CompactionRequested:
    """A request in the queue.

    :param id: its number.
    :param table: ``database.table``.
    :param partition: the partition's name; empty if there is none.
    :param pool_name: pool of the workers that serve it; ``None`` for those that serve no pool.
    :param accepted: false if an earlier request for the same was waiting or at work: then this is that one.
    """

    id: int
    table: str
    partition: str
    pool_name: str | None
    accepted: bool


def request_compaction(
    client: MetastoreClient,
    table: str,
    kind: CompactionKind,
    *,
    partitions: Sequence[str] | None = None,
    pool_name: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> list[CompactionRequested]:
    """Put a table's compaction in the queue, as ``ALTER TABLE … COMPACT`` does.

    :param client: client of the metastore.
    :param table: ``database.table``.
    :param kind: major or minor.
    :param partitions: names of partitions (``day=2026-01-01/hour=7``); ``None`` means all.
    :param pool_name: pool of the workers that shall serve it.
    :param properties: ``compactor.…`` properties.
    :raises NoSuchObjectError: there is no such table.
    :raises ConfigurationError: it is not transactional, or has no partitions to name.
    :raises InvalidOperationError: the metastore refuses it.
    """
    request = types.CompactionRequest(
        type=_TYPES[kind],
        initiatorId=f"hive-federation-{socket.gethostname()}-{os.getpid()}",
        initiatorVersion=__version__,
        poolName=pool_name,
        properties=dict(properties) if properties else None,
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
    batch: int = 64,
    storage_options: Mapping[str, Any] | None = None,
    on_report: Callable[[CompactionReport], None] | None = None,
) -> list[CompactionReport]:
    """Compact a table here and now.

    The requests go through the queue all the same, in a pool of their own that nobody else serves, so that
    the metastore knows of them and its cleaner follows. A request for the same partition that waits already
    (the metastore makes some itself) is served before, with what its pool has before it; if that is a major
    compaction, or what is asked for, it is the partition's report.

    :param run_merges: what merges bucket files.
    :param batch: partitions compacted side by side.
    :param on_report: called for each partition done.
    :return: a report a partition; failures are reported, not raised. ``refused`` are also partitions that
        another worker is compacting, and, by Hive 4.2, those whose last compaction is not cleaned up yet.
    """
    own_pool = f"hive-federation-{uuid.uuid4().hex[:12]}"

    def worker(pool_name: str | None) -> CompactionWorker:
        return CompactionWorker(
            settings, run_merges, pool_name=pool_name, batch=batch, storage_options=storage_options
        )

    with MetastoreClient(settings) as client:
        revoke_dead_workers(client)
        reports = []
        for partition in partitions_of(client, table, partitions):
            try:
                done = _request_own(client, table, partition, kind=kind, own_pool=own_pool, worker=worker)
            except InvalidOperationError as error:
                done = _refusal(table, partition, kind, error)
            if done is not None:
                reports.append(done)
    for report in reports:
        if on_report is not None:
            on_report(report)
    return [*reports, *worker(own_pool).serve(until_empty=True, on_report=on_report)]


def partitions_of(client: MetastoreClient, table: str, partitions: Sequence[str] | None = None) -> list[str]:
    """Names of the partitions to compact: those named, or all; one empty name for a table without any.

    :raises NoSuchObjectError: there is no such table.
    :raises ConfigurationError: it is not transactional, or has no partitions to name.
    """
    database, _, name = table.partition(".")
    found: Any = client.get_table(database, name)
    if (found.parameters or {}).get("transactional", "").lower() != "true":
        raise ConfigurationError(f"{table} is not transactional: there is nothing to compact.")
    keys = [str(key.name) for key in found.partitionKeys or []]
    if not keys:
        if partitions:
            raise ConfigurationError(f"{table} has no partitions.", remedy="Name none.")
        return [""]
    if partitions is not None:
        return list(partitions)
    return [partition_name(keys, one.values or []) for one in client.iter_partitions(database, name)]


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
    # Hive 4.2 does not say which request it is that stands in the way.
    for one in _queue(client, dbName=request.dbname, tbName=request.tablename):
        if (one.partitionname or "") == partition and one.state in {"initiated", "working"}:
            return CompactionRequested(
                id=int(one.id or 0), table=table, partition=partition, pool_name=one.poolName, accepted=False
            )
    raise InvalidOperationError(
        f"The metastore refuses to compact {table} {partition}: {answer.errormessage or answer.state}.",
        remedy="SHOW COMPACTIONS tells more.",
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
    """Put a request into our own pool, or return the report of one that did as well."""
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
        remedy="Wait for it: SHOW COMPACTIONS tells which and since when.",
        table=table,
        partition=partition,
    )


def wait_for_compactions(
    client: MetastoreClient, ids: Sequence[int], policy: PollPolicy
) -> list[types.ShowCompactResponseElement]:
    """Wait until requests are served, by whatever worker.

    :raises InvalidOperationError: one is not served in the policy's time.
    """
    waiting = list(ids)

    def all_done() -> bool:
        waiting[:] = [one for one in waiting if queue_entry(client, one).state not in DONE_STATES]
        return not waiting

    if not wait_until(all_done, policy):
        raise InvalidOperationError(
            f"Compactions {', '.join(map(str, waiting))} are not done after {policy.timeout_s:g} s.",
            remedy="Start a worker: hive-federation compact worker.",
            compaction_ids=waiting,
        )
    return [queue_entry(client, one) for one in ids]


def queue_entry(client: MetastoreClient, compaction_id: int) -> types.ShowCompactResponseElement:
    """What the queue, or its history, says of a request.

    :raises MetastoreServerError: it knows none of that number.
    """
    for one in _queue(client, id=compaction_id):
        if one.id == compaction_id:
            return one
    raise MetastoreServerError(
        f"The metastore knows no compaction {compaction_id}.", remedy="It may have left the history."
    )


def revoke_dead_workers(client: MetastoreClient) -> list[int]:
    """Mark requests failed that a killed worker of this machine left at work; abort their transactions.

    Otherwise they would keep their partitions from being compacted again, for a day
    (``metastore.compactor.worker.timeout``).
    """
    prefix = f"hive-federation-{socket.gethostname()}-"
    revoked = []
    for one in _queue(client):
        pid = (one.workerid or "").removeprefix(prefix)
        if one.state != "working" or not pid.isdecimal() or _lives(int(pid)):
            continue
        client.call(
            "mark_failed",
            types.CompactionInfoStruct(
                id=one.id,
                dbname=one.dbname,
                tablename=one.tablename,
                partitionname=one.partitionname,
                type=one.type,
                workerId=one.workerid,
                errorMessage="The worker was killed.",
            ),
        )
        if one.txnId:
            client.abort_txns([one.txnId])
        revoked.append(int(one.id or 0))
    return revoked


def _queue(client: MetastoreClient, **filters: Any) -> list[types.ShowCompactResponseElement]:
    found: list[types.ShowCompactResponseElement] = (
        client.call("show_compact", types.ShowCompactRequest(**filters)).compacts or []
    )
    return found


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
