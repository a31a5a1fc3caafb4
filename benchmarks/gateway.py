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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.gateway.messages import REPLY, Head, MessageReader, head_bytes, read_head
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.channel import Deadline
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode, encode_call
from benchmarks import results
from benchmarks.remotes import Setting, _in_turns, _table
from benchmarks.waggle_dance import PREFIX, waggle_dance

_CALLS = 1000
_CLIENTS = 8
_SECONDS = 5.0
#: The result of ``set_ugi``: an empty list of texts.
_NO_GROUPS = b"\x0f\0\0\x0b\0\0\0\0\0"
#: Calls that hang, and turns without and with them.
_HUNG, _TURNS = 50, 5


def run(setting: Setting) -> Iterator[results.Result]:
    """Measure everything."""
    yield from _overhead(setting)
    with _canned() as (uri, hung_uri):
        yield from _overhead_beside(setting, uri, uri, {"ours": "d", "peer": f"{PREFIX}d"}, "a canned one")
        yield from _throughput(setting, uri)
        yield _beside_a_hung_one(setting, uri, hung_uri)


@contextmanager
def _served(*options: str, fronts: int = 1) -> Iterator[tuple[list[str], int]]:
    """A gateway in a process of its own: the URIs of its fronts, and the id of the process."""
    command = [sys.executable, "-m", "airflow_hive_federation.cli.main", "gateway", "serve", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield [process.stdout.readline().split()[-1] for _ in range(fronts)], process.pid
    finally:
        process.terminate()
        process.wait(60)


def _overhead(setting: Setting) -> Iterator[results.Result]:
    setting.say("a metastore, Waggle Dance and the gateway start")
    with EmbeddedMetastore.start("far") as far:
        with MetastoreClient(MetastoreSettings(uris=(far.uri,))) as client:
            client.create_database(types.Database(name="asked"))
            client.create_table(_table("asked", "t", far.external_warehouse))
        with EmbeddedMetastore.start("near") as near:
            databases = {"ours": "asked", "peer": f"{PREFIX}asked"}
            yield from _overhead_beside(setting, far.uri, near.uri, databases, "a metastore")


def _overhead_beside(
    setting: Setting, far: str, near: str, databases: dict[str, str], before: str
) -> Iterator[results.Result]:
    """Measure the time that both fronts and Waggle Dance add to the calls of one metastore.

    :param near: the primary metastore of Waggle Dance.
    :param databases: names by which ours and the peer know the database.
    :param before: the kind of the metastore, for messages.
    """
    ports = ("--upstream", far, "--port", "0", "--grpc-port", "0")
    with (
        waggle_dance(near, far, setting.directory) as (peer_uri, peer_pid),
        _served(*ports, fronts=2) as (uris, pid),
        ExitStack() as stack,
    ):
        by = dict(zip(("thrift", "grpc"), uris, strict=True)) | {"direct": far, "peer": peer_uri}
        questions = {
            name: _question(
                stack.enter_context(MetastoreClient(MetastoreSettings(uris=(uri,)))),
                databases["peer" if name == "peer" else "ours"],
            )
            for name, uri in by.items()
        }
        # The peer's compiler needs a while, too.
        _in_turns(questions)
        medians = _in_turns(questions)
        used = {
            name: _processor_s(questions[name], peer_pid if name == "peer" else pid)
            for name in ("thrift", "grpc", "peer")
        }
    shown = {name: round(value * 1000, 3) for name, value in medians.items()}
    setting.say(f"before {before}, medians in ms: {shown}")
    shown = {name: round(value * 1e6) for name, value in used.items()}
    setting.say(f"processor time in microseconds per call: {shown}")
    for name, front in (("thrift", "the Thrift front"), ("grpc", "raw gRPC")):
        yield results.beside_limit(
            "gateway",
            f"overhead of {_CALLS:,} get_table by {front} before {before}",
            ours_s=(medians[name] - medians["direct"]) * _CALLS,
            peer="Waggle Dance's overhead",
            peer_s=(medians["peer"] - medians["direct"]) * _CALLS,
            at_most=1,
        )
        yield results.faster(
            "gateway",
            f"processor time of {_CALLS:,} get_table by {front} before {before}",
            ours_s=used[name] * _CALLS,
            peer="Waggle Dance's",
            peer_s=used["peer"] * _CALLS,
            at_least=None,
        )


def _question(client: MetastoreClient, database: str) -> Callable[[int], object]:
    return lambda _: client.get_table(database, "t")


def _processor_s(question: Callable[[int], object], pid: int) -> float:
    """Seconds of processor time that a process takes for one call."""
    before = _cpu_s(pid)
    for number in range(_CALLS):
        question(number)
    return (_cpu_s(pid) - before) / _CALLS


def _throughput(setting: Setting, upstream: str) -> Iterator[results.Result]:
    with_none, _ = _ask_for(_SECONDS, upstream)
    with _served("--upstream", upstream, "--port", "0", "--grpc-port", "0", fronts=2) as (uris, pid):
        for uri, front in zip(uris, ("the Thrift front", "raw gRPC"), strict=True):
            before = _cpu_s(pid)
            calls, of_clients = _ask_for(_SECONDS, uri)
            used = _cpu_s(pid) - before
            setting.say(
                f"{calls / _SECONDS:,.0f} calls/s by {_CLIENTS} clients through {front}; processor time per "
                f"call: {used / calls * 1e6:.0f} microseconds of the gateway, {of_clients / calls * 1e6:.0f} "
                f"of the clients; without the gateway {with_none / _SECONDS:,.0f} calls/s"
            )
            yield results.seconds(
                "gateway",
                f"2,000 get_table_req of a canned metastore by {front}",
                ours_s=2000 * _SECONDS / calls,
                peer="without the gateway",
                peer_s=2000 * _SECONDS / with_none,
                at_most_s=1,
            )
            yield results.beside_limit(
                "gateway",
                f"processor time of 2,000 get_table_req by {front}",
                ours_s=used / calls * 2000,
                peer="two cores for a second",
                peer_s=2.0,
                at_most=1,
            )


def _beside_a_hung_one(setting: Setting, upstream: str, hung: str) -> results.Result:
    """Times of calls to one metastore, by turns alone and while calls to another one hang, in one process."""
    file = setting.directory / "gateway.toml"
    far = f'[[federated]]\nname = "far"\nuris = ["{hung}"]'
    file.write_text(f'[upstream]\nuris = ["{upstream}"]\n{far}\n', encoding="utf-8")
    alone, beside = [], []
    with _served("--config", str(file), "--port", "0") as ((uri,), _), _connected(uri) as sock:
        _p99(sock)
        for _ in range(_TURNS):
            alone.append(_p99(sock))
            with ExitStack() as stack:
                for _ in range(_HUNG):
                    stack.enter_context(_connected(uri)).sendall(_call("far_d"))
                # They have to hang before the clock starts: connecting is work, and no hanging.
                time.sleep(1)
                beside.append(_p99(sock))
    first, second = statistics.median(alone), statistics.median(beside)
    setting.say(
        f"p99 alone {[round(seconds * 1000, 2) for seconds in alone]} ms, "
        f"beside {_HUNG} calls that hang {[round(seconds * 1000, 2) for seconds in beside]} ms"
    )
    return results.seconds(
        "gateway",
        f"what {_HUNG} hung calls add to the p99 of others",
        ours_s=max(second - first, 0),
        peer="p99 alone",
        peer_s=first,
        at_most_s=0.005,
    )


@contextmanager
def _connected(uri: str) -> Iterator[socket.socket]:
    host, _, port = uri.rpartition("/")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def _p99(sock: socket.socket) -> float:
    reader, call, times = MessageReader(sock.recv), _call("d"), []
    for _ in range(_CALLS):
        begun = time.perf_counter()
        sock.sendall(call)
        answer = reader.message()
        times.append(time.perf_counter() - begun)
        _check(*answer)
    return statistics.quantiles(times, n=100)[98]


def _ask_for(seconds: float, uri: str) -> tuple[int, float]:
    """Calls that some clients, in processes of their own, get answered, and their processor time."""
    code = f"from benchmarks.gateway import ask; ask({uri!r}, {seconds})"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    counted = [process.communicate()[0].split() for process in processes]
    return sum(int(calls) for calls, _ in counted), sum(float(used) for _, used in counted)


def ask(uri: str, seconds: float) -> None:
    """Ask without decoding answers, which takes less of the machine; print how often, and its cost."""
    counts = [0] * (_CLIENTS // 2)

    def call(place: int) -> None:
        with _asking(uri) as question:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                question()
                counts[place] += 1

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(counts))]
    before = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(counts), time.process_time() - before)


@contextmanager
def _asking(uri: str) -> Iterator[Callable[[], None]]:
    call = _call("d")
    if uri.startswith("grpc"):
        with MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
            channel: Any = client.connect().channel

            def by_grpc() -> None:
                deadline = Deadline(60)
                channel.send(call, deadline)
                answer = channel.receive(1 << 20, deadline)
                _check(read_head(answer), answer)

            yield by_grpc
        return
    with _connected(uri) as sock:
        reader = MessageReader(sock.recv)

        def by_thrift() -> None:
            sock.sendall(call)
            _check(*reader.message())

        yield by_thrift


def _call(database: str) -> bytes:
    request = types.GetTableRequest(dbName=database, tblName="t")
    return encode_call("get_table_req", message_types("get_table_req")[0](req=request), 1, oneway=False)


def _check(head: Head, answer: bytes) -> None:
    """A refusal is quicker than an answer, and none."""
    if head.kind != REPLY or answer[head.body + 1 : head.body + 3] != b"\0\0":
        raise RuntimeError(f"{head.method} was refused: {answer[head.body :]!r}")


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
                body = _NO_GROUPS if head.method == "set_ugi" else answer
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
