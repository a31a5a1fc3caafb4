"""Hive's configuration, JVM flags, and the reading of a failed start's log."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.embedded.configuration import metastore_settings, site_xml, sql_settings
from airflow_hive_federation.embedded.derby import put_password, read_password
from airflow_hive_federation.embedded.jvm import clean_environment, java_command
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.process import telling_line
from airflow_hive_federation.errors import ConfigurationError, HiddenLocationError
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.environment import without_secrets
from airflow_hive_federation.runtime.java import Java


def test_a_site_file_escapes_what_xml_needs_escaped() -> None:
    read = {
        str(setting.findtext("name")): setting.findtext("value")
        for setting in ET.fromstring(site_xml({"a": "<&>", "b": 'c "d"'}))
    }
    assert read == {"a": "<&>", "b": 'c "d"'}


def test_a_metastore_compacts_nothing_itself_and_lets_overrides_win() -> None:
    settings = metastore_settings(Path("/d"), {"metastore.compactor.worker.threads": "1"})
    assert metastore_settings(Path("/d"))["metastore.compactor.worker.threads"] == "0"
    assert settings["metastore.compactor.worker.threads"] == "1"
    assert settings["metastore.thrift.bind.host"] == "127.0.0.1"


def test_the_sql_engine_and_its_metastore_agree_on_the_warehouse() -> None:
    metastore = metastore_settings(Path("/d"))
    sql = sql_settings(Path("/d"), "thrift://127.0.0.1:1", "jdbc:derby:x")
    for name in ("metastore.warehouse.dir", "hive.metastore.warehouse.external.dir", "fs.file.impl"):
        assert sql[name] == metastore[name]


def test_the_password_of_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    password = put_password(tmp_path)
    assert len(password) > 40
    path = tmp_path / "derby.properties"
    assert path.stat().st_mode & 0o777 == 0o600
    assert put_password(tmp_path) == read_password(tmp_path) == password
    assert "derby.connection.requireAuthentication=true" in path.read_text("utf-8")
    for settings in (
        metastore_settings(tmp_path, password=password),
        sql_settings(tmp_path, "thrift://127.0.0.1:1", "jdbc:derby:x", password=password),
    ):
        assert settings["javax.jdo.option.ConnectionPassword"] == password
    assert "javax.jdo.option.ConnectionPassword" not in metastore_settings(tmp_path)


@pytest.mark.parametrize("content", [b"", b"derby.user.APP=\n", b"derby.user.OTHER=x\n", b"\xff\xff"])
def test_a_password_that_is_not_there(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"derby\.properties"):
        read_password(tmp_path)
    (tmp_path / "derby.properties").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"derby\.properties") as caught:
        put_password(tmp_path)
    assert caught.value.remedy


def test_a_private_file_is_private_from_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        modes.append(self.stat().st_mode & 0o777)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    umask = os.umask(0)
    try:
        write_atomically(tmp_path / "a", b"x", private=True)
        (tmp_path / "a").chmod(0o644)
        write_atomically(tmp_path / "a", b"y", private=True)
    finally:
        os.umask(umask)
    assert modes == [0o600, 0o600]
    assert (tmp_path / "a").read_bytes() == b"y"


def test_flags_go_into_a_file_and_survive_blanks_and_quotes(tmp_path: Path) -> None:
    java = Java(home=Path("/j"), version=21, vendor="x")
    arguments = tmp_path / "java.args"
    command = java_command(
        java,
        "Main",
        ["one"],
        class_path=[tmp_path / "a b"],
        argument_file=arguments,
        properties={"p": 'q"\\'},
    )
    assert command == ["/j/bin/java", f"@{arguments}", "Main", "one"]
    lines = arguments.read_text().splitlines()
    assert f'"{tmp_path}/a b"' in lines
    assert '"-Dp=q\\"\\\\"' in lines
    # A killed JVM leaves temporary files, which go with the directory of the server.
    assert f'"-Djava.io.tmpdir={tmp_path}/tmp"' in lines
    assert (tmp_path / "tmp").is_dir()


def test_foreign_hadoop_settings_do_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    monkeypatch.setenv("CLASSPATH", "/x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    environment = clean_environment()
    assert "HADOOP_CONF_DIR" not in environment
    assert "CLASSPATH" not in environment
    assert environment["LANG"] == "C.UTF-8"


SECRETS = ("AIRFLOW_CONN_A", "AIRFLOW_VAR_B", "AIRFLOW__CORE__FERNET_KEY", "PYICEBERG_CATALOG__PROD__TOKEN")


@pytest.mark.parametrize("name", SECRETS)
def test_no_child_gets_secrets_that_it_has_no_use_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", "c")
    assert name not in clean_environment()
    kept = {"AIRFLOW_HOME": "/h", "AIRFLOW_CTX_DAG_ID": "d", "AWS_PROFILE": "p"}
    assert without_secrets({**kept, name: "x"}) == kept
    assert clean_environment()["AIRFLOW_HIVE_FEDERATION_CACHE"] == "c"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("noise\nCaused by: A\nat x\nCaused by: B: deepest\n at y\n", "Caused by: B: deepest"),
        (
            "FATAL org.x\nCaused by: java.net.BindException: Address already in use\nCaused by: z\n",
            "Caused by: java.net.BindException: Address already in use",
        ),
        ("FATAL another metastore is running on /d\n", "FATAL another metastore is running on /d"),
        ("last words\n", "last words"),
        ("", "its log is empty"),
    ],
)
def test_the_telling_line_of_a_log(log: str, line: str) -> None:
    assert telling_line(log) == line


@pytest.mark.parametrize("name", ["", "../up", "a b", "x" * 65])
def test_a_name_must_be_a_file_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        EmbeddedMetastore.start(name)


@pytest.mark.parametrize("settings", [{}, {"metastore.warehouse.dir": "file:/w/_x"}])
def test_a_warehouse_that_hive_would_hide_is_refused_before_anything_is_made(
    settings: dict[str, str], tmp_path: Path
) -> None:
    directory = tmp_path / ("visible" if settings else ".hidden") / "metastore"
    with pytest.raises(HiddenLocationError, match=r"metastore 'm'.* as empty.*--directory"):
        EmbeddedMetastore.start("m", directory=directory, settings=settings)
    assert not directory.exists()


def test_a_home_directory_that_hive_would_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / ".home"))
    monkeypatch.delenv("AIRFLOW_HIVE_FEDERATION_DATA", raising=False)
    assert main(["metastore", "start", "m"]) == 1
    assert "AIRFLOW_HIVE_FEDERATION_DATA" in capsys.readouterr().err
