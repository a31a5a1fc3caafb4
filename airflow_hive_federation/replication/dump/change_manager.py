"""Where the source keeps files that are removed, if its change manager is on (``hive.repl.cm.enabled``).

A dump lists what there is; what is dropped or truncated before it is copied is read from there instead.
Hive's change manager does so for managed tables of databases with ``repl.source.for``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import InvalidOperationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.events import TxnEnded, WriteIdsAllocated, kept_files, read_event
from airflow_hive_federation.replication.dump.increment_plan import EventFold
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.storage.filesystem import canonical

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def kept_by_source(client: MetastoreClient, database: str, folded: EventFold) -> Mapping[str, str]:
    """Canonical URIs of files that a cycle's events tell of → where they are once they are removed.

    An event names the files of a table without transactions; those of a transaction are asked for one
    transaction at a time, and only if there is a change manager.

    :param client: client of the source.
    """
    if not _is_kept(client, database):
        return {}
    return {
        **folded.kept,
        **dict(_written(client, database, (txn for txn, committed in folded.ends if committed))),
    }


def kept_for_bootstrap(client: MetastoreClient, database: str) -> Mapping[str, str]:
    """The same as :func:`kept_by_source`, of all events that the source still has.

    The change manager calls a file by its checksum, which only the event of its creation tells: a file that
    is older than the source's events (``metastore.event.db.listener.timetolive``) is not found.

    :param client: client of the source.
    """
    if not _is_kept(client, database):
        return {}
    found: dict[str, str] = {}
    writers: set[int] = set()
    committed: list[int] = []
    for raw in client.iter_notification_events(0):
        if (raw.dbName or "").lower() not in {"", database}:
            continue
        event = read_event(raw)
        found.update((canonical(uri), place) for uri, place in event.kept)
        if isinstance(event, WriteIdsAllocated):
            writers.update(txn for txn, _ in event.write_ids)
        elif isinstance(event, TxnEnded) and event.committed and event.txn_id in writers:
            committed.append(event.txn_id)
    return {**found, **dict(_written(client, database, committed))}


def with_kept(files: Iterable[VisibleFile], kept: Mapping[str, str]) -> Iterator[VisibleFile]:
    """Note of each file where the source's change manager keeps it, if it has been removed.

    :param kept: see :func:`kept_by_source`.
    """
    if not kept:
        return iter(files)
    return (replace(one, kept=kept.get(canonical(one.uri), "")) for one in files)


def _written(client: MetastoreClient, database: str, txns: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Files that transactions wrote, and where they are once they are removed."""
    for txn in txns:
        request = types.GetAllWriteEventInfoRequest(txnId=txn, dbName=database)
        files = [one.files for one in client.call("get_all_write_event_info", request) or ()]
        yield from ((canonical(uri), place) for uri, place in kept_files(files))


def _is_kept(client: MetastoreClient, database: str) -> bool:
    if not (client.get_database(database).parameters or {}).get(markers.SOURCE_OF):
        return False
    try:
        enabled = str(client.get_config_value("hive.repl.cm.enabled", "false"))
    except InvalidOperationError:
        # The metastore tells nobody its settings of such a name.
        return False
    return enabled.strip().lower() == "true"
