"""Where the source keeps files that are removed, if its change manager is on (``hive.repl.cm.enabled``).

A dump lists what there is; what is dropped or truncated before it is copied is read from there instead.
Hive's change manager does so for managed tables of databases with ``repl.source.for``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import InvalidOperationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.events import kept_files
from airflow_hive_federation.replication.dump.increment_plan import EventFold
from airflow_hive_federation.replication.target import markers
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
    found = dict(folded.kept)
    for txn, committed in folded.ends:
        if committed:
            request = types.GetAllWriteEventInfoRequest(txnId=txn, dbName=database)
            files = [one.files for one in client.call("get_all_write_event_info", request) or ()]
            found.update((canonical(uri), place) for uri, place in kept_files(files))
    return found


def _is_kept(client: MetastoreClient, database: str) -> bool:
    if not (client.get_database(database).parameters or {}).get(markers.SOURCE_OF):
        return False
    try:
        enabled = str(client.get_config_value("hive.repl.cm.enabled", "false"))
    except InvalidOperationError:
        # The metastore tells nobody its settings of such a name.
        return False
    return enabled.strip().lower() == "true"
