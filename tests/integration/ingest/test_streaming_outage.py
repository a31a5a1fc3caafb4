"""The metastore is gone while records are streamed: for less, and for more, than a transaction lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import StreamingConnectionError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.ingest.errors import HeartBeatFailure
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.small_source import make_table

SOON = PollPolicy(first_s=0.2, longest_s=0.5, timeout_s=90)


def connected(metastore: EmbeddedMetastore) -> HiveStreamingConnection:
    settings = MetastoreSettings(uris=(metastore.uri,), connect_timeout_s=2)
    with MetastoreClient(settings) as client:
        client.create_database(types.Database(name="outage", parameters={}))
        make_table(client, "outage", "t")
    return (
        HiveStreamingConnection.new_builder()
        .with_database("outage")
        .with_table("t")
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(settings)
        .with_transaction_batch_size(2)
        .connect()
    )


def valid(metastore: EmbeddedMetastore) -> tuple[int, list[int]]:
    """High-water mark and invalid write ids of the table."""
    with MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client:
        wire = client.get_valid_write_ids(["outage.t"])["outage.t"]
        return wire.writeIdHighWaterMark or 0, list(wire.invalidWriteIds or [])


@pytest.mark.slow
def test_gone_for_less(tmp_path: Path) -> None:
    with EmbeddedMetastore.start("outage", directory=tmp_path / "metastore") as metastore:
        connection = connected(metastore)
        connection.begin_transaction()
        connection.write(b"1,a")
        metastore.kill()
        connection.write(b"2,b")
        with pytest.raises(StreamingConnectionError) as caught:
            connection.commit_transaction()
        assert caught.value.retryable
        assert connection.state is ConnectionState.OPEN
        metastore.restart()
        connection.commit_transaction()
        assert connection.stats.committed_transactions == 1
        assert valid(metastore)[1] == [2]
        connection.close()


@pytest.mark.slow
def test_gone_for_more(tmp_path: Path) -> None:
    # Shorter than a start of the metastore, and longer than a busy machine keeps a heartbeat waiting.
    brief = {"metastore.txn.timeout": "8s", "metastore.acid.housekeeper.interval": "1s"}
    with EmbeddedMetastore.start("outage", directory=tmp_path / "metastore", settings=brief) as metastore:
        connection = connected(metastore)
        connection.begin_transaction()
        connection.write(b"1,a")
        connection.commit_transaction()
        connection.begin_transaction()
        write_id = connection.current_write_id
        metastore.kill()
        # Without heartbeats: the thread's are refused, and the metastore finds them missing when it is back.
        hearts = connection._batch._hearts  # type: ignore[union-attr]
        with hearts.ending:
            metastore.restart()
            assert wait_until(lambda: _is_aborted(metastore, write_id or 0), SOON)
        assert wait_until(lambda: bool(hearts.lost), SOON)
        with pytest.raises(HeartBeatFailure):
            connection.write(b"2,b")
        assert connection.state is ConnectionState.FAILED
        connection.close()


def _is_aborted(metastore: EmbeddedMetastore, write_id: int) -> bool:
    with MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client:
        wire = client.get_valid_write_ids(["outage.t"])["outage.t"]
    invalid, bits = list(wire.invalidWriteIds or []), wire.abortedBits or b""
    if write_id not in invalid:
        return False
    place = invalid.index(write_id)
    return bool(int.from_bytes(bits, "little") >> place & 1)
