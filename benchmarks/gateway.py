"""The gateway: what it adds to a call, beside Waggle Dance; how many calls it passes on; a hung metastore.

The first is measured before a real metastore, the others before a canned one, which answers at once and takes
little of the two cores that both share.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.gateway.handler import Caller, Deadline
from airflow_hive_federation.gateway.messages import REPLY, MessageReader, head_bytes
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode, encode_call
from benchmarks import results
from benchmarks.remotes import PREFIX, Setting, _in_turns, _table, waggle_dance

_CALLS = 1000
_CLIENTS = 8
_SECONDS = 5.0


def run(setting: Setting) -> Iterator[results.Result]:
    """Measure everything."""
    yield from _overhead(setting)
    with _canned() as (uri, hung_uri):
        yield _throughput(setting, uri)
        yield _beside_a_hung_one(setting, uri, hung_uri)


@contextmanager
def _served(upstream: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway in a process of its own."""
    command = [sys.executable, "-m", "airflow_hive_federation.cli.main", "gateway", "serve", "--port", "0"]
    process = subprocess.Popen([*command, "--upstream", upstream], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1], process
    finally:
        process.terminate()
        process.wait(60)


def _overhead(setting: Setting) -> Iterator[results.Result]:
    setting.say("a metastore, Waggle Dance and the gateway start")
    with EmbeddedMetastore.start("far") as far:
        with MetastoreClient(MetastoreSettings(uris=(far.uri,))) as client:
            client.create_database(types.Database(name="asked"))
            client.create_table(_table("asked", "t", far.external_warehouse))
        with (
            EmbeddedMetastore.start("near") as near,
            waggle_dance(near.uri, far.uri, setting.directory) as peer_uri,
            _served(far.uri) as (uri, _),
            MetastoreClient(MetastoreSettings(uris=(far.uri,))) as direct,
            MetastoreClient(MetastoreSettings(uris=(uri,))) as ours,
            MetastoreClient(MetastoreSettings(uris=(peer_uri,))) as peer,
        ):
            medians = _in_turns(
                {
                    "direct": lambda _: direct.get_table("asked", "t"),
                    "ours": lambda _: ours.get_table("asked", "t"),
                    "peer": lambda _: peer.get_table(f"{PREFIX}asked", "t"),
                }
            )
    setting.say(f"medians in ms: { {name: round(one * 1000, 3) for name, one in medians.items()} }")
    yield results.beside_limit(
        "gateway",
        f"overhead of {_CALLS:,} get_table",
        ours_s=(medians["ours"] - medians["direct"]) * _CALLS,
        peer="Waggle Dance's overhead",
        peer_s=(medians["peer"] - medians["direct"]) * _CALLS,
        at_most=1,
    )


def _throughput(setting: Setting, upstream: str) -> results.Result:
    with _served(upstream) as (uri, process):
        before = _cpu_s(process.pid)
        calls = _ask_for(_SECONDS, uri)
        used = _cpu_s(process.pid) - before
    with_none = _ask_for(_SECONDS, upstream)
    setting.say(
        f"{calls / _SECONDS:,.0f} calls/s by {_CLIENTS} clients, {used / calls * 1e6:.0f} microseconds of "
        f"processor time each; without the gateway {with_none / _SECONDS:,.0f} calls/s"
    )
    return results.seconds(
        "gateway",
        "2,000 get_table_req by a canned metastore",
        ours_s=2000 * _SECONDS / calls,
        peer="without the gateway",
        peer_s=2000 * _SECONDS / with_none,
        at_most_s=1,
    )


def _beside_a_hung_one(setting: Setting, upstream: str, hung: str) -> results.Result:
    """Times of calls to one metastore while calls to another one hang, in one process."""
    from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
    from airflow_hive_federation.gateway.upstream import Upstream

    fine = Gateway(Metastore(Upstream("fine", MetastoreSettings(uris=(upstream,)))))
    stuck = Gateway(Metastore(Upstream("stuck", MetastoreSettings(uris=(hung,)))))
    call, caller = _call(), Caller()

    def p99() -> float:
        times = []
        for _ in range(3000):
            begun = time.perf_counter()
            fine.answer("get_table_req", call, caller, Deadline(60))
            times.append(time.perf_counter() - begun)
        return statistics.quantiles(times, n=100)[98]

    alone = p99()
    waiting = [
        threading.Thread(target=stuck.answer, args=("get_table_req", call, caller, Deadline(60)), daemon=True)
        for _ in range(50)
    ]
    for thread in waiting:
        thread.start()
    beside = p99()
    setting.say(f"p99 alone {alone * 1000:.2f} ms, beside 50 calls that hang {beside * 1000:.2f} ms")
    return results.seconds(
        "gateway",
        "what 50 hung calls add to the p99 of others",
        ours_s=max(beside - alone, 0),
        peer="p99 alone",
        peer_s=max(alone, 0.001),
        at_most_s=0.005,
    )


def _ask_for(seconds: float, uri: str) -> int:
    """Calls that some clients, in a process of their own, get answered."""
    code = f"from benchmarks.gateway import ask; ask({uri!r}, {seconds})"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    return sum(int(process.communicate()[0]) for process in processes)


def ask(uri: str, seconds: float) -> None:
    """Ask by raw sockets, which takes less of the machine than a client does; print how often."""
    host, _, port = uri.rpartition("/")[2].rpartition(":")
    call, counts = _call(), [0] * (_CLIENTS // 2)

    def one(place: int) -> None:
        with socket.create_connection((host, int(port))) as sock:
            reader = MessageReader(sock.recv)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                sock.sendall(call)
                reader.message()
                counts[place] += 1

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(counts))


def _call() -> bytes:
    request = types.GetTableRequest(dbName="d", tblName="t")
    return encode_call("get_table_req", message_types("get_table_req")[0](req=request), 1, oneway=False)


@contextmanager
def _canned() -> Iterator[tuple[str, str]]:
    """Two metastores in a process of their own: one answers at once, one never."""
    code = "from benchmarks.gateway import serve_canned; serve_canned()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        fine, hung = process.stdout.readline().split()
        yield fine, hung
    finally:
        process.kill()
        process.wait()


def serve_canned() -> None:
    """Serve until the process is ended."""
    table = _table("d", "t", Path("/warehouse"))
    answer = encode(message_types("get_table_req")[1](success=types.GetTableResult(table=table)))
    fine = _listen(answer)
    hung = _listen(None)
    print(fine, hung, flush=True)
    threading.Event().wait()


def _listen(answer: bytes | None) -> str:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def serve(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def receive(size: int) -> bytes:
            if not (data := sock.recv(size)):
                raise EOFError
            return data

        reader = MessageReader(receive)
        try:
            while True:
                head, _ = reader.message()
                body = b"\0" if head.method == "set_ugi" else answer
                if body is None:
                    threading.Event().wait()
                    return
                sock.sendall(head_bytes(head.method, REPLY, head.sequence_id) + body)
        except (OSError, EOFError):
            sock.close()

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"thrift://127.0.0.1:{listener.getsockname()[1]}"


def _cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    parts = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
