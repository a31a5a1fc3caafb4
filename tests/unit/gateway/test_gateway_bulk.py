"""A gateway in a process of its own: floods of connections, and answers that are longer than its memory.

``HIVE_FEDERATION_PARTITIONS=100000`` has as many partitions pass; the suite does with fewer.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_hive_federation.gateway.messages import REPLY, head_bytes
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from tests.support.gateways import Peers, RawClient, until
from tests.support.metastore_peers import Thrift
from tests.support.process_memory import peak_memory_bytes, threads_of

PARTITIONS = int(os.environ.get("HIVE_FEDERATION_PARTITIONS", "20000"))
#: Number of the first partition: all have seven digits.
FIRST = 1_000_000
#: Connections of the flood; the fronts let a thousand in.
FLOOD = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 200)
LIMIT = 1000
#: Bytes that a gateway may grow by, whatever passes: pieces on their way, and for streams the names of all
#: partitions, packed.
GROWTH_BYTES = 40 << 20


@dataclass
class Process:
    """A gateway, as ``hive-federation gateway serve`` starts it."""

    pid: int
    thrift: str
    grpc: str


@contextmanager
def served(upstream: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "airflow_hive_federation.cli.main", "gateway", "serve"]
    ports = ["--upstream", upstream, "--port", "0", "--grpc-port", "0"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, most))
            thrift, grpc = (process.stdout.readline().split()[-1] for _ in range(2))
            yield Process(process.pid, thrift, grpc)
            process.send_signal(signal.SIGTERM)
            assert process.wait(180) == 0
        finally:
            process.kill()
            # Shown if the test fails: a server that accepts nobody any more gives its reason there.
            log.seek(0)
            print(log.read()[-10_000:])


# -- floods -------------------------------------------------------------------------------------------------

# A gateway that gets no processor for a while lets the queue of its connections fill. The kernel repeats a
# dropped attempt after 1, 3, 7, 15, 31 and 63 seconds; a new attempt succeeds once the gateway runs again.
FLOODING = """
import resource, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
end = time.monotonic() + 300
while len(held) < int(sys.argv[2]):
    try:
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5))
    except TimeoutError:
        if time.monotonic() > end:
            raise
print(len(held), flush=True)
sys.stdin.read()
"""


@contextmanager
def flood(uri: str) -> Iterator[int]:
    """Hold many silent connections, in a process of their own."""
    port = uri.rpartition(":")[2]
    with subprocess.Popen(
        [sys.executable, "-c", FLOODING, port, str(FLOOD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def names(method: str, _args: Any) -> Any:
    return {"get_all_databases": ["a"], "getStatus": 2}.get(method)


@pytest.mark.slow
@pytest.mark.parametrize("front", ["thrift", "grpc"])
def test_ten_thousand_connections_take_bounded_threads_and_memory(
    front: str, peer: Peers, record_property: Callable[[str, object], None]
) -> None:
    with served(peer(Thrift(names)).uri) as gateway:
        uri = getattr(gateway, front)
        with MetastoreClient(MetastoreSettings(uris=(uri,), connect_timeout_s=60)) as known:
            assert known.call("get_all_databases") == ["a"]
            memory, threads = peak_memory_bytes(gateway.pid), threads_of(gateway.pid)
            with flood(uri) as connections:
                assert connections == FLOOD
                # One who was there before is served all the while.
                assert known.call("get_all_databases") == ["a"]
                more, grown = threads_of(gateway.pid) - threads, peak_memory_bytes(gateway.pid) - memory
                record_property("growth", f"{front}: {FLOOD} connections, {more} threads, {grown >> 20} MB")
                assert more <= LIMIT
                assert grown < 200 << 20
            assert known.call("get_all_databases") == ["a"]
        # What they held is free again: as many as before, and a newcomer is let in.
        until(lambda: threads_of(gateway.pid) <= threads + 8)
        until(lambda: answers(uri))


def answers(uri: str) -> bool:
    with contextlib.suppress(Exception), MetastoreClient(MetastoreSettings(uris=(uri,))) as newcomer:
        return bool(newcomer.call("get_all_databases"))
    return False


# -- long answers -------------------------------------------------------------------------------------------


class Many:
    """A metastore with a table of many partitions, which it makes while it sends them."""

    def __call__(self, connection: socket.socket) -> None:
        stream = RawClient(("", 0), connection)
        while True:
            head, request = stream.message()
            connection.sendall(head_bytes(head.method, REPLY, head.sequence_id))
            for piece in self._body(head.method, request):
                connection.sendall(piece)

    def _body(self, method: str, request: bytes) -> Iterator[bytes]:
        if method == "get_partition_names":
            yield self._success(method, [f"n={FIRST + number}" for number in range(PARTITIONS)])
        elif method == "get_table_req":
            table = types.Table(
                dbName="d", tableName="t", partitionKeys=[types.FieldSchema(name="n", type="int")]
            )
            yield self._success(method, types.GetTableResult(table=table))
        elif method in {"get_partitions", "get_partitions_by_filter"}:
            asked = [int(bound) for bound in re.findall(rb"n [<>]= (\d+)", request)]
            yield from self._partitions(*(asked or (FIRST, FIRST + PARTITIONS - 1)))
        else:
            yield self._success(method, {"set_ugi": [], "getStatus": 2}.get(method))

    def _partitions(self, first: int, last: int) -> Iterator[bytes]:
        yield b"\x0f\0\0\x0c" + (last - first + 1).to_bytes(4, "big")
        columns = [types.FieldSchema(name=f"column_{number}", type="string") for number in range(30)]
        storage = types.StorageDescriptor(cols=columns, location="hdfs://far/t", numBuckets=-1)
        value = types.Partition(values=["@" * 7], dbName="d", tableName="t", sd=storage)
        before, _, behind = encode(value).partition(b"@" * 7)
        for number in range(first, last + 1, 200):
            numbers = range(number, min(number + 200, last + 1))
            yield b"".join(before + str(number).encode() + behind for number in numbers)
        yield b"\0"

    @staticmethod
    def _success(method: str, value: Any) -> bytes:
        return encode(message_types(method)[1](success=value))


READING = """
import socket, sys
from airflow_hive_federation.gateway.messages import MessageReader
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.grpc_wire import CALL_IN_PIECES, SERVICE, wrap
from tests.support.process_memory import peak_memory_bytes
from tests.support.gateways import call_bytes
way, uri = sys.argv[1:]
host, port = uri.rpartition("/")[2].split(":")
call = call_bytes("get_partitions", db_name="d", tbl_name="t", max_parts=-1)

def thrift():
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(call)
        sizes = []
        MessageReader(sock.recv).relay(lambda piece: sizes.append(len(piece)), lambda head: None, 1)
        return sum(sizes)

def raw():
    import grpc
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        return sum(map(len, channel.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")(wrap(call), timeout=600)))

def streams():
    with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
        return sum(1 for _ in client.iter_partitions("d", "t"))

if way == "raw":
    import grpc
if way == "streams":
    with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
        client.get_table("d", "t")
before = peak_memory_bytes()
print(globals()[way](), peak_memory_bytes() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["thrift", "raw", "streams"])
def test_memory_is_flat_however_many_partitions_pass(
    way: str, peer: Peers, record_property: Callable[[str, object], None]
) -> None:
    with served(peer(Many()).uri) as gateway:
        uri = gateway.thrift if way == "thrift" else gateway.grpc
        with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
            client.get_table("d", "t")
        before = peak_memory_bytes(gateway.pid)
        process = subprocess.run(
            [sys.executable, "-c", READING, way, uri], capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
        amount, of_client = map(int, process.stdout.split())
        of_gateway = peak_memory_bytes(gateway.pid) - before
    record_property(
        "growth", f"{way}: gateway {of_gateway >> 20} MB, client {of_client >> 20} MB of {amount}"
    )
    assert amount == PARTITIONS if way == "streams" else amount > PARTITIONS * 900
    assert of_gateway < GROWTH_BYTES
    assert of_client < GROWTH_BYTES
