"""Writes the notification events of a transaction's files, which replication reads."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from airflow_hive_federation.errors import UnsupportedMethodError
from airflow_hive_federation.ingest.grouping import Values
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.write.plan import TableLayout


def note_files(
    client: MetastoreClient,
    layout: TableLayout,
    files: Iterable[tuple[Values, str]],
    *,
    txn_id: int,
    write_id: int,
) -> None:
    """Write the notification events that name the files of a transaction, one per partition.

    :param files: values of the partition, and URI, of each file.
    :raises MetastoreError: the metastore does not write the events.
    """
    by_partition: dict[Values, list[str]] = {}
    for values, uri in files:
        by_partition.setdefault(values, []).append(uri)
    if not by_partition:
        return
    requests = [
        types.WriteNotificationLogRequest(
            txnId=txn_id,
            writeId=write_id,
            db=layout.database,
            table=layout.table,
            fileInfo=types.InsertEventRequestData(
                replace=False,
                filesAdded=uris,
                filesAddedChecksum=["" for _ in uris],
                subDirectoryList=[uri.rsplit("/", 2)[1] for uri in uris],
            ),
            partitionVals=list(values) or None,
        )
        for values, uris in by_partition.items()
    ]
    batch_request = types.WriteNotificationLogBatchRequest(
        catalog=client.settings.catalog, db=layout.database, table=layout.table, requestList=requests
    )
    try:
        client.call("add_write_notification_log_in_batch", batch_request)
    except UnsupportedMethodError:
        # Events of Hive 3.1 name no files of transactions.
        with suppress(UnsupportedMethodError):
            for request in requests:
                client.call("add_write_notification_log", request)
