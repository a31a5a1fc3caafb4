"""A remote leads a worker to a foreign server: the worker sends no credential there."""

from __future__ import annotations

import base64
import http.server
import json
import re
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import NoConnections
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.errors import ConfigurationError, HiveFederationError, HostKeyError
from tests.support.metastore_peers import Peer, Thrift

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

SECRET = "marked-secret-8231"
#: Where workers have credentials of their own.
AMBIENT = {
    "PYICEBERG_CATALOG__PROD__TOKEN": SECRET,
    "PYICEBERG_CATALOG__PROD__CREDENTIAL": f"me:{SECRET}",
    "PYICEBERG_CATALOG__PROD__HEADER__X_KEY": SECRET,
    "PYICEBERG_CATALOG__REMOTE__TOKEN": SECRET,
    "PYICEBERG_CATALOG__DEFAULT__TOKEN": SECRET,
    "AWS_ACCESS_KEY_ID": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": SECRET,
    "AWS_DEFAULT_REGION": "eu-central-1",
}


class Listening(http.server.BaseHTTPRequestHandler):
    """Answers as an Iceberg REST catalog that overrides what it can, and keeps what it was sent."""

    requests: list[str] = []  # noqa: RUF012 - one server per test
    overrides: Mapping[str, str] = {}

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.requests.append(f"{self.command} {self.path}\n{self.headers}\n{body!r}")
        nothing = {"defaults": {}, "identifiers": [], "namespaces": [["d"]], "TableList": []}
        answer = json.dumps({**nothing, "overrides": self.overrides}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_HEAD = answer  # noqa: N815 - the standard library's names

    def log_message(self, *_: Any) -> None:
        pass


class Stolen:
    """A class that a server names and that no client may make."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise AssertionError("a class that the server named")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Listening]]:
    import pyiceberg.catalog
    from pyiceberg.utils.config import Config

    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    # pyiceberg reads the environment when it is imported.
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    handler = type("Handler", (Listening,), {"requests": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.uri = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler
    server.shutdown()
    server.server_close()


def test_the_environment_would_have_been_merged(fake: Any) -> None:
    from pyiceberg.catalog import load_catalog

    with suppress(Exception):
        load_catalog("prod", type="rest", uri=fake.uri).list_tables("d")
    assert SECRET in "".join(fake.requests)


@pytest.mark.parametrize("name", [None, "prod", "remote", "default"])
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"rest.sigv4-enabled": "true", "s3.endpoint": "there", "oauth2-server-uri": "there"},
        {"uri": "there", "rest.sigv4-enabled": "true"},
        {"auth": {"type": "custom", "impl": "tests.unit.catalog.test_ambient_credentials.Stolen"}},
    ],
    ids=["plain", "overriding", "sending on", "naming a class"],
)
def test_an_iceberg_rest_catalog(name: str | None, overrides: Mapping[str, Any], fake: Any) -> None:
    fake.overrides = {key: fake.uri if value == "there" else value for key, value in overrides.items()}
    properties = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": f"{fake.uri}/x"}
    if name:
        properties["iceberg.catalog.name"] = name
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("iceberg", properties, remote="r")
        with suppress(HiveFederationError):
            catalog.list_tables("d")
    assert fake.requests
    assert SECRET not in "".join(fake.requests)


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "credential",
        "header.x-key",
        "s3.endpoint",
        "py-catalog-impl",
        "rest.sigv4-enabled",
        "client.role-arn",
    ],
)
def test_other_properties_of_iceberg_are_not_known(name: str) -> None:
    properties = {"iceberg.catalog.uri": "http://there", f"iceberg.catalog.{name}": "x"}
    with Catalogs() as catalogs, pytest.raises(ConfigurationError, match=name):
        catalogs.open("iceberg", properties, remote="r")


@pytest.mark.parametrize(
    "uri", ["postgresql://me@there/db", "postgresql+psycopg://there/db", "mysql://there/db"]
)
def test_a_database_server_is_asked_by_a_connection_only(uri: str) -> None:
    properties = {"iceberg.catalog.type": "sql", "iceberg.catalog.uri": uri}
    with Catalogs() as catalogs, pytest.raises(ConfigurationError, match="connection"):
        catalogs.open("iceberg", properties, remote="r")


class Known(NoConnections):
    def __init__(self, credentials: Mapping[str, str]) -> None:
        self.found = credentials

    def iceberg(self, connection_id: str) -> Mapping[str, str]:
        assert connection_id == "lake"
        return self.found

    def session(self, connection_id: str) -> Mapping[str, str]:
        assert connection_id == "lake"
        return self.found


def test_the_token_of_a_connection_goes_to_its_address(fake: Any) -> None:
    connections = Known({"type": "rest", "uri": fake.uri, "token": "of-the-connection"})
    properties = {"hive.federation.connection": "lake", "iceberg.catalog.warehouse": "w"}
    with Catalogs(connections) as catalogs:
        catalog, _ = catalogs.open("iceberg", properties, remote="r")
        assert catalog.list_tables("d") == []
        assert "Bearer of-the-connection" in "".join(fake.requests)
        assert "warehouse=w" in fake.requests[0]
        for more in ({"iceberg.catalog.uri": "http://elsewhere"}, {"iceberg.catalog.type": "hive"}):
            with pytest.raises(ConfigurationError, match=r"secrets would go there"):
                catalogs.open("iceberg", {**properties, **more}, remote="r")
    assert SECRET not in "".join(fake.requests)


def test_a_connection_without_an_address_lends_its_token_to_none() -> None:
    properties = {"hive.federation.connection": "lake", "iceberg.catalog.uri": "http://there"}
    with (
        Catalogs(Known({"token": "t"})) as catalogs,
        pytest.raises(ConfigurationError, match=r"iceberg\.catalog\.uri"),
    ):
        catalogs.open("iceberg", properties, remote="r")


def test_an_endpoint_of_glue_has_to_be_allowed(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"aws.glue.endpoint": fake.uri, "aws.region": "eu-central-1"}

    def ask(connections: Known | None = None, **more: str) -> None:
        with Catalogs(connections) as catalogs:
            catalog, _ = catalogs.open("glue", {**properties, **more}, remote="r")
            catalog.list_tables("d")

    with pytest.raises(ConfigurationError, match="HIVE_FEDERATION_REMOTE_ENDPOINTS"):
        ask()
    by_connection = {"hive.federation.connection": "lake"}
    with pytest.raises(ConfigurationError, match="HIVE_FEDERATION_REMOTE_ENDPOINTS"):
        ask(Known({"endpoint_url": "http://127.0.0.1:1"}), **by_connection)
    assert fake.requests == []
    monkeypatch.setenv("HIVE_FEDERATION_REMOTE_ENDPOINTS", f"https://a.example.com, {fake.uri}/")
    ask()
    assert len(fake.requests) == 1
    monkeypatch.delenv("HIVE_FEDERATION_REMOTE_ENDPOINTS")
    ask(Known({"endpoint_url": fake.uri}), **by_connection)
    assert len(fake.requests) == 2


@pytest.mark.parametrize("property_name", ["token", "credential"])
def test_a_server_that_repeats_a_token_puts_it_into_no_error(
    property_name: str, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        text = f"not you: {self.headers.get('Authorization')} {body}"
        answer = json.dumps({"error": {"message": text, "type": "NotAuthorizedException", "code": 401}})
        self.send_response(401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    for name in ("do_GET", "do_POST"):
        monkeypatch.setattr(fake, name, refuse, raising=False)
    secret = {"token": "sesame-7261", "credential": "me:sesame-7261"}[property_name]
    connections = Known({"type": "rest", "uri": fake.uri, property_name: secret})
    with (
        Catalogs(connections) as catalogs,
        pytest.raises(HiveFederationError, match="not you") as caught,
    ):
        catalogs.open("iceberg", {"hive.federation.connection": "lake"}, remote="r")[0].list_tables("d")
    assert "sesame-7261" not in "".join(traceback.format_exception(caught.value))


@pytest.fixture
def at_hand(fake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More that a worker has of its own: for any host, a login; tokens and keys of Hadoop, Google and SSH."""
    (tmp_path / ".netrc").write_text(f"default login me password {SECRET}\n", encoding="utf-8")
    (tmp_path / ".netrc").chmod(0o600)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "known_hosts").touch()
    for name in ("token", ".ssh/id_rsa", "google.json"):
        (tmp_path / name).write_text(SECRET, encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "token"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "google.json"))
    monkeypatch.setenv("AIRFLOW_CONN_HIVE_FEDERATION_DEFAULT", f"hive-federation://me:{SECRET}@127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", f"aws://{SECRET}:{SECRET}@")


@pytest.mark.usefixtures("at_hand")
def test_an_iceberg_catalog_gets_no_login_of_netrc(fake: Any) -> None:
    properties = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": fake.uri}
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("iceberg", properties, remote="r")
        assert catalog.list_tables("d") == []
    requests = "".join(fake.requests)
    assert requests
    assert set(re.findall("Authorization: .*", requests)) <= {"Authorization: Bearer None"}
    assert SECRET not in requests
    assert base64.b64encode(f"me:{SECRET}".encode()).decode() not in requests


class Recorder:
    """A listening socket that keeps what it is sent, and answers as a metastore that has no databases."""

    def __init__(self, behave: Any = None) -> None:
        self.sent = b""
        self.peer = Peer(behave or self.listen)

    def listen(self, connection: socket.socket) -> None:
        with suppress(TimeoutError):
            while data := connection.recv(1 << 16):
                self.sent += data
                # Who has sent all that is sent unasked waits for an answer: the connection's end is one.
                connection.settimeout(0.5)

    def answer(self, connection: socket.socket) -> None:
        recorder = self

        class Noting:
            def recv(self, size: int) -> bytes:
                data = connection.recv(size)
                recorder.sent += data
                return data

            def sendall(self, data: bytes) -> None:
                connection.sendall(data)

        Thrift(lambda *_: [])(Noting())  # type: ignore[arg-type]


@pytest.mark.usefixtures("at_hand")
def test_a_thrift_metastore_hears_a_user_and_questions() -> None:
    server = Recorder()
    server.peer.behave = server.answer
    try:
        with Catalogs(user="ada") as catalogs:
            catalog, _ = catalogs.open("thrift", {"hive.metastore.uris": server.peer.uri}, remote="r")
            assert catalog.list_tables("d") == []
    finally:
        server.peer.close()
    assert b"set_ugi" in server.sent
    assert b"ada" in server.sent
    assert SECRET.encode() not in server.sent


@pytest.mark.usefixtures("at_hand")
@pytest.mark.parametrize("via", ["thrift", "grpc", "ssh"])
def test_whatever_listens_hears_no_credential(via: str) -> None:
    """The server answers nothing and records the first bytes that a client sends unasked."""
    server = Recorder()
    where = server.peer.uri.removeprefix("thrift://")
    properties = {
        "thrift": {"hive.metastore.uris": f"thrift://{where}"},
        "grpc": {"metastore.uris": f"grpc://{where}"},
        "ssh": {
            "hive.metastore.uris": "thrift://far:9083",
            "ssh.tunnel.route": f"me@{where}",
            "ssh.tunnel.timeout": "1s",
        },
    }[via]
    if via != "ssh":
        properties["hive.metastore.client.socket.timeout"] = "1s"
    try:
        with Catalogs() as catalogs, suppress(HiveFederationError):
            catalogs.open(via, properties, remote="r")[0].list_tables("d")
    finally:
        server.peer.close()
    assert server.sent
    assert SECRET.encode() not in server.sent


@pytest.mark.usefixtures("at_hand")
def test_an_ssh_server_that_is_not_known_is_shown_no_key(tmp_path: Path) -> None:
    import paramiko

    asked: list[str] = []

    class Server(paramiko.ServerInterface):
        def get_allowed_auths(self, username: str) -> str:
            asked.append(username)
            return "publickey,password"

        def check_auth_none(self, username: str) -> int:
            asked.append(username)
            return paramiko.AUTH_FAILED

        def check_auth_publickey(self, username: str, key: Any) -> int:
            asked.append(f"{username} {key}")
            return paramiko.AUTH_FAILED

    def behave(connection: socket.socket) -> None:
        with paramiko.Transport(connection) as transport:
            transport.add_server_key(paramiko.RSAKey.generate(2048))
            with suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=Server())
                transport.join(10)

    ours = paramiko.RSAKey.generate(2048)
    ours.write_private_key_file(str(tmp_path / ".ssh" / "id_rsa"))
    (tmp_path / ".ssh" / "id_rsa").chmod(0o600)
    server = Recorder(behave)
    route = {
        "hive.metastore.uris": "thrift://far:9083",
        "ssh.tunnel.route": f"me@{server.peer.uri.removeprefix('thrift://')}",
        "ssh.tunnel.private.keys": "~/.ssh/id_rsa",
    }
    try:
        with Catalogs() as catalogs, pytest.raises(HostKeyError):
            catalogs.open("ssh", route, remote="r")[0].list_tables("d")
    finally:
        server.peer.close()
    assert asked == []
