"""The gateway's translated services: what a message costs beside Thrift's bytes, and partitions as a stream.

The metastore is a canned one in a process of its own, which answers at once; the gateway is in a process of
its own, too, so that its memory can be seen.
"""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_hive_federation.gateway.messages import REPLY, Head, MessageReader, head_bytes
from airflow_hive_federation.gateway.services.codec import codec
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.channel import Deadline
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.grpc_streams import PARTITIONS, partitions_query, structs
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode, encode_call
from airflow_hive_federation.metastore.wire import from_bytes
from benchmarks import results
from benchmarks.waggle_dance import PREFIX, waggle_dance

_COLUMNS, _TABLES = 30, 1000
_SMALL, _LARGE = 10_000, 100_000
_FIRST_PAGE = 100
#: Repetitions, of which the median counts.
_TURNS = 9
Say = Callable[[str], None]


def run(say: Say) -> Iterator[results.Result]:
    """Measure everything."""
    yield _codec(say)
    with _process("serve_canned", str(_SMALL)) as (uri, _):
        yield from _first_piece(say, uri)
    with _process("serve_canned", str(_LARGE)) as (uri, _):
        _memory(say, uri)


def _codec(say: Say) -> results.Result:
    """A table as a message and back, beside the same as Thrift's bytes."""
    table = _partition_or_table(types.Table(dbName="d", tableName="t", owner="o"))
    message, thrift = codec(types.Table).to_bytes(table), encode(table)
    say(f"a table of {_COLUMNS} columns: {len(thrift):,} bytes as Thrift, {len(message):,} as a message")

    def timed(work: Callable[[], Any]) -> float:
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter()
            for _ in range(_TABLES):
                work()
            best = min(best, time.perf_counter() - begun)
        return best

    parts = {
        "to a message": timed(lambda: codec(types.Table).to_bytes(table)),
        "from a message": timed(lambda: codec(types.Table, strict=True).from_bytes(message)),
        "to Thrift": timed(lambda: encode(table)),
        "from Thrift": timed(lambda: from_bytes(types.Table, thrift)),
    }
    say(
        f"microseconds each: { {name: round(seconds / _TABLES * 1e6, 1) for name, seconds in parts.items()} }"
    )
    return results.beside_limit(
        "grpc-services",
        f"{_TABLES:,} tables of {_COLUMNS} columns to messages and back",
        ours_s=parts["to a message"] + parts["from a message"],
        peer="Thrift's bytes",
        peer_s=parts["to Thrift"] + parts["from Thrift"],
        at_most=3,
    )


def _first_piece(say: Say, upstream: str) -> Iterator[results.Result]:
    """The first piece, beside the questions that it needs, asked without the gateway, and Waggle Dance."""
    with (
        _process("serve_gateway", upstream) as (uri, _),
        _client(uri) as ours,
        _client(upstream) as direct,
        tempfile.TemporaryDirectory() as directory,
        waggle_dance(upstream, upstream, Path(directory)) as (peer_uri, _),
    ):
        ours.connect()
        firsts, asked = list[float](), list[float]()
        straight, by_peer = list[float](), list[float]()
        for _ in range(_TURNS):
            straight.append(_first_bytes(upstream, "d"))
            by_peer.append(_first_bytes(peer_uri, f"{PREFIX}d"))
            begun = time.perf_counter()
            names = direct.list_partition_names("d", "t")
            direct.get_table("d", "t")
            direct.find_partitions("d", "t", f"n >= 0 and n <= {_FIRST_PAGE - 1}")
            asked.append(time.perf_counter() - begun)
            begun, pieces = time.perf_counter(), _stream(ours)
            next(pieces)
            firsts.append(time.perf_counter() - begun)
            pieces.close()
        begun = time.perf_counter()
        count = sum(1 for piece in _stream(ours) for _ in structs(types.Partition, piece))
        elapsed = time.perf_counter() - begun
        assert count == len(names) == _SMALL
    say(
        f"{_SMALL:,} partitions in {elapsed:.2f} s; the questions before the first piece take "
        f"{statistics.median(asked) * 1000:.0f} ms without the gateway"
    )
    say(
        f"first bytes of them in one answer: {statistics.median(straight) * 1000:.0f} ms, by Waggle Dance "
        f"{statistics.median(by_peer) * 1000:.0f} ms"
    )
    added = max(statistics.median(firsts) - statistics.median(asked), 0)
    yield results.seconds(
        "grpc-services",
        f"what the gateway adds before the first piece of {_SMALL:,} partitions",
        ours_s=added,
        peer="the questions alone",
        peer_s=statistics.median(asked),
        at_most_s=0.03,
    )
    yield results.beside_limit(
        "grpc-services",
        f"what the gateway adds before the first of {_SMALL:,} partitions",
        ours_s=added,
        peer="what Waggle Dance adds",
        peer_s=statistics.median(by_peer) - statistics.median(straight),
        at_most=1,
    )


def _first_bytes(uri: str, database: str) -> float:
    """Seconds until an answer with all partitions begins; it is read to its end."""
    host, _, port = uri.rpartition("/")[2].rpartition(":")
    arguments = message_types("get_partitions_by_filter")[0](
        db_name=database, tbl_name="t", filter=f"n >= 0 and n <= {_SMALL - 1}", max_parts=-1
    )
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        begun, first = time.perf_counter(), list[float]()

        def receive(size: int) -> bytes:
            data = sock.recv(size) or _gone()
            first.append(time.perf_counter() - begun)
            return data

        sock.sendall(encode_call("get_partitions_by_filter", arguments, 1, oneway=False))
        sizes = list[int]()
        MessageReader(receive).relay(lambda piece: sizes.append(len(piece)), _check, 1)
    assert sum(sizes) > _SMALL * _COLUMNS
    return first[0]


def _check(head: Head) -> None:
    assert head.kind == REPLY


def _memory(say: Say, upstream: str) -> None:
    """Print the growth of the memory of both processes while many partitions pass."""
    with _process("serve_gateway", upstream) as (uri, pid), _client(uri) as client:
        client.connect()
        next(_stream(client))
        before = _resident_mb(pid)
        begun, size, ours_before, most = time.perf_counter(), 0, _resident_mb("self"), 0.0
        for number, piece in enumerate(_stream(client)):
            size += len(piece)
            if not number % 50:
                most = max(most, _resident_mb(pid))
        say(
            f"{_LARGE:,} partitions, {size / 1e6:.0f} MB, in {time.perf_counter() - begun:.1f} s; the "
            f"gateway grew from {before:.0f} to {max(most, _resident_mb(pid)):.0f} MB, the client by "
            f"{_resident_mb('self') - ours_before:.0f}"
        )


def _stream(client: MetastoreClient) -> Generator[bytes, None, None]:
    channel: Any = client.channel
    return channel.stream(PARTITIONS, partitions_query("hive", "d", "t"), Deadline(600))  # type: ignore[no-any-return]


def _client(uri: str) -> MetastoreClient:
    grpc = GrpcSettings(plaintext=uri.startswith("grpc"))
    return MetastoreClient(MetastoreSettings(uris=(uri,), grpc=grpc))


@contextmanager
def _process(function: str, argument: str) -> Iterator[tuple[str, int]]:
    """Run a function of this module that prints a URI and serves; end it with the block."""
    code = f"from benchmarks.grpc_services import {function}; {function}({argument!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.kill()
        process.wait()


def serve_gateway(upstream: str) -> None:
    """Serve a gateway until the process is ended."""
    from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
    from airflow_hive_federation.gateway.grpc.server import GrpcFront
    from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
    from airflow_hive_federation.gateway.services import services
    from airflow_hive_federation.gateway.upstream import Upstream

    handler = Gateway(Metastore(Upstream("main", MetastoreSettings(uris=(upstream,)))))
    front = GrpcFront(handler, GrpcFrontSettings(port=0), services(handler)).start()
    print(f"grpc://127.0.0.1:{front.port}", flush=True)
    threading.Event().wait()


def serve_canned(count: str) -> None:
    """Serve a table with so many partitions until the process is ended."""
    partitions = [
        encode(_partition_or_table(types.Partition(values=[str(number)], dbName="d", tableName="t")))
        for number in range(int(count))
    ]
    names = [f"n={number}" for number in range(int(count))]
    table = _partition_or_table(types.Table(dbName="d", tableName="t"))
    table.partitionKeys = [types.FieldSchema(name="n", type="int")]
    canned = {
        "set_ugi": _success("set_ugi", []),
        "get_partition_names": _success("get_partition_names", names),
        "get_table_req": _success("get_table_req", types.GetTableResult(table=table)),
    }
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer(method: str, request: bytes) -> bytes:
        if method != "get_partitions_by_filter":
            # The peer reads more, when a client connects.
            return canned.get(method, b"\0")
        low, high = (int(bound) for bound in re.findall(rb"n [<>]= (\d+)", request))
        matching = partitions[low : high + 1]
        return b"\x0f\0\0\x0c" + len(matching).to_bytes(4, "big") + b"".join(matching) + b"\0"

    def serve(sock: socket.socket) -> None:
        reader = MessageReader(lambda size: sock.recv(size) or _gone())
        try:
            while True:
                head, request = reader.message()
                body = answer(head.method, request)
                sock.sendall(head_bytes(head.method, REPLY, head.sequence_id) + body)
        except (OSError, EOFError):
            sock.close()

    print(f"thrift://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def _gone() -> bytes:
    raise EOFError


def _success(method: str, value: Any) -> bytes:
    return encode(message_types(method)[1](success=value))


def _partition_or_table(value: Any) -> Any:
    """Give a table or partition columns and a place."""
    columns = [types.FieldSchema(name=f"column_{number}", type="string") for number in range(_COLUMNS)]
    value.sd = types.StorageDescriptor(
        cols=columns,
        location="hdfs://nameservice/warehouse/d.db/t",
        inputFormat="org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib="org.apache.hadoop.hive.ql.io.orc.OrcSerde"),
    )
    value.parameters = {"transient_lastDdlTime": "1764000000", "numRows": "1000", "totalSize": "123456"}
    return value


def _resident_mb(pid: int | str) -> float:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024
