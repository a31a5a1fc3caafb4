"""The gateway's streams and its generated service before a real Hive 4.2 metastore."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.services import layout, services
from airflow_hive_federation.gateway.services.codec import call_codecs
from airflow_hive_federation.gateway.services.pools import ours
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_bytes

DATABASE = "grpc_streams"
PARTITIONS = 1300


@pytest.fixture(scope="module")
def address(source: EmbeddedMetastore) -> Iterator[str]:
    with ExitStack() as stack:
        target = Metastore(Upstream("main", MetastoreSettings(uris=(source.uri,))))
        stack.callback(target.close)
        handler = Gateway(target)
        front = GrpcFront(handler, GrpcFrontSettings(port=0), services(handler)).start()
        stack.callback(front.stop, 0)
        yield f"127.0.0.1:{front.port}"


@pytest.fixture(scope="module")
def table(client: MetastoreClient) -> types.Table:
    columns = types.StorageDescriptor(
        cols=[types.FieldSchema(name="id", type="int")],
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=types.SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"),
    )
    made = types.Table(
        dbName=DATABASE,
        tableName="t",
        owner="alice",
        tableType="EXTERNAL_TABLE",
        parameters={"EXTERNAL": "TRUE", "é": ""},
        partitionKeys=[types.FieldSchema(name="n", type="int")],
        sd=columns,
    )
    client.create_database(types.Database(name=DATABASE))
    client.create_table(made)
    client.add_partitions(
        types.Partition(dbName=DATABASE, tableName="t", values=[str(number)], sd=columns)
        for number in range(PARTITIONS)
    )
    return client.get_table(DATABASE, "t")


def test_a_stream_has_the_partitions_that_thrift_has(
    address: str, client: MetastoreClient, table: types.Table
) -> None:
    settings = MetastoreSettings(uris=(f"grpc://{address}",), grpc=GrpcSettings(plaintext=True))
    with MetastoreClient(settings) as by_stream:
        streamed = sorted(map(to_bytes, by_stream.iter_partitions(DATABASE, "t")))
    assert streamed == sorted(map(to_bytes, client.iter_partitions(DATABASE, "t")))
    assert len(streamed) == PARTITIONS


def test_the_generated_service_gives_thrifts_bytes(
    address: str, client: MetastoreClient, table: types.Table
) -> None:
    arguments, result = call_codecs("get_table_req")
    request = types.GetTableRequest(
        dbName=DATABASE,
        tblName="t",
        capabilities=types.ClientCapabilities(values=[types.ClientCapability.INSERT_ONLY_TABLES]),
        processorCapabilities=list(client.settings.capabilities),
        processorIdentifier=client.settings.identifier,
    )
    kind, _, _ = message_types("get_table_req")
    with grpc.insecure_channel(address) as channel:
        answer = channel.unary_unary(f"/{layout.SERVICE}/get_table_req")(
            arguments.to_bytes(kind(req=request)), timeout=60
        )
    assert to_bytes(result.from_bytes(answer).success.table) == to_bytes(table)  # type: ignore[attr-defined]


def test_a_subscription_sees_what_happens(address: str, client: MetastoreClient, table: types.Table) -> None:
    query = ours().kind("EventsQuery")(databases=[DATABASE], event_types=["CREATE_TABLE"])
    before = client.get_current_notification_event_id()
    with grpc.insecure_channel(address) as channel:
        stream = channel.unary_stream(
            f"/{layout.STREAMS}/follow_events",
            response_deserializer=ours().kind("EventChunk").FromString,
        )(query.SerializeToString(), timeout=120)
        begun = next(stream).last_event_id
        # The metastore is shared: its own threads may add an event at any moment.
        assert before <= begun <= client.get_current_notification_event_id()
        table.tableName, table.id = "seen", None
        client.create_table(table)
        event = next(event for piece in stream for event in piece.events)
        stream.cancel()
    assert (event.tableName, event.eventType) == ("seen", "CREATE_TABLE")
    assert event.eventId > begun


def test_our_client_has_the_tables_and_events_that_thrift_has(
    address: str, client: MetastoreClient, table: types.Table
) -> None:
    settings = MetastoreSettings(uris=(f"grpc://{address}",), grpc=GrpcSettings(plaintext=True))
    with MetastoreClient(settings) as by_stream:
        streamed = sorted(map(to_bytes, by_stream.iter_tables(DATABASE)))
        assert streamed == sorted(map(to_bytes, client.iter_tables(DATABASE)))
        last = client.get_current_notification_event_id()
        events = [event for event in by_stream.iter_notification_events(0) if (event.eventId or 0) <= last]
        assert list(map(to_bytes, events)) == list(
            map(to_bytes, client.iter_notification_events(0, up_to=last))
        )
        following = by_stream.follow_notification_events(last - 1, timeout_s=60)
        assert next(following).eventId == last
        following.close()
        assert not by_stream._unsupported
