"""The errors of HDFS' driver, and access lists, without a server."""

from __future__ import annotations

import errno
import sys
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
from airflow_hive_federation.storage.hdfs import (
    AclLine,
    HdfsAccess,
    acl_specification,
    act_for_user_of_spark,
    container_configuration,
    native_errors,
    token_address,
)
from airflow_hive_federation.storage.permissions import _without_list

NAME_NODE = "org.apache.hadoop.hdfs.server.namenode"


def text_of(java: str, message: str) -> str:
    """An error of the NameNode's, as the driver has it: Java's trace in Rust's form of a text."""
    return f'RPCError("{java}", "{message}\\n\\tat {NAME_NODE}.X(Y.java:1)\\n\\tat {NAME_NODE}.Z(Y.java:2)")'


@pytest.mark.parametrize(
    ("java", "message", "kind"),
    [
        ("org.apache.hadoop.ipc.StandbyException", "not supported in state standby", StorageUnavailableError),
        (f"{NAME_NODE}.SafeModeException", "Name node is in safe mode.", StorageUnavailableError),
        ("org.apache.hadoop.ipc.RetriableException", "wait", StorageUnavailableError),
        (
            "java.io.IOException",
            "File /f could only be written to 0 of the 1 minReplication nodes",
            StorageUnavailableError,
        ),
        ("org.apache.hadoop.security.AccessControlException", "Permission denied", StoragePermissionError),
        ("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", "quota=2", StorageFullError),
        ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "quota", StorageFullError),
        ("org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException", "SSD", StorageFullError),
        (
            "org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException",
            "limit=1048576",
            StorageFullError,
        ),
        ("org.apache.hadoop.fs.ParentNotDirectoryException", "/f (is not a directory)", StorageError),
    ],
)
def test_errors_of_a_name_node_have_types_and_no_traces(
    java: str, message: str, kind: type[StorageError]
) -> None:
    with pytest.raises(StorageError) as caught, native_errors("hdfs://n/f"):
        raise RuntimeError(text_of(java, message))
    assert type(caught.value) is kind
    assert caught.value.facts["path"] == "hdfs://n/f"
    assert message.rstrip(".") in caught.value.message
    assert "\\n" not in str(caught.value)
    assert NAME_NODE not in str(caught.value)


KEYS = "http://kms:9600/kms/v1/keyversion/lake%400/_eek?eek_op=decrypt&delegation=c2VjcmV0"


@pytest.mark.parametrize(
    ("text", "kind", "remedy"),
    [
        (
            "File is in an HDFS encryption zone but no KMS provider is configured (set `x` in core-site.xml)",
            StorageError,
            "hadoop.security.key.provider.path",
        ),
        (
            f"KMS HTTP error: error sending request for url ({KEYS})",
            StorageUnavailableError,
            "Check that it runs",
        ),
        (
            "KMS request failed (403 Forbidden): User:bob not allowed to do 'DECRYPT_EEK' on 'lake'",
            StoragePermissionError,
            "kms-acls.xml",
        ),
        (f"KMS request failed (401 Unauthorized): {KEYS}", StoragePermissionError, "kms-acls.xml"),
        ("KMS request failed (503 Service Unavailable): busy", StorageUnavailableError, "key server's log"),
        ("KMS request failed (404 Not Found): no key 'lake'", StorageError, "key server's log"),
        ("something else", StorageError, "NameNode's log"),
    ],
)
def test_errors_of_a_key_server_have_types_and_no_tokens(
    text: str, kind: type[StorageError], remedy: str
) -> None:
    with pytest.raises(StorageError) as caught, native_errors("hdfs://n/f"):
        raise RuntimeError(f'OperationFailed("{text}")')
    assert type(caught.value) is kind
    assert caught.value.facts["path"] == "hdfs://n/f"
    assert remedy in caught.value.remedy
    assert "delegation" not in str(caught.value)
    assert "OperationFailed" not in str(caught.value)


def test_a_move_over_the_border_of_an_encryption_zone_has_a_remedy() -> None:
    with (
        pytest.raises(StorageError, match="keep the directory of a table") as caught,
        native_errors("hdfs://n/f"),
    ):
        raise RuntimeError(text_of("java.io.IOException", "/z/f can't be moved from an encryption zone."))
    assert type(caught.value) is StorageError


@pytest.mark.parametrize(
    ("kind", "message", "quota", "option"),
    [
        (
            "NS",
            "The NameSpace quota (directories and files) of directory /a b is exceeded: quota=3 file count=4",
            3,
            "-setQuota)",
        ),
        (
            "DS",
            "The DiskSpace quota of directory /a b is exceeded: quota = 1000 B = 1000 B but it is 128 MB",
            1000,
            "-setSpaceQuota)",
        ),
    ],
)
def test_an_exceeded_quota_is_named_with_its_directory(
    kind: str, message: str, quota: int, option: str
) -> None:
    with pytest.raises(StorageFullError) as caught, native_errors("hdfs://n/a b/f"):
        raise RuntimeError(text_of(f"org.apache.hadoop.hdfs.protocol.{kind}QuotaExceededException", message))
    assert caught.value.facts == {"path": "hdfs://n/a b/f", "directory": "/a b", "quota": quota}
    assert f"the quota of /a b (hdfs dfsadmin {option}" in caught.value.remedy


def kerberos_text(number: int, message: str) -> str:
    """A failure of the Kerberos library, as the driver has it: its minor status has no sign."""
    codes = 'raw: "0x000d0000", calling_error: "none", routine_error: "GSS_S_FAILURE"'
    return (
        f'GSSAPIError(GssMajorCodes {{ {codes} }}, {number - 1765328384 + 2**32}, "Unspecified: {message}")'
    )


@pytest.mark.parametrize(
    ("number", "login", "reason"),
    [
        (32, {}, "as the ticket's principal: the ticket has expired"),
        (37, {"kerberos_principal": "etl@A"}, "as etl@A: the clocks differ too much"),
        (195, {"kerberos_keytab": "/k"}, "the keytab /k cannot be read, or has no key of the principal"),
        (195, {}, "no ticket is in the cache"),
        (999, {}, "failed"),
    ],
)
def test_failures_of_kerberos_have_a_reason(number: int, login: dict[str, str], reason: str) -> None:
    with pytest.raises(StoragePermissionError) as caught, native_errors("hdfs://n/f", login):
        raise RuntimeError(kerberos_text(number, "of the library"))
    assert f"{reason} (Unspecified: of the library)" in caught.value.message
    assert caught.value.remedy


def test_no_kdc_answers() -> None:
    with (
        pytest.raises(StorageUnavailableError, match="no KDC of the realm") as caught,
        native_errors("hdfs://n"),
    ):
        raise RuntimeError(kerberos_text(156, "Cannot contact any KDC for realm 'A'"))
    assert caught.value.retryable


def test_what_is_there_or_not_stays_pythons() -> None:
    with pytest.raises(FileExistsError) as caught, native_errors("hdfs://n/f"):
        raise FileExistsError(f"/f already exists\n\tat {NAME_NODE}.X(Y.java:1)")
    assert (caught.value.errno, caught.value.strerror) == (errno.EEXIST, "/f already exists")
    with pytest.raises(StorageUnavailableError, match="Connection refused"), native_errors("hdfs://n/f"):
        raise OSError("Connection refused (os error 111)")


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(ConfigurationError, match="No driver for hdfs://") as caught:
        open_filesystem("hdfs://never.asked:8020/x")
    assert "airflow-hive-federation[hdfs]" in caught.value.remedy


@pytest.mark.parametrize("options", [{"user": "alice"}, {"fs.permissions.umask-mode": "u=rwx"}])
def test_an_option_that_is_none_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        open_filesystem("hdfs://never.asked:8020/x", options)


LIST = HdfsAccess(
    owner="o",
    group="g",
    mode=0o1770,
    acl=(
        AclLine(type="user", scope="access", permissions="r-x", name="bob"),
        AclLine(type="group", scope="access", permissions="r--"),
        AclLine(type="group", scope="default", permissions="rwx", name="eng"),
    ),
)


def test_a_list_is_whole_when_it_is_set() -> None:
    assert set(acl_specification(LIST)) == {
        ("user", "access", "rwx", None),
        ("user", "access", "r-x", "bob"),
        ("group", "access", "r--", None),
        ("mask", "access", "rwx", None),
        ("other", "access", "---", None),
        ("group", "default", "rwx", "eng"),
    }
    only_default = HdfsAccess(owner="o", group="g", mode=0o750, acl=LIST.acl[2:])
    assert ("group", "access", "r-x", None) in acl_specification(only_default)
    assert not any(entry[0] == "mask" for entry in acl_specification(only_default))


def test_a_mask_is_no_right_of_the_group() -> None:
    assert _without_list(LIST) == 0o1740
    assert _without_list(HdfsAccess(owner="o", group="g", mode=0o640)) == 0o640


@pytest.mark.parametrize(
    ("kind", "permissions", "mode"),
    [("user", "---", 0o700), ("group", "---", 0o700), ("user", "r--", 0o744), ("group", "rwx", 0o755)],
)
def test_nobody_gets_by_a_copy_what_the_list_denies_him(kind: str, permissions: str, mode: int) -> None:
    """Without the list, the named one is in the owner's group, or one of all others."""
    acl = (
        AclLine(type="group", scope="access", permissions="r-x"),
        AclLine(type=kind, scope="access", permissions=permissions, name="bob"),
        AclLine(type="user", scope="default", permissions="---", name="bob"),
    )
    assert _without_list(HdfsAccess(owner="o", group="g", mode=0o775, acl=acl)) == mode


def test_a_container_of_yarn_has_the_files_of_its_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert container_configuration({"CONTAINER_ID": "c"}) is None
    files = tmp_path / "__spark_conf__" / "__hadoop_conf__"
    files.mkdir(parents=True)
    assert container_configuration({"CONTAINER_ID": "c"}) == str(files)
    # Elsewhere, a directory of this name is somebody's.
    assert container_configuration({}) is None
    assert container_configuration({"CONTAINER_ID": "c", "HADOOP_CONF_DIR": "/etc/hadoop"}) is None


@pytest.mark.parametrize(
    ("environ", "user"),
    [
        ({"CONTAINER_ID": "c", "SPARK_USER": "alice"}, "alice"),
        ({"CONTAINER_ID": "c", "SPARK_USER": "alice", "HADOOP_USER_NAME": "bob"}, "bob"),
        ({"CONTAINER_ID": "c"}, None),
        # Elsewhere, the variable may be that of an image.
        ({"SPARK_USER": "alice"}, None),
    ],
)
def test_a_container_of_yarn_acts_for_the_user_of_its_application(
    environ: dict[str, str], user: str | None
) -> None:
    act_for_user_of_spark(environ)
    assert environ.get("HADOOP_USER_NAME") == user


def test_a_token_is_found_under_the_number_of_the_name_node(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(b"HDTS\0\1\x0e127.0.0.1:8020\0")
    environ = {"HADOOP_TOKEN_FILE_LOCATION": str(file)}
    assert token_address("localhost:8020", environ) == "127.0.0.1:8020"
    assert token_address("localhost:9000", environ) == "localhost:9000"
    assert token_address("nameservice", environ) == "nameservice"
    assert token_address("no-such-host.invalid:8020", environ) == "no-such-host.invalid:8020"
    assert token_address("localhost:8020", {}) == "localhost:8020"
    file.write_bytes(b"HDTS\0\1\x0elocalhost:8020\0")
    assert token_address("localhost:8020", environ) == "localhost:8020"
    file.unlink()
    assert token_address("localhost:8020", environ) == "localhost:8020"
