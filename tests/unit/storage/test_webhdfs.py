"""Requests to the web servers of NameNodes: the active one answers, and refusals have types."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_hive_federation.embedded.jvm import free_port
from airflow_hive_federation.errors import (
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.storage.snapshots import freezes_open_files
from airflow_hive_federation.storage.webhdfs import NameNodeWeb


class NameNode(BaseHTTPRequestHandler):
    """A server that gives one answer, and notes the requests."""

    answer: tuple[int, object]
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(f"{self.command} {self.path}")
        status, body = self.answer
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_GET  # noqa: N815 - named by http.server

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def name_node(status: int, body: object) -> Iterator[tuple[str, list[str]]]:
    seen: list[str] = []
    handler: Any = type("Answering", (NameNode,), {"answer": (status, body), "seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def remote(java: str, message: str = "No.\n\tat org.apache") -> object:
    return {"RemoteException": {"exception": java, "message": message}}


def ha(*addresses: str) -> dict[str, str]:
    """Settings of a name service."""
    names = [f"nn{number}" for number, _ in enumerate(addresses)]
    return {
        "dfs.ha.namenodes.lake": ",".join(names),
        **{
            f"dfs.namenode.http-address.lake.{name}": address
            for name, address in zip(names, addresses, strict=True)
        },
    }


def test_the_active_name_node_of_several_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "carol")
    with (
        name_node(403, remote("StandbyException")) as (standby, _),
        name_node(200, {"a": 1}) as (active, seen),
    ):
        web = NameNodeWeb("hdfs://lake/x", ha(f"127.0.0.1:{free_port()}", standby, active))
        assert web.call("PUT", "CREATESNAPSHOT", "/p=a%3A b?", snapshotname="s 1") == {"a": 1}
        query = "op=CREATESNAPSHOT&user.name=carol&snapshotname=s%201"
        assert seen == [f"PUT /webhdfs/v1/p%3Da%253A%20b%3F?{query}"]
        web = NameNodeWeb("hdfs://lake/x", ha(standby))
        with pytest.raises(StorageUnavailableError, match="cannot be used now: No"):
            web.call("GET", "GETFILESTATUS", "/")


CAPTURE = "dfs.namenode.snapshot.capture.openfiles"


@pytest.mark.parametrize(
    ("status", "body", "settings", "freezes"),
    [
        (200, {"property": {"key": CAPTURE, "value": "true"}}, {}, True),
        # The NameNode knows better than the files of this machine.
        (200, {"property": {"key": CAPTURE, "value": "false"}}, {CAPTURE: "true"}, False),
        (404, b"Property not found", {}, False),
        (403, b"<html>", {CAPTURE: "true"}, True),
        (200, b"<html>", {}, False),
        (200, {"property": {"key": CAPTURE, "value": None}}, {}, False),
    ],
)
def test_whether_snapshots_freeze_open_files(
    status: int, body: object, settings: dict[str, str], freezes: bool
) -> None:
    with name_node(status, body) as (address, seen):
        assert freezes_open_files("hdfs://lake/x", {**ha(address), **settings}) is freezes
        assert seen == [f"GET /conf?name={CAPTURE}"]


def test_a_setting_of_a_name_node_that_does_not_answer() -> None:
    with pytest.raises(StorageUnavailableError):
        freezes_open_files("hdfs://lake/x", {**ha(f"127.0.0.1:{free_port()}"), CAPTURE: "true"})


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (403, remote("AccessControlException"), StoragePermissionError, "No right to use .*: No"),
        (
            403,
            remote("SecurityException", "Security enabled but user not authenticated by filter"),
            StoragePermissionError,
            r"hadoop\.http\.authentication\.type to kerberos",
        ),
        (401, b"<html>", StoragePermissionError, "answers 401"),
        (403, remote("FileAlreadyExistsException"), StorageError, "hdfs://lake/x: No"),
        (403, remote("NSQuotaExceededException"), StorageFullError, "does not fit"),
        (400, remote("SnapshotException"), StorageError, "hdfs://lake/x: No"),
        (404, b"<html>", StorageError, "answers 404"),
        (200, b"<html>", StorageError, "answers as no NameNode does"),
        (503, remote("SafeModeException"), StorageUnavailableError, "cannot be used now"),
    ],
)
def test_refusals_have_types(status: int, body: object, kind: type[StorageError], text: str) -> None:
    with name_node(status, body) as (address, _):
        web = NameNodeWeb("hdfs://lake", ha(address))
        with pytest.raises(StorageError, match=text) as caught:
            web.call("GET", "GETFILESTATUS", "/x")
    assert type(caught.value) is kind
    assert "org.apache" not in str(caught.value)
    assert "dfs." not in caught.value.message
