"""Finds the copies of removed files that the source's change manager keeps (``hive.repl.cm.enabled``).

A dump lists the present files. Files that are dropped or truncated before they are copied are read from the
change manager's copies instead. Hive's change manager keeps them for managed tables of databases with
``repl.source.for``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import InvalidOperationError, UnsupportedMethodError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.event_messages import read_event
from airflow_hive_federation.model.events import TxnEnded, WriteIdsAllocated
from airflow_hive_federation.model.kept_files import kept_files
from airflow_hive_federation.replication.dump.event_fold import EventFold
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.storage.filesystem import canonical

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def kept_by_source(client: MetastoreClient, database: str, folded: EventFold) -> Mapping[str, str]:
    """Map canonical URIs of files in a cycle's events to the places that the source keeps them in.

    An event names the files of a table without transactions. The files of transactions take one call per
    transaction, and only if the source has a change manager.

    :param client: client of the source.
    """
    if not _is_kept(client, database):
        return {}
    return {
        **folded.kept,
        **dict(_written(client, database, (txn for txn, committed in folded.ends if committed))),
    }


def kept_for_bootstrap(client: MetastoreClient, database: str) -> Mapping[str, str]:
    """Return the same map as :func:`kept_by_source`, for all events that the source still has.

    The change manager names a file by its checksum, which only the event of its creation contains: a file
    that is older than the source's events (``metastore.event.db.listener.timetolive``) is not found.

    :param client: client of the source.
    """
    if not _is_kept(client, database):
        return {}
    kept: dict[str, str] = {}
    writers: set[int] = set()
    committed: list[int] = []
    for raw in client.iter_notification_events(0):
        if (raw.dbName or "").lower() not in {"", database}:
            continue
        event = read_event(raw)
        kept.update((canonical(uri), place) for uri, place in event.kept)
        if isinstance(event, WriteIdsAllocated):
            writers.update(txn for txn, _ in event.write_ids)
        elif isinstance(event, TxnEnded) and event.committed and event.txn_id in writers:
            committed.append(event.txn_id)
    return {**kept, **dict(_written(client, database, committed))}


def with_kept(files: Iterable[VisibleFile], kept: Mapping[str, str]) -> Iterator[VisibleFile]:
    """Yield the files with the places where the source's change manager keeps them after removal.

    :param kept: see :func:`kept_by_source`.
    """
    if not kept:
        return iter(files)
    return (replace(file, kept=kept.get(canonical(file.uri), "")) for file in files)


def _written(client: MetastoreClient, database: str, txns: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield the files that transactions wrote, with their places after removal."""
    for txn in txns:
        request = types.GetAllWriteEventInfoRequest(txnId=txn, dbName=database)
        try:
            written = client.call("get_all_write_event_info", request) or ()
        except UnsupportedMethodError:
            # Hive 3.1 records no files of transactions. Its cleaner waits for the dump's locks.
            return
        files = [entry.files for entry in written]
        yield from ((canonical(uri), place) for uri, place in kept_files(files))


def _is_kept(client: MetastoreClient, database: str) -> bool:
    if not (client.get_database(database).parameters or {}).get(markers.SOURCE_OF):
        return False
    try:
        enabled = str(client.get_config_value("hive.repl.cm.enabled", "false"))
    except InvalidOperationError:
        # The metastore does not disclose settings of such a name.
        return False
    return enabled.strip().lower() == "true"
