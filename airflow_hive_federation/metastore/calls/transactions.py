"""Makes the metastore's calls for transactions, write ids, locks and notification events."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import cast

from airflow_hive_federation.metastore.calls.base import Calls
from airflow_hive_federation.metastore.grpc_streams import EVENTS, FOLLOW, NotStreamed, events_query
from airflow_hive_federation.metastore.idl import types

log = logging.getLogger(__name__)

EVENTS_PER_CALL = 1000


class TransactionCalls(Calls):
    """Calls for transactions, write ids, locks and notification events."""

    def get_open_txns(self) -> types.GetOpenTxnsResponse:
        """Return the present snapshot: the ids of open and aborted transactions, and the highest id.

        Bit ``i`` of ``abortedBits`` (lowest bit of the first byte first) is set if ``open_txns[i]`` is
        aborted.
        """
        # Hive 4.2.1 fails with a NullPointerException if excludeTxnTypes is unset.
        request = types.GetOpenTxnsRequest(excludeTxnTypes=[])
        return cast("types.GetOpenTxnsResponse", self.call("get_open_txns_req", request))

    def open_txns(
        self,
        count: int = 1,
        *,
        user: str | None = None,
        host: str | None = None,
        agent_info: str | None = None,
        kind: types.TxnType = types.TxnType.DEFAULT,
        repl_policy: str | None = None,
        source_txn_ids: Sequence[int] | None = None,
    ) -> list[int]:
        """Open transactions and return their ids: ascending, or in the order of ``source_txn_ids``.

        :param user: user in ``SHOW TRANSACTIONS``; ``None`` takes the settings' user.
        :param kind: type of the transactions; ``REPL_CREATED`` with ``repl_policy`` and ``source_txn_ids``
            replays the source's transactions and keeps the map from their ids to the new ones.
        """
        request = types.OpenTxnRequest(
            num_txns=count,
            user=user or self.settings.effective_user(),
            hostname=host or socket.gethostname(),
            agentInfo=agent_info or self.settings.identifier,
            txn_type=kind,
            replPolicy=repl_policy,
            replSrcTxnIds=None if source_txn_ids is None else list(source_txn_ids),
        )
        txn_ids = cast("list[int]", self.call("open_txns", request).txn_ids)
        # The metastore reads the new ids from its database without an order (OpenTxnsFunction), and maps a
        # source's ids to them in that same order.
        return txn_ids if source_txn_ids is not None else sorted(txn_ids)

    def commit_txn(
        self,
        txn_id: int,
        *,
        excl_write_enabled: bool = False,
        kind: types.TxnType | None = None,
        repl_policy: str | None = None,
        key_value: types.CommitTxnKeyValue | None = None,
    ) -> None:
        """Commit a transaction.

        :param txn_id: the transaction's id; with ``repl_policy`` its id at the *source*.
        :param excl_write_enabled: ``True`` (the server's own default) skips the check for write conflicts.
        :param key_value: a parameter of the written table to set in the same step; it must exist already.
        :raises TransactionAbortedError: if the transaction was aborted, by a write conflict for instance.
        :raises NoSuchTransactionError: if the metastore does not know, or no longer keeps, the transaction.
        """
        request = types.CommitTxnRequest(
            txnid=txn_id,
            exclWriteEnabled=excl_write_enabled,
            txn_type=kind,
            replPolicy=repl_policy,
            keyValue=key_value,
        )
        self.call("commit_txn", request)

    def abort_txn(self, txn_id: int) -> None:
        """Abort a transaction.

        :raises NoSuchTransactionError: if the transaction is unknown, or committed already.
        """
        self.call("abort_txn", types.AbortTxnRequest(txnid=txn_id))

    def abort_txns(self, txn_ids: Sequence[int]) -> None:
        """Abort transactions, and leave finished transactions unchanged; without any, send nothing."""
        if not txn_ids:
            return  # The metastore answers an empty list with an internal error.
        self.call("abort_txns", types.AbortTxnsRequest(txn_ids=list(txn_ids)))

    def heartbeat_txn_range(self, first: int, last: int) -> types.HeartbeatTxnRangeResponse:
        """Keep the transactions from ``first`` to ``last`` alive; the answer lists those gone or aborted."""
        request = types.HeartbeatTxnRangeRequest(min=first, max=last)
        return cast("types.HeartbeatTxnRangeResponse", self.call("heartbeat_txn_range", request))

    def get_valid_write_ids(
        self, full_table_names: Sequence[str], *, valid_txn_list: str | None = None
    ) -> dict[str, types.TableValidWriteIds]:
        """Return each table's valid write ids, by the table's full name (``db.table``).

        :param valid_txn_list: snapshot of transactions in Hive's text form; ``None`` is the present one.
        """
        request = types.GetValidWriteIdsRequest(
            fullTableNames=list(full_table_names), validTxnList=valid_txn_list
        )
        answer = self.call("get_valid_write_ids", request)
        return {write_ids.fullTableName: write_ids for write_ids in answer.tblValidWriteIds}

    def allocate_table_write_ids(
        self,
        database: str,
        table: str,
        txn_ids: Sequence[int] | None = None,
        *,
        repl_policy: str | None = None,
        source_write_ids: Mapping[int, int] | None = None,
    ) -> dict[int, int]:
        """Allocate a write id on a table for each transaction, and return transaction id → write id.

        Another call for the same transaction returns the same write id.

        :param source_write_ids: with ``repl_policy``, the source's transaction ids and their write ids,
            which must be contiguous; the answer maps the target's transaction ids to these write ids, both
            in ascending order.
        """
        request = types.AllocateTableWriteIdsRequest(
            dbName=database,
            tableName=table,
            txnIds=None if txn_ids is None else list(txn_ids),
            replPolicy=repl_policy,
            srcTxnToWriteIdList=None
            if source_write_ids is None
            else [
                types.TxnToWriteId(txnId=txn, writeId=write)
                # The metastore counts up from the first write id of the list.
                for txn, write in sorted(source_write_ids.items(), key=itemgetter(1))
            ],
        )
        answer = self.call("allocate_table_write_ids", request)
        return {allocated.txnId: allocated.writeId for allocated in answer.txnToWriteIds}

    def repl_tbl_writeid_state(self, database: str, table: str, valid_write_ids: str) -> None:
        """Initialize the write ids of a new table.

        :param valid_write_ids: in Hive's text form, ``db.table:9:9223372036854775807::``. If it has aborted
            ids, Hive 4.2.1 shows a wrong high-water mark for a minute, and drops the aborted ids thereafter.
        """
        request = types.ReplTblWriteIdStateRequest(
            validWriteIdlist=valid_write_ids,
            user=self.settings.effective_user(),
            hostName=socket.gethostname(),
            dbName=database,
            tableName=table,
        )
        self.call("repl_tbl_writeid_state", request)

    def lock(
        self,
        components: Sequence[types.LockComponent],
        *,
        txn_id: int | None = None,
        user: str | None = None,
        host: str | None = None,
        agent_info: str | None = None,
    ) -> types.LockResponse:
        """Request locks; while the answer's ``state`` is ``LockState.WAITING``, call ``check_lock``."""
        request = types.LockRequest(
            component=list(components),
            txnid=txn_id,
            user=user or self.settings.effective_user(),
            hostname=host or socket.gethostname(),
            agentInfo=agent_info or self.settings.identifier,
        )
        return cast("types.LockResponse", self.call("lock", request))

    def check_lock(self, lock_id: int, *, txn_id: int | None = None) -> types.LockResponse:
        """Check whether a waiting lock is granted now.

        :raises NoSuchLockError: if the lock is unknown or has timed out.
        """
        request = types.CheckLockRequest(lockid=lock_id, txnid=txn_id)
        return cast("types.LockResponse", self.call("check_lock", request))

    def unlock(self, lock_id: int) -> None:
        """Release a lock that belongs to no transaction.

        :raises NoSuchLockError: if the lock is unknown or has timed out.
        """
        self.call("unlock", types.UnlockRequest(lockid=lock_id))

    def show_locks(
        self, *, database: str | None = None, table: str | None = None, txn_id: int | None = None
    ) -> list[types.ShowLocksResponseElement]:
        """Return the granted and the waiting locks."""
        request = types.ShowLocksRequest(dbname=database, tablename=table, txnid=txn_id, isExtended=True)
        return self.call("show_locks", request).locks or []

    def get_current_notification_event_id(self) -> int:
        """Return the id of the last notification event; 0 if the log has never had one."""
        return cast("int", self.call("get_current_notificationEventId").eventId)

    def iter_notification_events(
        self,
        after: int,
        *,
        up_to: int | None = None,
        database: str | None = None,
        batch_size: int = EVENTS_PER_CALL,
    ) -> Iterator[types.NotificationEvent]:
        """Yield the events with ids above ``after``, in order, from calls or from a gateway's stream.

        :param batch_size: the number of events per call.
        :param up_to: the last id to yield; ``None`` continues to the end of the log.
        :param database: only events of this database; the server filters (Hive 4).
        """
        last = after
        if (
            database is None
            and batch_size == EVENTS_PER_CALL
            and (up_to is None or up_to - after > batch_size)
        ):
            try:
                for event in self._streamed(EVENTS, types.NotificationEvent, events_query(after)):
                    if up_to is not None and (event.eventId or 0) > up_to:
                        return
                    last = event.eventId or last
                    yield event
                return
            except NotStreamed as error:
                log.debug("events after %d are read by calls: %s", last, error)
        yield from self._called_events(last, up_to=up_to, database=database, batch_size=batch_size)

    def iter_table_events(
        self, database: str, table: str, event_type: str
    ) -> Iterator[types.NotificationEvent]:
        """Yield the log's events of one type of a table, in order.

        :param event_type: Hive's name of the type, for instance ``DROP_TABLE``. Hive 4 filters the events; an
            older server also sends others.
        """
        return self._called_events(0, database=database, table=table, event_type=event_type)

    def _called_events(
        self,
        last: int,
        *,
        up_to: int | None = None,
        database: str | None = None,
        table: str | None = None,
        event_type: str | None = None,
        batch_size: int = EVENTS_PER_CALL,
    ) -> Iterator[types.NotificationEvent]:
        while up_to is None or last < up_to:
            request = types.NotificationEventRequest(
                lastEvent=last,
                maxEvents=batch_size,
                dbName=database,
                catName=self._catalog() if database else None,
                tableNames=[table] if table else None,
                eventTypeList=[event_type] if event_type else None,
            )
            events = self.call("get_next_notification", request).events
            if not events:
                return
            for event in events:
                if up_to is not None and event.eventId > up_to:
                    return
                yield event
            last = events[-1].eventId

    def follow_notification_events(
        self, after: int | None = None, *, timeout_s: float, poll_s: float = 1.0
    ) -> Iterator[types.NotificationEvent]:
        """Yield the events with ids above ``after`` as they happen, in order.

        The method uses a gateway's subscription if the gateway offers one, and calls otherwise.

        A gap in the ids means that the metastore's cleaner had removed the events.

        :param after: id to begin after; ``None`` is the log's end.
        :param timeout_s: seconds after which the iteration ends; the client can make other calls meanwhile.
        :param poll_s: seconds between two reads of the log, where no gateway offers a subscription.
        """
        end = time.monotonic() + timeout_s
        last = self.get_current_notification_event_id() if after is None else after
        while (left_s := end - time.monotonic()) > 0:
            try:
                query = events_query(last)
                for event in self._streamed(FOLLOW, types.NotificationEvent, query, timeout_s=left_s):
                    last = event.eventId or last
                    yield event
            except NotStreamed as error:
                log.debug("events after %d are looked for by calls: %s", last, error)
            for event in self.iter_notification_events(last):
                last = event.eventId or last
                yield event
            time.sleep(max(0.0, min(poll_s, end - time.monotonic())))
