"""Makes the metastore client's calls through the gateway's handler, on behalf of a caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.gateway.grpc.calls import Call
from airflow_hive_federation.gateway.handler import Handler
from airflow_hive_federation.gateway.services.exchange import arguments_of, ask, reply_to, texts_of
from airflow_hive_federation.metastore.calls.partitions import ALL, PartitionCalls
from airflow_hive_federation.metastore.calls.transactions import TransactionCalls
from airflow_hive_federation.metastore.compat import FALLBACKS, is_too_old
from airflow_hive_federation.metastore.settings import MetastoreSettings
from airflow_hive_federation.metastore.struct import Fault
from airflow_hive_federation.metastore.translation import translate

_NOWHERE = "thrift://gateway.invalid"


class Behind(PartitionCalls, TransactionCalls):
    """Calls of :class:`.MetastoreClient` that go through the gateway's handler.

    :param catalog: Hive catalog of the caller's objects.
    """

    def __init__(self, handler: Handler, call: Call, catalog: str) -> None:
        # The address is never used: the handler knows the metastore's address.
        self.settings = MetastoreSettings(uris=(_NOWHERE,), catalog=catalog or "hive")
        self._handler, self.under_way = handler, call

    def call(self, method: str, *args: Any) -> Any:
        """See :meth:`.Calls.call`; the metastore's exception is the cause of the error."""
        try:
            return self._asked(method, args)
        except MetastoreError as error:
            if not is_too_old(method, error):
                raise
        return FALLBACKS[method](self._asked, args)

    def partition_names(self, database: str, table: str) -> Sequence[str]:
        """Return the names of all partitions of a table in packed form, a few megabytes per 100,000 names."""
        method = "get_partition_names"
        arguments = arguments_of(method, self._database_name(database), table, ALL)
        reply = reply_to(self._handler, self.under_way, method, arguments)
        try:
            return texts_of(method, reply)
        except Fault as fault:
            raise translate(fault, method, "the metastore") from fault

    def _asked(self, method: str, args: tuple[object, ...]) -> Any:
        try:
            return ask(self._handler, self.under_way, method, *args)
        except Fault as fault:
            raise translate(fault, method, "the metastore") from fault
