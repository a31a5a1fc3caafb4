"""Refusals of object stores, by a server of HTTP that gives every request one answer."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs as arrow_files
from s3fs import S3FileSystem

from airflow_hive_federation.errors import (
    BucketMissingError,
    FileVanishedError,
    StorageCredentialsExpiredError,
    StorageError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.storage.filesystem import reading, storage_errors
from airflow_hive_federation.storage.listing import list_directory, list_files
from airflow_hive_federation.storage.publishing import remove_file, write_atomically

REFUSALS = [
    (503, "SlowDown", StorageUnavailableError, "limits the rate"),
    (500, "InternalError", StorageUnavailableError, "the store fails"),
    (400, "ExpiredToken", StorageCredentialsExpiredError, "have expired: ExpiredToken, the reason"),
    (403, "AccessDenied", StoragePermissionError, "No right"),
    (403, "SignatureDoesNotMatch", StoragePermissionError, "No right"),
    (404, "NoSuchBucket", BucketMissingError, "does not exist"),
]
Refuse = Callable[..., str]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refuse]:
    """Set the answer of the server to every request, and return the server's URL."""
    answer: list[tuple[int, str, bytes]] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # The client may reuse the connection: nothing of the request may be left in it.
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, code, body = answer[0]
            if self.path.startswith(("/storage/", "/upload/", "/download/")):
                body = json.dumps({"error": {"code": status, "message": f"{code}, the reason."}}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("x-ms-error-code", code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            pass

    # s3fs repeats the requests itself, too.
    monkeypatch.setattr(S3FileSystem, "retries", 1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()

    def set_answer(status: int, code: str, more: str = "") -> str:
        body = f"<Error><Code>{code}</Code><Message>the reason.</Message>{more}</Error>".encode()
        answer[:] = [(status, code, body)]
        return f"http://127.0.0.1:{server.server_port}"

    yield set_answer
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("status", "code", "kind", "text"), REFUSALS)
def test_s3_by_s3fs(refuse: Refuse, status: int, code: str, kind: type[StorageError], text: str) -> None:
    options = {
        "key": "a",
        "secret": "planted-secret",
        "client_kwargs": {"endpoint_url": refuse(status, code), "region_name": "us-east-1"},
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }
    for refused in (
        lambda: write_atomically("s3://b/t/f", [b"1"], options),
        lambda: list_directory("s3://b/t", options=options),
        # Neither a missing right nor a missing bucket is a directory without files.
        lambda: list_files("s3://b/t", options=options, missing_ok=True),
    ):
        with pytest.raises(kind, match=text) as caught:
            refused()
        assert type(caught.value) is kind
        assert caught.value.path.startswith("s3://b/t")
        assert "planted-secret" not in f"{caught.value}{caught.value.facts}"


@pytest.mark.parametrize(("status", "code", "kind", "text"), REFUSALS)
def test_s3_by_pyarrow(refuse: Refuse, status: int, code: str, kind: type[StorageError], text: str) -> None:
    store = arrow_files.S3FileSystem(
        access_key="a",
        secret_key="b",
        endpoint_override=refuse(status, code).removeprefix("http://"),
        scheme="http",
        region="us-east-1",
        retry_strategy=arrow_files.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    with pytest.raises(kind) as caught, storage_errors("s3://b/t/f"):
        store.get_file_info(arrow_files.FileSelector("b/t"))
    assert type(caught.value) is kind


async def no_wait(*_: object) -> None:
    """Stand for the pauses between the drivers' own tries."""


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (429, "rateLimitExceeded", StorageUnavailableError),
        (503, "backendError", StorageUnavailableError),
        (502, "", StorageUnavailableError),
        (401, "Invalid Credentials", StoragePermissionError),
        (401, "Request had invalid authentication credentials", StoragePermissionError),
        (403, "a@b does not have storage.objects.list access", StoragePermissionError),
        (404, "The specified bucket does not exist", BucketMissingError),
    ],
)
def test_google_by_gcsfs(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch, status: int, text: str, kind: type[StorageError]
) -> None:
    monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=no_wait))
    # gcsfs logs what it repeats, without the token.
    options = {"token": "planted-secret", "project": "p", "endpoint_url": refuse(status, text)}
    refused_alike(kind, "gs://b/t", options)


EXPIRED = (
    "<AuthenticationErrorDetail>Signature not valid in the specified time frame</AuthenticationErrorDetail>"
)


@pytest.mark.parametrize(
    ("status", "code", "more", "kind"),
    [
        (503, "ServerBusy", "", StorageUnavailableError),
        (500, "InternalError", "", StorageUnavailableError),
        (403, "AuthenticationFailed", "", StoragePermissionError),
        (403, "AuthenticationFailed", EXPIRED, StorageCredentialsExpiredError),
        (401, "InvalidAuthenticationInfo", "", StoragePermissionError),
        (403, "AuthorizationPermissionMismatch", "", StoragePermissionError),
        (404, "ContainerNotFound", "", BucketMissingError),
    ],
)
def test_azure_by_adlfs(
    refuse: Refuse,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    more: str,
    kind: type[StorageError],
) -> None:
    monkeypatch.setattr("azure.storage.blob._shared.policies_async.AsyncStorageRetryPolicy.sleep", no_wait)
    url = refuse(status, code, more)
    text = f"AccountName=a;BlobEndpoint={url}/a;SharedAccessSignature=sv=1&sig=planted-secret"
    refused_alike(kind, "abfs://b/t", {"connection_string": text})


def test_a_key_of_azure_that_is_none() -> None:
    options = {"account_name": "a", "account_key": "planted-secret"}
    with pytest.raises(StoragePermissionError, match="Invalid base64") as caught:
        list_directory("abfs://b/t", options=options)
    assert "planted-secret" not in str(caught.value)


def refused_alike(kind: type[StorageError], uri: str, options: dict[str, str]) -> None:
    for refused in (
        lambda: write_atomically(f"{uri}/f", [b"1"], options),
        lambda: list_directory(uri, options=options),
        lambda: list_files(uri, options=options, missing_ok=True),
    ):
        with pytest.raises(StorageError) as caught:
            refused()
        assert type(caught.value) is kind
        assert caught.value.path.startswith(uri)
        shown = "".join(traceback.format_exception(caught.value))
        assert "planted-secret" not in f"{shown}{caught.value.facts}"


def test_a_missing_file_is_no_missing_bucket(refuse: Refuse) -> None:
    options = {
        "key": "a",
        "secret": "b",
        "client_kwargs": {"endpoint_url": refuse(404, "NoSuchKey"), "region_name": "us-east-1"},
    }
    with pytest.raises(FileVanishedError), reading("s3://b/t", options):
        pass


class HttpError(Exception):
    """The class of gcsfs, which is not installed here, by its name and attributes (``gcsfs.retry``)."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message


class HttpResponseError(Exception):
    """The class of Azure's client, which is not installed here (``azure.core.exceptions``)."""

    def __init__(self, status_code: int, error_code: str) -> None:
        self.status_code, self.error_code, self.reason = status_code, error_code, "a reason"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (HttpError(429, "rate"), StorageUnavailableError),
        (HttpError(401, "Invalid Credentials"), StoragePermissionError),
        (HttpResponseError(503, "ServerBusy"), StorageUnavailableError),
        (HttpResponseError(404, "ContainerNotFound"), BucketMissingError),
        (HttpResponseError(403, "AuthorizationPermissionMismatch"), StoragePermissionError),
    ],
)
def test_causes_of_other_drivers(cause: Exception, kind: type[StorageError]) -> None:
    with pytest.raises(kind) as caught, storage_errors("gs://b/t"):
        raise OSError("the driver's own text") from cause
    assert type(caught.value) is kind


def test_a_refused_upload_of_azure_is_named() -> None:
    """adlfs raises a ``RuntimeError`` for it; that of another origin passes."""
    with pytest.raises(StorageUnavailableError), storage_errors("abfs://b/t"):
        raise RuntimeError("Failed to upload block") from HttpResponseError(503, "ServerBusy")
    with pytest.raises(RuntimeError, match="a fault"), storage_errors("abfs://b/t"):
        raise RuntimeError("a fault")


class FailedTaskError(Exception):
    """Like Airflow's exceptions, it has a status of HTTP."""

    status_code = 500


def test_an_error_that_is_being_handled_is_no_answer_of_the_store(tmp_path: Path) -> None:
    try:
        raise FailedTaskError
    except FailedTaskError:
        assert not remove_file(f"file:{tmp_path}/missing")
