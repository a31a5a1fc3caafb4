"""The check of what libhdfs needs, and its texts, without the library."""

from __future__ import annotations

import ctypes
import os
import zipfile
from pathlib import Path

import pytest

from airflow_hive_federation.errors import (
    ConfigurationError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.storage.filesystem import open_filesystem
from airflow_hive_federation.storage.hdfs_errors import java_error
from airflow_hive_federation.storage.libhdfs import Library, hadoop_class_path, refuse_missing_classes
from airflow_hive_federation.storage.libhdfs_client import AclEntry, _javas_utf8

URI = "hdfs://never.asked:8020/x"
VARIABLES = ("CLASSPATH", "HADOOP_HOME", "HADOOP_CONF_DIR", "JAVA_HOME", "ARROW_LIBHDFS_DIR")
CLASSES = {
    "hadoop-common.jar": "org/apache/hadoop/fs/FileSystem.class",
    "hadoop-hdfs-client.jar": "org/apache/hadoop/hdfs/DistributedFileSystem.class",
    "commons-lang3.jar": "org/apache/commons/lang3/exception/ExceptionUtils.class",
}


def make_jars(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with zipfile.ZipFile(folder / name, "w") as jar:
            jar.writestr(CLASSES[name], b"")


def make_file(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_all_that_libhdfs_needs_is_found_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def refused() -> ConfigurationError:
        with pytest.raises(ConfigurationError) as caught:
            open_filesystem(URI, {"client": "libhdfs"})
        return caught.value

    assert "ARROW_LIBHDFS_DIR" in refused().remedy
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path / "hadoop"))
    assert f"not at {tmp_path}/hadoop/lib/native/libhdfs.so" in refused().message
    make_file(tmp_path / "hadoop/lib/native/libhdfs.so")
    assert "JAVA_HOME" in refused().remedy
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    # A JVM of Java 8.
    make_file(tmp_path / "java/jre/lib/amd64/server/libjvm.so")
    assert f"{tmp_path}/hadoop/bin/hadoop classpath --glob" in refused().remedy
    make_file(tmp_path / "hadoop/bin/hadoop", f"#!/bin/sh\necho {tmp_path}/etc:{tmp_path}/jars/'*'\n")
    (tmp_path / "hadoop/bin/hadoop").chmod(0o755)
    assert hadoop_class_path(os.environ) == f"{tmp_path}/etc:{tmp_path}/jars/*"
    make_jars(tmp_path / "jars", "hadoop-common.jar", "hadoop-hdfs-client.jar")
    assert "jars that CLASSPATH does not have: commons-lang3." in refused().message
    make_jars(tmp_path / "jars", "commons-lang3.jar")
    assert f"libhdfs cannot be loaded: {tmp_path}/java/jre" in refused().message
    monkeypatch.setenv("CLASSPATH", f"{tmp_path}/none.jar")
    assert "commons-lang3, hadoop-common, hadoop-hdfs-client" in refused().message


def test_the_class_path_may_list_jars(tmp_path: Path) -> None:
    make_jars(tmp_path, *CLASSES)
    (tmp_path / "broken.jar").write_text("no jar")
    refuse_missing_classes(":".join(str(jar) for jar in sorted(tmp_path.iterdir())))


@pytest.mark.parametrize("option", ["kerberos_keytab", "kerberos_principal"])
def test_a_keytab_is_refused(option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"by a ticket only, .*{option}") as caught:
        open_filesystem(URI, {"client": "libhdfs", option: "a"})
    assert "kinit -kt" in caught.value.remedy


def test_another_client_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="hdfs-native or libhdfs, not 'java'"):
        open_filesystem(URI, {"client": "java"})


def test_an_older_library_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="libc has no function hdfsNewBuilder") as caught:
        Library(ctypes.CDLL(None), Path("libc"))
    assert "Hadoop 3" in caught.value.remedy


@pytest.mark.parametrize(
    ("java", "reason", "kind"),
    [
        ("SafeModeException", "Name node is in safe mode.", StorageUnavailableError),
        ("StandbyException", "not supported in state standby", StorageUnavailableError),
        ("ConnectException", "Connection refused", StorageUnavailableError),
        ("UnknownHostException", "name.node", StorageUnavailableError),
        ("RemoteException", "File /f could only be written to 0 of the 1 nodes", StorageUnavailableError),
        ("AccessControlException", "Permission denied: user=bob", StoragePermissionError),
        ("GSSException", "No valid credentials provided", StoragePermissionError),
        ("DSQuotaExceededException", "quota", StorageFullError),
        ("IllegalStateException", "odd", StorageError),
    ],
)
def test_errors_of_java_have_types_and_no_traces(java: str, reason: str, kind: type[StorageError]) -> None:
    error = java_error(java, f"{reason}\n\tat org.apache.hadoop.X(Y.java:1)", "hdfs://n/f")
    assert type(error) is kind
    assert error.facts["path"] == "hdfs://n/f"
    assert reason.rstrip(".") in error.message
    assert "at org.apache" not in str(error)


@pytest.mark.parametrize("text", ["user:bob:r-x", "default:group:eng:rwx", "group::r--", "default:mask::r-x"])
def test_entries_of_access_lists_are_read_and_written(text: str) -> None:
    assert str(AclEntry.of(text)) == text


def test_a_path_is_encoded_as_java_reads_it() -> None:
    assert _javas_utf8("/aé%") == "/aé%".encode()
    assert _javas_utf8("/🐝") == b"/\xed\xa0\xbd\xed\xb0\x9d"
