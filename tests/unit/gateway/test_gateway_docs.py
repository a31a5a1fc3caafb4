"""The examples of the gateway's pages run, with hosts, ports and files of this machine in their place."""

from __future__ import annotations

import json
import re
import socket
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.errors import (
    ConfigurationError,
    MetastoreAuthenticationError,
    MetastoreServerError,
)
from airflow_hive_federation.gateway.config import config_of, read_config
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.serving import Serving, start
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings, TlsSettings
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.statement import parse_script
from tests.support.authorities import Authority
from tests.support.gateways import Peers
from tests.support.metastore_peers import Thrift

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def example(page: str, beginning: str) -> str:
    """The one block of a page that holds a text."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (block,) = (body for _, body in _BLOCK.findall(text) if beginning in body)
    return str(block)


def replaced(text: str, **names: str) -> str:
    """Put what is on this machine in the place of an example's hosts and files; each has to be there."""
    for name, value in names.items():
        assert name in text, name
        text = text.replace(name, value)
    return text


class Metastore42:
    """A metastore whose log gets one event when a client follows it."""

    def __init__(self) -> None:
        self.last_event = 6

    def __call__(self, method: str, args: Any) -> Any:
        databases = ["default", "logistics", "payroll", "public", "sales", "scratch"]
        if method == "get_table_req":
            return types.GetTableResult(table=types.Table(dbName=args.req.dbName, tableName=args.req.tblName))
        if method == "get_current_notificationEventId":
            self.last_event = min(self.last_event + 1, 8)
            return types.CurrentNotificationEventId(eventId=self.last_event)
        if method == "get_next_notification":
            made = types.NotificationEvent(
                eventId=8, eventTime=0, eventType="CREATE_TABLE", dbName="d", message=""
            )
            return types.NotificationEventResponse(events=[made] if args.rqst.lastEvent == 7 else [])
        transactions = types.GetOpenTxnsResponse(txn_high_water_mark=1, open_txns=[], abortedBits=b"")
        return {
            "getStatus": 2,
            "getVersion": "4.2.1",
            "get_all_databases": databases,
            "get_databases": databases,
            "get_open_txns": transactions,
        }.get(method)


@pytest.fixture
def serve(stack: ExitStack, tmp_path: Path) -> Callable[[str], Serving]:
    """Serve the fronts of a configuration file."""

    def run(text: str) -> Serving:
        file = tmp_path / "gateway.toml"
        file.write_text(text, encoding="utf-8")
        serving = start(read_config(file), nobody)
        stack.callback(serving.stop)
        return serving

    return run


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_the_commands(peer: Peers, capsys: pytest.CaptureFixture[str]) -> None:
    text = example("gateway.md", "gateway check")
    command = next(line for line in text.splitlines() if "gateway check" in line)
    uri = peer(Thrift(Metastore42())).uri
    program, *arguments = replaced(command, **{"thrift://metastore:9083": uri}).split()
    assert program == "hive-federation"
    assert main(arguments) == 0
    assert "user 'alice' may read, write, admin" in capsys.readouterr().out


def test_the_whole_file(
    peer: Peers, serve: Callable[[str], Serving], stack: ExitStack, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "tls")
    (tmp_path / "token").write_text("s3cret")
    cert, key = authority.sign("gateway", "127.0.0.1")
    clusters = {"C2": {"fileSystem": str(tmp_path), "jobTracker": "x"}}
    (tmp_path / "clusters.json").write_text(
        json.dumps({"hive.cluster.properties": clusters, "hive.default.cluster.name": "C2"})
    )
    main_uri, reading, far = (peer(Thrift(Metastore42())).uri for _ in range(3))
    names = {
        "/etc/hive-federation/tls/cert.pem": cert,
        "/etc/hive-federation/tls/key.pem": key,
        "/etc/hive-federation/tls/clients.pem": authority.ca_file,
        "/etc/hive-federation": str(tmp_path),
        "/var/log/hive-federation": str(tmp_path),
        "https://metastore.example.org:9001/metastore": main_uri,
        "https://replica.example.org:9001/metastore": reading,
        "thrift+tls://far.example.org:9083": far,
        '"0.0.0.0"': '"127.0.0.1"',
        "port = 9083": "port = 0",
        "port = 9084": "port = 0",
        "port = 9090": "port = 0",
    }
    serving = serve(replaced(example("gateway.md", "[[federated]]"), **names))
    uri = serving.fronts[0].uri
    seen = {}
    for user in ("etl_night", "ann"):
        own_cert, own_key = authority.sign(user)
        tls = TlsSettings(ca_file=authority.ca_file, cert_file=own_cert, key_file=own_key)
        client = stack.enter_context(MetastoreClient(MetastoreSettings(uris=(uri,), tls=tls)))
        seen[user] = set(client.list_databases())
        with pytest.raises(MetastoreServerError, match="may not read payroll"):
            client.get_table("payroll", "t")
    assert seen["etl_night"] == {
        *("default", "logistics", "public", "sales_eu"),
        *("far_sales", "far_logistics"),
    }
    assert seen["ann"] == {"public"}
    assert '"user": "ann"' in (tmp_path / "access.log").read_text()


def test_the_settings_of_the_design(peer: Peers, serve: Callable[[str], Serving], tmp_path: Path) -> None:
    upstream = f'[thrift]\nport = 0\n[upstream]\nuris = ["{peer(Thrift(Metastore42())).uri}"]\n'
    far = serve(upstream + "[grpc]\nport = 0\n").fronts[1].uri
    # As late as possible: each of those servers has taken a free port, too.
    port = free_port()
    (tmp_path / "accounts").mkdir()
    key_file = service_account(tmp_path, "gateway@example.iam")
    public_key(key_file, tmp_path / "accounts" / "gateway@example.iam.pem")
    names = {
        "/etc/hive-federation/accounts": str(tmp_path / "accounts"),
        "/etc/hive-federation/gateway.json": str(key_file),
        "gate.example.org:9084": f"gate.example.org:{port}",
    }
    with pytest.raises(
        ConfigurationError, match=r"metastore\.grpc\.service\.account\.keyfile.*no URI is grpc"
    ):
        serve(upstream + replaced(example("gateway.md", "[properties]"), **names))
    serving = serve(
        f'[thrift]\nport = 0\n[upstream]\nuris = ["{far}"]\n'
        + replaced(example("gateway.md", "[properties]"), **names)
    )
    (uri,) = (front.uri for front in serving.fronts if front.uri.startswith("grpc"))
    assert uri == f"grpc://127.0.0.1:{port}"
    with (
        MetastoreClient(MetastoreSettings(uris=(uri,))) as stranger,
        pytest.raises(MetastoreAuthenticationError, match="there is no bearer token"),
    ):
        stranger.list_databases()
    grpc_settings = GrpcSettings(service_account_keyfile=str(key_file))
    with MetastoreClient(MetastoreSettings(uris=(uri,), grpc=grpc_settings)) as client:
        assert "sales" in client.list_databases()


def test_capabilities_of_older_clients() -> None:
    config = config_of(tomllib.loads(example("gateway.md", "old_client_capabilities =")))
    assert len(config.upstream.old_client_capabilities) == 4


def test_front_and_client_in_python(peer: Peers, stack: ExitStack, tmp_path: Path) -> None:
    """The client's example calls the front's."""
    authority = Authority(tmp_path / "tls")
    cert, key = authority.sign("gateway", "127.0.0.1")
    (tmp_path / "accounts").mkdir()
    key_file = service_account(tmp_path, "etl@example.iam")
    public_key(key_file, tmp_path / "accounts" / "etl@example.iam.pem")
    names = {
        'host="0.0.0.0",': 'host="127.0.0.1", port=0,',
        "/etc/gateway/cert.pem": cert,
        "/etc/gateway/key.pem": key,
        "/etc/gateway/accounts": str(tmp_path / "accounts"),
    }
    target = Metastore(Upstream("main", MetastoreSettings(uris=(peer(Thrift(Metastore42())).uri,))))
    stack.callback(target.close)
    served: dict[str, Any] = {}
    exec(replaced(example("grpc.md", "def front("), **names), served)
    front = served["front"](Gateway(target))
    stack.callback(front.stop, 0)
    names = {
        "gate.example.com:9084": f"127.0.0.1:{front.port}",
        "/etc/ssl/ours.pem": authority.ca_file,
        "/etc/keys/etl.json": str(key_file),
    }
    asked: dict[str, Any] = {}
    exec(replaced(example("grpc.md", "def databases("), **names), asked)
    assert "sales" in asked["databases"]()


def test_the_statement_that_makes_a_remote() -> None:
    statement = parse_script(example("grpc.md", "CREATE REMOTE DATABASE"))[0]
    assert "grpc" in str(statement).lower()


def test_a_client_without_stubs_and_a_subscription(
    peer: Peers, serve: Callable[[str], Serving], capsys: pytest.CaptureFixture[str]
) -> None:
    uri = peer(Thrift(Metastore42())).uri
    serving = serve(f'[grpc]\nport = 0\n[thrift]\nport = 0\n[upstream]\nuris = ["{uri}"]\n')
    port = serving.fronts[1].uri.rpartition(":")[2]
    without_stubs = example("grpc-services.md", "ProtoReflectionDescriptorDatabase")
    exec(replaced(without_stubs, **{"127.0.0.1:9084": f"127.0.0.1:{port}"}), {})
    assert json.loads(capsys.readouterr().out)["tableName"] == "t"
    subscription = example("grpc-services.md", "follow_notification_events")
    names = {"gate.example.com:9084": f"127.0.0.1:{port}", "timeout_s=600": "timeout_s=2"}
    exec(replaced(subscription, **names), {})
    assert capsys.readouterr().out.splitlines() == ["8 CREATE_TABLE d None"]


def service_account(directory: Path, name: str) -> Path:
    """A key file as Google's form has it."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file = directory / f"{name}.json"
    file.write_text(
        json.dumps(
            {"type": "service_account", "client_email": name, "private_key": pem, "private_key_id": "1"}
        )
    )
    return file


def public_key(key_file: Path, file: Path) -> None:
    """Write the key that a gateway keeps of a service account."""
    key = load_pem_private_key(json.loads(key_file.read_text())["private_key"].encode(), None)
    file.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
