"""The embedded metastore against kills, full ports, second owners and missing networks."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import psutil
import pytest

from airflow_hive_federation.embedded import jars
from airflow_hive_federation.embedded.ivy import SETTINGS_VARIABLE
from airflow_hive_federation.embedded.lock import METASTORE, Artifact, file_sha256
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore, running_metastores
from airflow_hive_federation.errors import ConfigurationError, JarDownloadError, MetastoreStartError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types as ttypes
from airflow_hive_federation.runtime.cache import cache_directory, is_locked
from airflow_hive_federation.runtime.java import find_java
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.groovy_scripts import run_groovy
from tests.support.moving_files import content_of, paths_below
from tests.support.processes import is_alive

SOON = PollPolicy(first_s=0.05, longest_s=0.5, timeout_s=30)


def client_of(uri: str) -> MetastoreClient:
    return MetastoreClient(MetastoreSettings(uris=(uri,)))


def make_database(uri: str, name: str) -> None:
    with client_of(uri) as client:
        client.call("create_database", ttypes.Database(name=name, catalogName="hive", parameters={}))


def databases(uri: str) -> list[str]:
    with client_of(uri) as client:
        names: list[str] = client.call("get_all_databases")
        return names


def test_changes_of_a_metastore_survive_its_being_killed_and_end_with_a_temporary_directory(
    own_metastores: Callable[..., EmbeddedMetastore],
) -> None:
    metastore = own_metastores("killed")
    uri, directory = metastore.uri, metastore.directory
    make_database(uri, "kept")
    assert metastore.exit_code is None
    metastore.kill()
    assert metastore.exit_code == -signal.SIGKILL
    assert not is_alive(metastore.pid)
    metastore.restart()
    assert metastore.uri == uri
    assert sorted(databases(uri)) == ["default", "kept"]
    assert [running.name for running in running_metastores() if running.directory == directory] == ["killed"]
    with pytest.raises(ConfigurationError, match="a metastore is running on"):
        EmbeddedMetastore.start("second", directory=directory)
    assert (directory / "metastore_db").is_dir()
    metastore.stop()
    assert not directory.exists()
    assert not [running for running in running_metastores() if running.directory == directory]
    metastore.stop()


PARENT = """
import os, sys, time
from pathlib import Path
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
metastore = EmbeddedMetastore.start("orphan", directory=Path(sys.argv[1]))
print(metastore.pid, metastore.uri, flush=True)
if os.fork() == 0:
    # A child that has inherited the pipe to the metastore, and outlives the parent.
    os.close(1)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_metastore_ends_with_its_killed_parent_and_its_directory_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    with subprocess.Popen([sys.executable, "-c", PARENT, str(directory)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, uri = parent.stdout.readline().decode().split()
        make_database(uri, "kept")
        parent.kill()
    assert wait_until(lambda: not is_alive(int(pid)), SOON)
    assert wait_until(lambda: not is_locked(directory / "metastore.lock"), SOON)
    # As versions have left it that knew no passwords.
    (directory / "derby.properties").unlink()
    (directory / "metastore_db").chmod(0o755)
    with EmbeddedMetastore.start("again", directory=directory) as again:
        assert "kept" in databases(again.uri)
        assert again.jdbc_password
    assert (directory / "metastore_db").stat().st_mode & 0o777 == 0o700


def test_it_listens_on_loopback_alone(source: EmbeddedMetastore) -> None:
    sockets = psutil.Process(source.pid).net_connections(kind="inet")
    listening = {socket.laddr for socket in sockets if socket.status == psutil.CONN_LISTEN}
    # Thrift and Derby; an IPv4 socket may be listed as IPv6.
    assert len(listening) == 2
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert source.port in {address.port for address in listening}


def test_its_database_asks_for_a_password(source: EmbeddedMetastore, tmp_path: Path) -> None:
    """Derby listens where every user of the machine reaches it."""
    known = tmp_path / "passwords"
    # The right one is the last: it makes the other database.
    known.write_text("\n".join(["", "guessed", source.jdbc_password]), encoding="utf-8")
    answers = run_groovy("derby_login.groovy", source.jdbc_url, str(known), scratch=tmp_path)
    rejected = "08004"
    assert answers.split(",") == [rejected] * 4 + ["in"] * 2


def test_the_password_is_in_files_of_its_owner_alone(source: EmbeddedMetastore) -> None:
    password = source.jdbc_password
    assert password not in " ".join(psutil.Process(source.pid).cmdline())
    assert password not in str(psutil.Process(source.pid).environ())
    assert (source.directory / "metastore_db").stat().st_mode & 0o077 == 0
    with_it = [
        path for path in paths_below(source.directory) if password.encode() in (content_of(path) or b"")
    ]
    names = {str(path.relative_to(source.directory)) for path in with_it}
    assert {"derby.properties", "conf/metastore-site.xml"} <= names
    assert names <= {"derby.properties", "conf/metastore-site.xml", "sql-conf/hive-site.xml"}
    assert {path.stat().st_mode & 0o777 for path in with_it} == {0o600}


def test_a_taken_port_is_named_with_the_log(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MetastoreStartError, match="Address already in use") as raised:
            EmbeddedMetastore.start("port", directory=tmp_path / "m", port=port)
    assert "Address already in use" in Path(raised.value.log_path).read_text(encoding="utf-8")
    assert not (tmp_path / "m").exists()


def test_a_ruined_database_is_a_start_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "m" / "metastore_db").mkdir(parents=True)
    with pytest.raises(MetastoreStartError, match="metastore_db"):
        EmbeddedMetastore.start("ruined", directory=tmp_path / "m")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository in a directory, named as users name theirs, and an empty cache."""
    root = tmp_path / "mirror"
    settings = tmp_path / "my-ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mine"/><resolvers>'
        f'<ibiblio name="mine" m2compatible="true" root={quoteattr(root.as_uri() + "/")}/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path / "cache"))
    return root


def published(mirror: Path, name: str, content: bytes) -> Artifact:
    path = mirror / "org" / "tried" / name / "1.0" / f"{name}-1.0.jar"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Artifact(
        jar_set=METASTORE,
        group="org.tried",
        name=name,
        version="1.0",
        sha256=file_sha256(path),
        size_bytes=len(content),
    )


def test_jars_come_once_and_need_no_repository_afterwards(mirror: Path) -> None:
    wanted = [published(mirror, name, name.encode() * 100) for name in ("one", "two", "three", "four")]
    paths = jars.fetch(find_java(), wanted)
    assert [path.read_bytes() for path in paths] == [jar.name.encode() * 100 for jar in wanted]
    shutil.rmtree(mirror)
    assert jars.fetch(find_java(), wanted) == paths


def test_an_interrupted_fetch_goes_on_from_what_had_come(mirror: Path) -> None:
    first, two = published(mirror, "one", b"1" * 50), published(mirror, "two", b"2" * 50)
    lost = mirror / "org" / "tried" / "two" / "1.0" / "two-1.0.jar"
    lost.unlink()
    with pytest.raises(JarDownloadError, match=r"org\.tried:two:1.0@jar") as raised:
        jars.fetch(find_java(), [first, two])
    assert raised.value.artifacts == ["org.tried:two:1.0@jar"]
    shutil.rmtree(mirror)
    # Killed before Ivy's finished file got its name.
    incoming = cache_directory() / "incoming" / "of-a-killed-one"
    incoming.mkdir()
    (incoming / "two-1.0.jar").write_bytes(b"2" * 50)
    assert [path.read_bytes() for path in jars.fetch(find_java(), [first, two])] == [b"1" * 50, b"2" * 50]


def test_wrong_bytes_are_refused_by_name_and_right_ones_taken_next_time(mirror: Path) -> None:
    jar = published(mirror, "one", b"right")
    published(mirror, "one", b"wrong")
    with pytest.raises(JarDownloadError, match=r"org\.tried:one:1.0@jar differs from the lock"):
        jars.fetch(find_java(), [jar])
    published(mirror, "one", b"right")
    (path,) = jars.fetch(find_java(), [jar])
    assert path.read_bytes() == b"right"
    # One that was truncated in the cache is fetched again.
    path.write_bytes(b"ri")
    assert jars.fetch(find_java(), [jar])[0].read_bytes() == b"right"


def test_no_network_at_the_first_start_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTINGS_VARIABLE, raising=False)
    monkeypatch.setenv("AIRFLOW_HIVE_FEDERATION_CACHE", str(tmp_path / "cache"))
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    wanted = Artifact(
        jar_set=METASTORE, group="org.tried", name="one", version="1", sha256="0" * 64, size_bytes=1
    )
    with pytest.raises(JarDownloadError, match="Connect this machine to the network once"):
        jars.fetch(find_java(), [wanted])


def test_what_its_database_gives_up_is_tried_again(source: EmbeddedMetastore, tmp_path: Path) -> None:
    """A commit of an update, beside the house keeper. Nobody would end its transaction."""
    site = source.directory / "conf" / "metastore-site.xml"
    assert run_groovy("retry_judge.groovy", str(site), scratch=tmp_path) == "true"


def test_a_directory_that_another_thread_makes_is_no_error(tmp_path: Path) -> None:
    """Hive's dump makes a table's directory in one thread per partition."""
    assert run_groovy("files_judge.groovy", str(tmp_path / "place"), scratch=tmp_path) == "0"
