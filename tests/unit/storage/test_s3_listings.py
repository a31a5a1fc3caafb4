"""A thread that has listed a directory on S3 sees what other processes write there afterwards."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.storage import listing
from airflow_hive_federation.storage.fence import read_fence
from airflow_hive_federation.storage.listing import list_directory, list_files

LISTING = """<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents>
<Key>t/first</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"{}"</ETag><Size>1</Size>
</Contents></ListBucketResult>"""


@pytest.fixture
def options() -> Iterator[dict[str, Any]]:
    """Options of a store that lists one file, each time another version of it, and whose files hold ``7``."""
    versions = itertools.count(1)

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = LISTING.format(next(versions)).encode() if "list-type" in self.path else b"7"
            self.send_response(200)
            for name, value in (("Content-Length", str(len(body))), ("ETag", '"7"')):
                self.send_header(name, value)
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    client = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region_name": "us-east-1"}
    yield {"key": "a", "secret": "b", "client_kwargs": client}
    server.shutdown()
    thread.join()
    server.server_close()


def names(uri: str, options: dict[str, Any]) -> list[str]:
    return [entry.path for entry in list_files(uri, options=options)]


@pytest.mark.parametrize("listed", [names, lambda uri, options: list(list_directory(uri, options=options))])
def test_a_fence_that_was_raised_after_a_listing(listed: Callable[..., Any], options: dict[str, Any]) -> None:
    """Without it, a copy job that was fenced off would go on."""
    assert listed("s3://b/t", options) == ["first"]
    assert read_fence("s3://b/t/fence", options) == 7


def test_an_object_that_is_replaced_within_a_second(options: dict[str, Any]) -> None:
    """Its length and its time are the same; an increment would not copy it."""
    (before,) = list_files("s3://b/t", options=options)
    (after,) = list_files("s3://b/t", options=options)
    assert (before.path, before.size_bytes) == (after.path, after.size_bytes)
    assert before.modified_ns != after.modified_ns
    assert before.modified_ns // 10**9 == after.modified_ns // 10**9 == 1_767_225_600


def test_a_file_that_a_driver_lists_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """adlfs does, although details are wanted."""

    class Driver:
        def find(self, path: str, *, detail: bool, withdirs: bool) -> list[str]:
            return [path]

        def invalidate_cache(self, _path: str) -> None:
            pass

    monkeypatch.setattr(listing, "open_filesystem", lambda uri, _options: (Driver(), uri[len("abfs://") :]))
    with pytest.raises(StorageError, match="is a file"):
        list_files("abfs://c/t")


def test_empty_directories_that_a_driver_lists_as_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is a double of those of Azure and Google, whose servers do not run here."""

    class Driver:
        def find(self, path: str, *, detail: bool, withdirs: bool) -> dict[str, Any]:
            assert (path, detail, withdirs) == ("c/t", True, True)
            directories = ("c/t", "c/t/base_1", "c/t/base_2", "c/t/p=1", "c/t/p=1/base_3")
            made = {name: {"name": name, "type": "directory", "size": 0} for name in directories}
            return {**made, "c/t/base_1/f": {"name": "c/t/base_1/f", "type": "file", "size": 7, "etag": "x"}}

        def invalidate_cache(self, _path: str) -> None:
            pass

    monkeypatch.setattr(listing, "open_filesystem", lambda uri, _options: (Driver(), uri[len("gs://") :]))
    entries = list_files("gs://c/t", empty_directories=True)
    assert [(entry.path, entry.size_bytes) for entry in entries] == [
        ("base_1/f", 7),
        ("base_2/", 0),
        ("p=1/base_3/", 0),
    ]
    assert [entry.path for entry in list_files("gs://c/t")] == ["base_1/f"]
