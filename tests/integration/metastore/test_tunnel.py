"""Tunnels through real OpenSSH servers: chains of one to three hops, killed and frozen ones, and keys."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    ConfigurationError,
    HostKeyError,
    MetastoreTimeoutError,
    TunnelAuthenticationError,
    TunnelUnreachableError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.tunnel.listener import listening
from airflow_hive_federation.tunnel.route import TunnelSettings
from airflow_hive_federation.tunnel.tunnel import Tunnel, TunnelSocket
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.sshd import Sshd, start_sshd
from tests.support.text_tables import text_table


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    """Port of a server that sends everything back."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                while data := connection.recv(65536):
                    connection.sendall(data)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Sshd]]:
    directory = tmp_path_factory.mktemp("ssh")
    with ExitStack() as stack:
        started = []
        for number in range(3):
            server = start_sshd(directory / str(number))
            stack.callback(server.stop)
            started.append(server)
        yield started


@pytest.fixture
def one_more(tmp_path: Path) -> Iterator[Sshd]:
    """A server that a test may break."""
    server = start_sshd(tmp_path / "more")
    yield server
    server.stop()


def settings_for(*servers: Sshd, timeout_s: float = 20.0) -> TunnelSettings:
    return TunnelSettings(
        hops=tuple(server.hop for server in servers),
        known_hosts=tuple(str(server.known_hosts) for server in servers),
        timeout_s=timeout_s,
    )


def ask(wire: TunnelSocket, data: bytes) -> bytes:
    wire.settimeout(20)
    sent = 0
    answer = b""
    while len(answer) < len(data):
        if sent < len(data):
            sent += wire.send(data[sent : sent + 32768])
        more = wire.recv(65536)
        assert more
        answer += more
    return answer


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_chain_carries_bytes(servers: list[Sshd], echo: int, hops: int) -> None:
    with Tunnel(settings_for(*servers[:hops])) as tunnel:
        wire = tunnel.dial("127.0.0.1", echo, 20)
        data = bytes(range(256)) * 2000
        assert ask(wire, data) == data
        assert not wire.has_input()
        wire.close()
        with pytest.raises(ConnectionError):
            wire.send(b"x")


def test_a_port_for_programs_that_know_no_tunnels(servers: list[Sshd], echo: int) -> None:
    with Tunnel(settings_for(*servers[:2])) as tunnel:
        with listening(tunnel, "127.0.0.1", echo) as port, ThreadPoolExecutor(8) as threads:

            def work(number: int) -> bool:
                data = f"{number} ".encode() * 50_000
                with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                    threading.Thread(target=connection.sendall, args=(data,)).start()
                    return connection.makefile("rb").read(len(data)) == data

            assert all(threads.map(work, range(16)))
            kept = socket.create_connection(("127.0.0.1", port), timeout=20)
            kept.sendall(b"x")
            assert kept.recv(1) == b"x"
        # Its end is the end of what it carried.
        assert kept.recv(1) == b""
        kept.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=20)
        with (
            listening(tunnel, "127.0.0.1", free_port()) as port,
            socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
        ):
            assert connection.recv(1) == b""
        for address in ("0.0.0.0", "::", "example.com"):
            with (
                pytest.raises(ConfigurationError, match="not a loopback address"),
                listening(tunnel, "127.0.0.1", echo, address=address),
            ):
                pass


def test_many_connections_share_a_tunnel(servers: list[Sshd], echo: int) -> None:
    with Tunnel(settings_for(servers[0])) as tunnel, ThreadPoolExecutor(16) as threads:

        def work(number: int) -> bool:
            wire = tunnel.dial("127.0.0.1", echo, 20)
            text = f"{number} ".encode() * 5000
            same = ask(wire, text) == text
            wire.close()
            return same

        assert all(threads.map(work, range(48)))
        assert len(tunnel._clients) == 1


def test_a_killed_hop_breaks_calls_and_is_built_anew(
    servers: list[Sshd], one_more: Sshd, echo: int, tmp_path: Path
) -> None:
    with Tunnel(settings_for(servers[0], one_more)) as tunnel:
        wire = tunnel.dial("127.0.0.1", echo, 20)
        assert ask(wire, b"before") == b"before"
        send(sessions(one_more), signal.SIGKILL)
        wire.settimeout(20)
        assert wire.recv(1) == b""
        assert wire.has_input()
        assert ask(tunnel.dial("127.0.0.1", echo, 20), b"after") == b"after"
        one_more.stop()
        with pytest.raises(TunnelUnreachableError) as caught:
            tunnel.dial("127.0.0.1", echo, 20)
        assert caught.value.retryable
        assert str(one_more.port) not in caught.value.hop  # the hop before it cannot reach it
    assert pickle.loads(pickle.dumps(tunnel)).settings == tunnel.settings


def sessions(server: Sshd) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to sessions, of which those without a client end by themselves."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def test_a_frozen_hop_is_noticed_and_built_anew(
    one_more: Sshd, echo: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_hive_federation.tunnel.tunnel._PROBE_S", 0.5)
    with Tunnel(settings_for(one_more)) as tunnel:
        wire = tunnel.dial("127.0.0.1", echo, 20)
        frozen = sessions(one_more)
        send(frozen, signal.SIGSTOP)
        wire.settimeout(0.3)
        wire.send(b"lost")
        with pytest.raises(TimeoutError):
            wire.recv(1)
        # The server itself goes on: it answers a new connection.
        assert ask(tunnel.dial("127.0.0.1", echo, 20), b"again") == b"again"
        send(frozen, signal.SIGCONT)


def test_a_hop_that_answers_nothing_ends_by_its_timeout(one_more: Sshd, echo: int) -> None:
    one_more.signal(signal.SIGSTOP)
    with Tunnel(settings_for(one_more, timeout_s=0.5)) as tunnel, pytest.raises(TunnelUnreachableError):
        tunnel.dial("127.0.0.1", echo, 20)
    one_more.signal(signal.SIGCONT)


def test_host_keys_are_strict(servers: list[Sshd], echo: int, tmp_path: Path) -> None:
    good = settings_for(servers[0])
    empty = tmp_path / "empty"
    empty.write_text("", encoding="utf-8")
    with (
        Tunnel(replace(good, known_hosts=(str(empty),))) as tunnel,
        pytest.raises(HostKeyError, match="not known"),
    ):
        tunnel.dial("127.0.0.1", echo, 20)
    changed = tmp_path / "changed"
    other = servers[1].known_hosts.read_text(encoding="utf-8").split()
    changed.write_text(f"[127.0.0.1]:{servers[0].port} {other[1]} {other[2]}\n", encoding="utf-8")
    with (
        Tunnel(replace(good, known_hosts=(str(changed),))) as tunnel,
        pytest.raises(HostKeyError, match="differs from the known host key"),
    ):
        tunnel.dial("127.0.0.1", echo, 20)
    missing = replace(good, known_hosts=(str(tmp_path / "missing"),))
    with Tunnel(missing) as tunnel, pytest.raises(ConfigurationError, match="missing"):
        tunnel.dial("127.0.0.1", echo, 20)


def test_keys_that_do_not_do(servers: list[Sshd], echo: int, tmp_path: Path) -> None:
    good = settings_for(servers[0])
    wrong = tmp_path / "wrong"
    shutil.copy(servers[1].key, wrong)
    readable = tmp_path / "readable"
    shutil.copy(servers[0].key, readable)
    readable.chmod(0o644)
    no_key = tmp_path / "no_key"
    no_key.write_text("hello", encoding="utf-8")
    no_key.chmod(0o600)
    for key in (wrong, readable, no_key, tmp_path / "missing"):
        hop = replace(good.hops[0], keys=(str(key),))
        with Tunnel(replace(good, hops=(hop,))) as tunnel, pytest.raises(TunnelAuthenticationError) as caught:
            tunnel.dial("127.0.0.1", echo, 20)
        assert str(servers[0].port) in caught.value.hop
        assert not caught.value.retryable
    no_keys = replace(good.hops[0], keys=())
    with Tunnel(replace(good, hops=(no_keys,))) as tunnel, pytest.raises(TunnelAuthenticationError):
        tunnel.dial("127.0.0.1", echo, 20)


def test_a_key_with_a_passphrase(servers: list[Sshd], echo: int, tmp_path: Path) -> None:
    good = settings_for(servers[0])
    locked = tmp_path / "locked"
    shutil.copy(servers[0].key, locked)
    change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "sesame", "-f", str(locked)]
    subprocess.run(change, check=True, timeout=30)
    route = replace(good, hops=(replace(good.hops[0], keys=(str(locked),)),))
    with Tunnel(replace(route, passphrase="sesame")) as tunnel:
        assert ask(tunnel.dial("127.0.0.1", echo, 20), b"open") == b"open"
    for passphrase in (None, "wrong"):
        with (
            Tunnel(replace(route, passphrase=passphrase)) as tunnel,
            pytest.raises(TunnelAuthenticationError) as caught,
        ):
            tunnel.dial("127.0.0.1", echo, 20)
        assert "wrong" not in str(caught.value)


def test_a_key_of_an_agent(
    servers: list[Sshd], echo: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL) as agent:
        try:
            assert wait_until(place.exists, PollPolicy(first_s=0.02, timeout_s=20))
            monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
            subprocess.run(["ssh-add", "-q", str(servers[0].key)], check=True, timeout=30)
            good = settings_for(servers[0])
            route = replace(good, hops=(replace(good.hops[0], keys=()),))
            with Tunnel(replace(route, agent=True)) as tunnel:
                assert ask(tunnel.dial("127.0.0.1", echo, 20), b"open") == b"open"
            # Without the setting it is left alone.
            with Tunnel(route) as tunnel, pytest.raises(TunnelAuthenticationError):
                tunnel.dial("127.0.0.1", echo, 20)
        finally:
            agent.terminate()


def test_what_lies_behind_does_not_answer(servers: list[Sshd], tmp_path: Path, echo: int) -> None:
    with (
        Tunnel(settings_for(servers[0])) as tunnel,
        pytest.raises(TunnelUnreachableError, match="cannot be reached"),
    ):
        tunnel.dial("127.0.0.1", free_port(), 20)
    closed = start_sshd(tmp_path / "closed", forwarding=False)
    try:
        with Tunnel(settings_for(closed)) as tunnel, pytest.raises(TunnelUnreachableError):
            tunnel.dial("127.0.0.1", echo, 20)
    finally:
        closed.stop()


def test_a_metastore_through_two_hops(
    servers: list[Sshd],
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {str(path.parent) for server in servers[:2] for path in (server.key, server.known_hosts)}
    monkeypatch.setenv("HIVE_FEDERATION_REMOTE_SSH_FILES", os.pathsep.join(files))
    with MetastoreClient(
        MetastoreSettings(uris=(source.uri,), dialer=Tunnel(settings_for(*servers[:2])))
    ) as client:
        assert "default" in client.list_databases()
    text_table(source, "default", "tunnelled", rows={"": "1,a\n"})
    route = " -> ".join(str(server.hop) for server in servers[:2])
    known = ",".join(str(server.known_hosts) for server in servers[:2])
    keys = ",".join(str(server.key) for server in servers[:2])
    statement = f"""CREATE REMOTE TABLE by_ssh CONNECTED TO default.tunnelled
        VIA 'org.apache.hadoop.hive.metastore.SSHThriftHiveMetastoreClientFactory'
          'hive.metastore.uris' = '{source.uri}'
          'ssh.tunnel.route' = '{route}'
          'ssh.tunnel.private.keys' = '{keys}'
          'ssh.tunnel.known.hosts' = '{known}'"""
    with Remotes(MetastoreSettings(uris=(target.uri,))) as remotes:
        assert remotes.run(statement)[0].rows == (("Remote table default.by_ssh created.",),)
        assert ("id", "int", "") in remotes.run("DESCRIBE by_ssh")[0].rows
        remotes.run("DROP REMOTE TABLE by_ssh")
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        client.drop_table("default", "tunnelled", delete_data=False)


def test_a_frozen_tunnel_ends_a_call_by_its_deadline(one_more: Sshd, source: EmbeddedMetastore) -> None:
    tunnel = Tunnel(settings_for(one_more))
    settings = MetastoreSettings(uris=(source.uri,), dialer=tunnel)
    with tunnel, MetastoreClient(settings) as client:
        assert client.list_databases("default") == ["default"]
        frozen = sessions(one_more)
        send(frozen, signal.SIGSTOP)
        client.settings = replace(settings, call_timeout_s=1.0)
        with pytest.raises(MetastoreTimeoutError):
            client.list_databases("default")
        send(frozen, signal.SIGCONT)
        # A busy metastore may take its time.
        client.settings = settings
        assert client.list_databases("default") == ["default"]
