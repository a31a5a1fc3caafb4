"""Runs ``hmsclient.HMSClient``, the client class of Airflow's own Hive provider, over our transport."""

from __future__ import annotations

from typing import Any

from hmsclient.genthrift.hive_metastore.ttypes import GetTableRequest, GetTablesRequest
from hmsclient.hmsclient import HMSClient
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TTransport import TBufferedTransport, TTransportBase

from airflow_hive_federation.errors import MetastoreProtocolError, OutcomeUnknownError
from airflow_hive_federation.metastore.channel import Channel, Deadline, ForeignProtocol
from airflow_hive_federation.metastore.client import MetastoreClient
from airflow_hive_federation.metastore.settings import MetastoreSettings


def hms_client(settings: MetastoreSettings) -> HMSClient:
    """Return a connected client with hmsclient's methods, which uses our transport, TLS and failover.

    Its structs are those of Hive 2: a table of Hive 3 or 4 that is read and written back through them loses
    every field that Hive 2 lacks. Reading tables works on Hive 4 too, which has dropped Hive 2's
    ``get_table``.

    :raises MetastoreError: if no server answers; see :meth:`MetastoreClient.call`.
    """
    transport = TBufferedTransport(ChannelTransport(settings))
    longest = settings.max_answer_bytes
    protocol = TBinaryProtocolAccelerated(
        transport, string_length_limit=longest, container_length_limit=longest
    )
    client = _Hive4HmsClient(iprot=protocol)
    client.open()
    return client


class _Hive4HmsClient(HMSClient):  # type: ignore[misc] # hmsclient and thrift have no types
    """An hmsclient that reads tables by the calls that every Hive version since 2.3 has."""

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        return self.get_table_req(GetTableRequest(dbName=dbname, tblName=tbl_name)).table

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> object:
        return self.get_table_objects_by_name_req(GetTablesRequest(dbName=dbname, tblNames=tbl_names)).tables


class ChannelTransport(TTransportBase):  # type: ignore[misc]
    """Apache Thrift's transport interface over one of our channels.

    Opening an open transport does nothing, so that ``with hms_client(settings) as client:`` works.
    """

    def __init__(self, settings: MetastoreSettings) -> None:
        self._settings = settings
        self._client = MetastoreClient(settings)
        self._channel: Channel | None = None
        self._request = bytearray()
        self._deadline = Deadline(settings.call_timeout_s)

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Return whether the transport is connected."""
        return self._channel is not None

    def open(self) -> None:
        """Connect to one of the servers and call ``set_ugi`` where the transport needs it."""
        if self._channel is None:
            self._channel = self._client.connect().channel

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
        self._channel = None
        self._request.clear()

    def write(self, data: bytes) -> None:
        """Buffer the bytes of a request until it is complete."""
        self._request += data

    def flush(self) -> None:
        """Send the request and start the deadline for its answer."""
        self.open()
        request, self._request = bytes(self._request), bytearray()
        self._deadline = Deadline(self._settings.call_timeout_s)
        self._guarded(lambda channel: channel.send(request, self._deadline))

    def read(self, size: int) -> bytes:
        """Return some bytes of the answer."""
        return bytes(self._guarded(lambda channel: channel.receive(size, self._deadline)))

    def _guarded(self, action: Any) -> Any:
        uri = self._client.uri
        try:
            return action(self._channel)
        except ForeignProtocol as error:
            self.close()
            raise MetastoreProtocolError(
                f"The server at {uri} is not a Hive metastore: {error}",
                remedy="Check host, port and scheme of the connection.",
            ) from error
        except OSError as error:
            self.close()
            raise OutcomeUnknownError(
                f"The connection to {uri} broke inside a call that may have been carried out: {error}",
                remedy="Repeat a call that only reads; before you repeat one that writes, check its effect.",
            ) from error
