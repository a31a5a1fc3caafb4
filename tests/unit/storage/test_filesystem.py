from __future__ import annotations

import errno
import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem

from airflow_hive_federation.errors import (
    ConfigurationError,
    FileVanishedError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
)
from airflow_hive_federation.storage import filesystem as fs
from airflow_hive_federation.storage import publishing


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("file:/w/t", "file:///w/t"),
        ("file:/w/t", "/w/t/"),
        ("file://localhost/w/t", "file:/w/t"),
        ("file:/w//t", "file:/w/t"),
        ("s3a://b/k", "s3://b/k/"),
        ("s3n://b/k", "s3a://b/k"),
        ("HDFS://NameNode:8020/a", "hdfs://namenode:8020/a"),
        ("file:/w/p=a%3Ab", "/w/p=a%3Ab"),
        ("hdfs://n", "hdfs://n/"),
    ],
)
def test_spellings_of_one_place(first: str, second: str) -> None:
    assert fs.is_below(first, second)
    assert fs.is_below(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("file:/w/t", "file:/w/T"),
        ("s3://b/k", "s3://c/k"),
        ("s3://b/k", "file:/b/k"),
        ("hdfs://n:8020/a", "hdfs://n:9000/a"),
        # Not percent-encoding: a Hadoop path's text.
        ("file:/w/p=a%3Ab", "file:/w/p=a:b"),
    ],
)
def test_different_places(first: str, second: str) -> None:
    assert not fs.is_below(first, second)
    assert not fs.is_below(second, first)


def test_characters_that_url_parsers_trip_over_are_kept() -> None:
    assert fs.parse_location("hdfs://n/a/p=1?2#3%4").path == "/a/p=1?2#3%4"
    assert fs.local_path("file:/a/p=x y#z") == "/a/p=x y#z"
    assert fs.open_filesystem("s3-like-name/x")[1].endswith("/s3-like-name/x")


def test_join_and_relative() -> None:
    assert fs.join("file:/a/", "/b/", "", "c") == "file:/a/b/c"
    assert fs.relative("file:///a/b/c", "file:/a") == "b/c"
    assert fs.relative("/a", "file:/a/") == ""
    assert fs.relative("s3a://b/x/y", "s3://b/") == "x/y"
    with pytest.raises(ConfigurationError, match="does not lie below"):
        fs.relative("file:/abc", "file:/ab")


@pytest.mark.parametrize("uri", ["", "1x://y", "file://elsewhere/x"])
def test_no_uri(uri: str) -> None:
    with pytest.raises(ConfigurationError):
        fs.parse_location(uri)


def test_options_by_prefix() -> None:
    options = {"s3://a": {"key": "1"}, "s3://a/deep": {"key": "2"}, "s3://b": {"key": "3"}}
    assert fs.options_for("s3a://a/x", options) == {"key": "1"}
    assert fs.options_for("s3://a/deep/x", options) == {"key": "2"}
    assert fs.options_for("s3://c/x", options) == {}
    assert fs.options_for("s3://c/x", {"key": "4"}) == {"key": "4"}
    assert fs.options_for("s3://c/x", None) == {}


@pytest.mark.parametrize(
    ("uri", "driver", "remedy"),
    [
        ("s3a://bucket/key", "s3fs", r"airflow-hive-federation\[s3\]"),
        ("gs://bucket/key", "gcsfs", r"airflow-hive-federation\[gcs\]"),
        ("abfss://bucket/key", "adlfs", r"airflow-hive-federation\[azure\]"),
    ],
)
def test_missing_driver_names_what_to_install(
    uri: str, driver: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    # The package has a mapping of the module's name.
    registry: Any = importlib.import_module("fsspec.registry")
    for scheme in ("s3", "gs", "abfs"):
        monkeypatch.delitem(registry._registry, scheme, raising=False)
    with pytest.raises(ConfigurationError, match=remedy):
        fs.open_filesystem(uri)


def test_a_connection_string_of_another_account_is_refused() -> None:
    """adlfs would open the container of that name in the account of the string."""
    options = {"connection_string": "DefaultEndpointsProtocol=https;AccountName=other;AccountKey=c2VzYW1l"}
    with pytest.raises(
        ConfigurationError, match="'mine', and the connection string is that of 'other'"
    ) as caught:
        fs.open_filesystem("abfss://box@mine.dfs.core.windows.net/t", options)
    assert "c2VzYW1l" not in str(caught.value)
    fs.open_filesystem("abfss://box@other.dfs.core.windows.net/t", options)


@pytest.mark.parametrize(
    ("options", "origin"),
    [
        ({"account_name": "other"}, "the option account_name"),
        ({"account_host": "other.blob.core.windows.net"}, "the option account_host"),
        (
            {"account_name": "mine", "account_host": "other.blob.core.chinacloudapi.cn"},
            "the option account_host",
        ),
        ({"account_host": "other.privatelink.blob.core.windows.net"}, "the option account_host"),
        ({"account_host": "other.z12.blob.storage.azure.net"}, "the option account_host"),
        ({"connection_string": "AccountKey=c2VzYW1l; accountname = other"}, "the connection string"),
        (
            {
                "connection_string": "BlobEndpoint=https://other.blob.core.windows.net;"
                "SharedAccessSignature=sig=c2VzYW1l"
            },
            "the connection string",
        ),
    ],
)
def test_options_of_another_account_are_refused(options: dict[str, str], origin: str) -> None:
    """adlfs goes by them alone: two locations of one container's name would be the same files."""
    with pytest.raises(ConfigurationError, match=f"'mine', and {origin} is that of 'other'") as caught:
        fs.open_filesystem("abfss://box@mine.dfs.core.windows.net/t", options)
    assert "by URI prefix" in caught.value.remedy
    assert "c2VzYW1l" not in str(caught.value)


def test_a_connection_string_of_the_environment_is_one_of_another_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=other;AccountKey=c2VzYW1l")
    with pytest.raises(ConfigurationError, match="the connection string is that of 'other'"):
        fs.open_filesystem("abfss://box@mine.dfs.core.windows.net/t", {"account_key": "c2VzYW1l"})


@pytest.mark.parametrize(
    "options",
    [
        {"account_name": "Mine", "account_host": "MINE.blob.core.windows.net"},
        {"account_host": "mine-secondary.blob.core.windows.net"},
        # An emulator, and proxies: their hosts have no account's name.
        {"account_name": "mine", "account_host": "127.0.0.1:10000/mine"},
        {"account_host": "blob.example.com"},
        {"connection_string": "AccountName=mine;AccountKey=c2Vz;BlobEndpoint=http://127.0.0.1:10000/mine;"},
    ],
)
def test_options_of_the_same_account_decide(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr("fsspec.filesystem", lambda _scheme, **given: opened.append(given))
    fs.open_filesystem("abfss://box@mine.dfs.core.windows.net/t", options)
    assert options.items() <= opened[0].items()


def test_an_incomplete_key_of_google_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="gs://b cannot be opened: 'refresh_token'"):
        fs.open_filesystem("gs://b", {"token": {"type": "service_account"}})


def test_unknown_scheme() -> None:
    with pytest.raises(ConfigurationError, match="Check the URI's scheme"):
        fs.open_filesystem("nosuch://x/y")


@pytest.mark.parametrize(
    ("uri", "instead"),
    [
        ("viewfs://c/data", "hdfs://"),
        ("webhdfs://c:9870/data", "hdfs://"),
        ("ofs://om/volume/bucket", "hdfs://"),
        ("wasbs://box@lake.blob.core.windows.net/t", "abfs://"),
    ],
)
def test_a_scheme_without_a_driver_is_refused_by_name(uri: str, instead: str) -> None:
    scheme = uri.partition(":")[0]
    with pytest.raises(ConfigurationError, match=f"no driver for {scheme}://") as caught:
        fs.open_filesystem(uri, {"host": "127.0.0.1", "account_name": "lake"})
    assert instead in (caught.value.remedy or "")


def test_a_driver_of_azure_gets_the_account_and_finds_files_by_their_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its listings name files so; a path with the account would seem to be one file without a name."""
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr("fsspec.filesystem", lambda scheme, **options: opened.append({scheme: options}))
    for uri in ("abfss://box@mine.dfs.core.windows.net/t/f", "abfs://box/t/f"):
        assert fs.open_filesystem(uri)[1] == "box/t/f"
    fs.open_filesystem("abfs://box/t", {"account_name": "other"})
    account = {"account_name": "mine", "account_host": "mine.blob.core.windows.net"}
    uncached = {"use_listings_cache": False}
    assert opened == [
        {"abfs": {**uncached, **account}},
        {"abfs": uncached},
        {"abfs": {**uncached, "account_name": "other"}},
    ]


def test_what_others_write_is_seen_on_each_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(
        "fsspec.filesystem", lambda _, **options: opened.append(options["use_listings_cache"])
    )
    for uri in ("s3://a/b", "gs://a/b", "abfs://a/b"):
        fs.open_filesystem(uri)
    assert opened == [False] * 3


def test_memory_keeps_its_authority_in_the_path() -> None:
    filesystem, path = fs.open_filesystem("memory://bucket/a")
    assert (filesystem.protocol, path) == ("memory", "/bucket/a")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FileVanishedError),
        (errno.EACCES, StoragePermissionError),
        (errno.EPERM, StoragePermissionError),
        (errno.EROFS, StoragePermissionError),
        (errno.ENOSPC, StorageFullError),
        (errno.EDQUOT, StorageFullError),
        (errno.EFBIG, StorageFullError),
        (errno.EIO, StorageError),
    ],
)
def test_errors_are_translated_by_number(number: int, kind: type[StorageError]) -> None:
    with pytest.raises(StorageError) as caught, fs.storage_errors("file:/x"):
        raise OSError(number, "because")
    assert type(caught.value) is kind
    assert caught.value.path == "file:/x"
    assert caught.value.remedy
    assert type(pickle.loads(pickle.dumps(caught.value))) is kind


def test_errors_without_a_number_are_translated_by_class() -> None:
    with pytest.raises(FileVanishedError), fs.storage_errors("memory://x"):
        raise FileNotFoundError("x")
    with pytest.raises(StoragePermissionError), fs.storage_errors("s3://x"):
        raise PermissionError("Access Denied")


def test_our_own_errors_and_strangers_pass() -> None:
    with pytest.raises(StorageFullError), fs.storage_errors("x"):
        raise StorageFullError("m")
    with pytest.raises(KeyError), fs.storage_errors("x"):
        raise KeyError("x")


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_written_whole_or_not_at_all(scheme: str, tmp_path: Path) -> None:
    uri = f"{scheme}://{tmp_path}/deep/f"
    assert publishing.write_atomically(uri, [b"one", b"two"]) == 6
    with pytest.raises(ZeroDivisionError):
        publishing.write_atomically(uri, (b"x" * (1 // n) for n in (1, 0)))
    with fs.reading(uri) as file:
        assert file.read() == b"onetwo"
    filesystem, folder = fs.open_filesystem(f"{scheme}://{tmp_path}/deep")
    assert [name.rpartition("/")[2] for name in filesystem.ls(folder, detail=False)] == ["f"]


def test_uploads_are_committed_or_discarded(tmp_path: Path) -> None:
    """The way of object stores, on a file system that has the same commit and discard."""
    target = tmp_path / "f"
    with publishing._committing(LocalFileSystem(), str(target), "s3://b/f") as file:
        file.write(b"whole")
        assert not target.exists()
    assert target.read_bytes() == b"whole"
    with pytest.raises(ZeroDivisionError):
        write_half(str(tmp_path / "g"))
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


class FailingFile(LocalFileOpener):
    """Its store refuses to end the upload that has begun."""

    def discard(self) -> None:
        raise OSError(errno.EIO, "refused")


def test_an_upload_that_cannot_be_discarded_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsspec.implementations.local.LocalFileOpener", FailingFile)
    with pytest.raises(ZeroDivisionError):
        write_half(str(tmp_path / "g"))


def write_half(path: str) -> None:
    with publishing._committing(LocalFileSystem(), path, "s3://b/g") as file:
        file.write(b"half")
        raise ZeroDivisionError


def test_temporary_names_are_hidden_and_name_their_run() -> None:
    uri = publishing.temporary_uri("file:/a/bucket_00000", "0abc")
    folder, _, name = uri.rpartition("/")
    assert folder == "file:/a"
    assert name.startswith("._copy_bucket_00000.")
    assert publishing.temporary_run(name) == "0abc"
    assert publishing.temporary_run("bucket_00000") is None
    assert len(publishing.temporary_uri("file:/a/" + "é" * 120, "0" * 16).rpartition("/")[2].encode()) <= 255
