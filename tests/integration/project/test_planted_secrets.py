"""No planted secret is in anything that a full run has left, nor in the processes that it has started."""

from __future__ import annotations

import getpass
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from moto.server import ThreadedMotoServer

from airflow_hive_federation.demo.local_airflow import DemoAirflow
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings, PlainSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.spark.job import OPTIONS_VARIABLE
from airflow_hive_federation.storage.filesystem import open_filesystem
from airflow_hive_federation.storage.publishing import write_atomically
from tests.support.authorities import Authority
from tests.support.planted_secrets import (
    Planted,
    WatchedProcesses,
    in_database,
    in_environment,
    in_files,
    in_json,
)
from tests.support.small_source import make_table
from tests.support.sshd import Sshd, start_sshd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DATABASE = "planted_source"
DAG_FILE = Path(__file__).parents[1] / "airflow_dags" / "planted_secrets.py"
ROOT = Path(__file__).parents[3]
USER = "alice"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
#: Programs that are given secrets: Airflow's processes and ours the connections, Spark the store's keys.
MAY = {
    str(DAG_FILE): re.compile("AIRFLOW_(CONN|VAR)_.*"),
    "airflow_hive_federation.cli.main": re.compile("AIRFLOW_(CONN|VAR)_.*"),
    "spark": re.compile(OPTIONS_VARIABLE),
}
#: A program that runs commands one after the other, and keeps their exit codes.
COMMANDS = """
import json, sys
from airflow_hive_federation.cli.main import main
codes = {command: main(command.split()) for command in sys.argv[1:]}
with open("codes.json", "w") as file:
    json.dump(codes, file)
"""
#: Files of an embedded metastore that hold the password of its database, and its own settings.
KEPT = ("derby.properties", "conf/metastore-site.xml", "sql-conf/hive-site.xml")


@dataclass
class Site:
    """Servers that need secrets, and the directories of a run.

    :param secrets: files that hold secrets, as users have them; everything else is below ``run``.
    """

    run: Path
    secrets: Path
    planted: Planted = field(default_factory=Planted)
    stack: ExitStack = field(default_factory=ExitStack)
    connections: dict[str, dict[str, Any]] = field(default_factory=dict)
    databases: dict[str, EmbeddedMetastore] = field(default_factory=dict)

    def plant(self, name: str) -> str:
        return self.planted.plant(name)

    def connect(self, conn_id: str, *, conn_type: str = "hive_federation", **fields: Any) -> None:
        self.connections[conn_id] = {"conn_type": conn_type, **fields}

    def environment(self, airflow: DemoAirflow) -> dict[str, str]:
        return {
            **airflow.environment,
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAG_FILE.parent),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(self.run / "lineage.jsonl"), "append": True}
            ),
            "AIRFLOW_VAR_PROPERTY": self.plant("a password in a statement"),
            "PLANTED_RUN": str(self.run),
            "PLANTED_SOURCE": f"file:{self.databases['source'].directory}",
            "PYTHONPATH": str(ROOT),
            **{
                f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection)
                for name, connection in self.connections.items()
            },
        }


class FakeLake(http.server.BaseHTTPRequestHandler):
    """An Iceberg REST catalog without tables, which lets one token in, and repeats what it refuses."""

    token = ""

    def do_GET(self) -> None:
        let_in = self.headers.get("Authorization") == f"Bearer {self.token}"
        nothing = {
            "defaults": {},
            "overrides": {},
            "identifiers": [],
            "namespace": ["shelf"],
            "namespaces": [["shelf"]],
            "properties": {},
        }
        text = f"not you: {self.headers.get('Authorization')}"
        refusal = {"error": {"message": text, "type": "NotAuthorizedException", "code": 401}}
        answer = json.dumps(nothing if let_in else refusal).encode()
        self.send_response(200 if let_in else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def fake_lake(token: str) -> Iterator[str]:
    handler = type("Handler", (FakeLake,), {"token": token})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def with_ssh(site: Site, source: EmbeddedMetastore) -> None:
    """The source, by a key with a passphrase and with the keys of a store."""
    server: Sshd = start_sshd(site.secrets / "ssh")
    site.stack.callback(server.stop)
    passphrase = site.plant("an SSH passphrase")
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", str(server.key)]
    subprocess.run(command, check=True, timeout=30)
    site.planted.adopt_key("an SSH key", server.key)
    route = {
        "ssh_route": f"{getpass.getuser()}@127.0.0.1:{server.port}",
        "ssh_key_files": str(server.key),
        "ssh_known_hosts": str(server.known_hosts),
        "ssh_passphrase": passphrase,
    }
    keys = {name: site.plant(f"the store's {name}") for name in ("key", "secret", "token")}
    where = {"host": "127.0.0.1", "port": source.port}
    options = {"secret_storage_options": json.dumps({"s3://elsewhere": keys})}
    site.connect("source", **where, extra={**route, **options})
    wrong = {**route, "ssh_passphrase": site.plant("a wrong passphrase")}
    site.connect("wrong_passphrase", **where, extra=wrong)


def with_password(site: Site) -> EmbeddedMetastore:
    """The target: it needs a password, and lies behind a gateway."""
    password = site.plant("the metastore's password")
    asked = {
        "metastore.authentication": "CONFIG",
        "metastore.authentication.config.username": USER,
        "metastore.authentication.config.password": password,
        "metastore.execute.setugi": "false",
    }
    made = EmbeddedMetastore.start("planted", directory=site.run / "metastore", settings=asked)
    site.stack.callback(made.stop)
    site.databases["target"] = made
    where = {"host": "127.0.0.1", "port": made.port, "login": USER}
    site.connect("behind", **where, password=password)
    site.connect("wrong_password", **where, password=site.plant("a wrong password"))
    return made


def with_gateway(site: Site, store: dict[str, Any]) -> None:
    """A gateway, by a client's certificate and by a service account's token."""
    authority = Authority(site.secrets / "tls")
    cert_file, key_file = authority.sign("gateway", "127.0.0.1")
    phrase = site.plant("the password of a TLS key")
    client_cert, client_key = authority.sign(USER, password=phrase, file="client")
    for name, path in (("the gateway's key", key_file), ("a client's key", client_key)):
        site.planted.adopt_key(name, Path(path))
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (accounts := site.secrets / "accounts").mkdir()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (accounts / f"{USER}.pem").write_bytes(public)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account, plain = site.secrets / "account.json", site.secrets / "account.pem"
    account.write_text(json.dumps({"client_email": USER, "private_key": private}), encoding="utf-8")
    plain.write_text(private, encoding="ascii")
    site.planted.adopt_key("a service account's key", plain)
    config = site.secrets / "gateway.toml"
    config.write_text(
        f"""
[thrift]
port = 0
cert_file = "{cert_file}"
key_file = "{key_file}"
client_ca_file = "{authority.ca_file}"
[grpc]
port = 0
cert_file = "{cert_file}"
key_file = "{key_file}"
authentication_class = "airflow_hive_federation.gateway.grpc.tokens.BearerTokens"
authentication = {{ "service.accounts" = "{accounts}" }}
[upstream]
connection = "behind"
[metrics]
port = 0
[log]
access = "{site.run}/access.log"
""",
        encoding="utf-8",
    )
    thrift, grpc = started_gateway(site, config)
    tls = {"tls_ca_file": authority.ca_file}
    mutual = {**tls, "tls_cert_file": client_cert, "tls_key_file": client_key}
    site.connect("target", extra={"uris": thrift, **mutual, "tls_key_password": phrase})
    wrong = {**mutual, "tls_key_password": site.plant("a wrong password of a TLS key")}
    site.connect("wrong_key_password", extra={"uris": thrift, **wrong})
    by_token = {"uris": grpc, **tls, "grpc_keyfile": str(account)}
    site.connect("near", extra={**by_token, **store})
    unreachable = {**store, "storage_options": json.dumps({"endpoint_url": "http://127.0.0.1:1"})}
    site.connect("nostore", extra={**by_token, **unreachable})
    site.connect("wrong_token", extra={"uris": grpc, **tls, "grpc_token": site.plant("a wrong token")})


def started_gateway(site: Site, config: Path) -> list[str]:
    """Start ``hive-federation gateway serve``; return the URIs of its fronts."""
    environment = {**os.environ, "AIRFLOW_CONN_BEHIND": json.dumps(site.connections["behind"])}
    log = site.stack.enter_context((site.run / "gateway.log").open("w", encoding="utf-8"))
    command = [
        sys.executable,
        "-m",
        "airflow_hive_federation.cli.main",
        "gateway",
        "serve",
        "--config",
        str(config),
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    site.stack.callback(process.wait, 60)
    site.stack.callback(process.terminate)
    assert process.stdout is not None
    site.stack.callback(process.stdout.close)
    serving = (line.split()[-1] for line in process.stdout if line.startswith("serving "))
    return [next(serving), next(serving)]


def with_clouds(site: Site) -> dict[str, Any]:
    """Glue, Iceberg and S3; returns the extras of a connection that name the store."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    site.stack.callback(server.stop)
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"key": site.plant("a key of S3"), "secret": site.plant("a secret of S3")}
    where = {"endpoint_url": endpoint, "client_kwargs": {"region_name": "eu-central-1"}}
    open_filesystem("s3://planted", {**keys, **where})[0].mkdir("planted")
    write_atomically("s3://planted/rows/1.csv", [b"1,a\nx,y\n2,b\n"], {**keys, **where})

    import boto3

    glue = boto3.client(
        "glue",
        endpoint_url=endpoint,
        region_name="eu-central-1",
        aws_access_key_id="k",
        aws_secret_access_key="s",
    )
    glue.create_database(DatabaseInput={"Name": "shelf"})
    for name, address in (("cloud", endpoint), ("wrong_cloud", "http://127.0.0.1:1")):
        secret = {"login": site.plant(f"{name}'s key"), "password": site.plant(f"{name}'s secret")}
        session = {"aws_session_token": site.plant(f"{name}'s session"), "endpoint_url": address}
        site.connect(name, conn_type="aws", **secret, extra={**session, "region_name": "eu-central-1"})
    token = site.plant("the lake's token")
    lake = site.stack.enter_context(fake_lake(token))
    for name, password in (("lake", token), ("wrong_lake", site.plant("a wrong token of the lake"))):
        site.connect(name, conn_type="generic", host=lake, password=password, extra={"type": "rest"})
    return {"storage_options": json.dumps(where), "secret_storage_options": json.dumps(keys)}


def nowhere(site: Site) -> None:
    """Connections to servers that do not answer."""
    headers = {"X-Key": site.plant("a header")}
    http = {"http_bearer_token": site.plant("an HTTP token")}
    site.connect("nobody_http", extra={"uris": "http://127.0.0.1:1/m", **http})
    site.connect(
        "nobody_headers", extra={"uris": "http://127.0.0.1:1/m", "http_headers": json.dumps(headers)}
    )
    password = site.plant("a password for nobody")
    site.connect("nobody_tls", login=USER, password=password, extra={"uris": "thrift+tls://127.0.0.1:1"})


@dataclass(frozen=True)
class Ran:
    """A full run, and all that it has left."""

    site: Site
    states: dict[str, str]
    watched: WatchedProcesses
    parameters: dict[str, Any]
    command_lines: dict[str, int]


@pytest.fixture(scope="module")
def ran(
    source: EmbeddedMetastore, hive_sql_source: HiveSql, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ran]:
    for statement in (
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {DATABASE}.t (id int) PARTITIONED BY (p string) {ACID}",
        f"INSERT INTO {DATABASE}.t VALUES (1, 'a'), (2, 'b')",
        f"CREATE EXTERNAL TABLE {DATABASE}.e (id int)",
    ):
        hive_sql_source.execute(statement)
    root = tmp_path_factory.mktemp("planted")
    (run := root / "run").mkdir()
    (secrets := root / "secrets").mkdir(mode=0o700)
    site = Site(run, secrets)
    with site.stack:
        site.databases["source"] = source
        with_ssh(site, source)
        target = with_password(site)
        with_gateway(site, with_clouds(site))
        nowhere(site)
        password = site.planted.values["the metastore's password"]
        known = MetastoreSettings(
            uris=(target.uri,), authentication=PlainSettings(user=USER, password=password)
        )
        with MetastoreClient(known) as client:
            client.create_database(types.Database(name="planted_near"))
            make_table(client, "planted_near", "landed")
            yield full_run(site, client, hive_sql_source, source)


def full_run(site: Site, client: MetastoreClient, sql: HiveSql, source: EmbeddedMetastore) -> Ran:
    airflow = DemoAirflow(site.run)
    airflow.migrate()
    environment = site.environment(airflow)
    site.planted.adopt("the password of the source's database", source.jdbc_password)
    site.planted.adopt("the password of the target's database", site.databases["target"].jdbc_password)
    with WatchedProcesses(site.planted, MAY, heirs_of="org.apache.spark") as watched:
        states = run_dag(site, environment)
        sql.execute(f"INSERT INTO {DATABASE}.t VALUES (3, 'c')")
        codes = run_commands(site, environment)
    names = client.list_databases()
    parameters = {name: to_json(client.get_database(name)) for name in names}
    for name in names:
        for table in client.list_tables(name):
            definition: Any = client.get_table(name, table)
            partitions = client.iter_partitions(name, table) if definition.partitionKeys else ()
            parameters[f"{name}.{table}"] = [to_json(definition), *map(to_json, partitions)]
    return Ran(site, states, watched, parameters, codes)


def run_python(site: Site, output: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
    """Run Python until it ends, with its output in a file of the run."""
    path = site.run / output
    with path.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=site.run,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=600,
        )
    assert done.returncode == 0, path.read_text(encoding="utf-8")[-6000:]


def run_dag(site: Site, environment: dict[str, str]) -> dict[str, str]:
    run_python(site, "dag.log", [str(DAG_FILE), json.dumps({"database": DATABASE})], environment)
    states: dict[str, str] = json.loads((site.run / "states.json").read_text(encoding="utf-8"))
    return states


def run_commands(site: Site, environment: dict[str, str]) -> dict[str, int]:
    """A second cycle, and questions, from the command line; the exit codes by command."""
    policy = site.run / "policy.toml"
    policy.write_text(
        f"""
name = "planted"
source = "source"
target = "target"
source_database = "{DATABASE}"
dump_root = "file:{site.run}/dumps"
external_base = "file:{site.run}/external_tables"
allowed_source_roots = ["file:{site.databases["source"].directory}"]
""",
        encoding="utf-8",
    )
    commands = (
        f"replicate run {policy} --json",
        "doctor target --json",
        "remote list --metastore near",
        "gateway check --upstream behind --as-user bob",
        "doctor wrong_token",
        "doctor nobody_headers",
        "remote list --metastore wrong_passphrase",
    )
    # The published documents must hold no secret, either.
    published = {**environment, "AIRFLOW__HIVE_FEDERATION__STATE_URI": f"file:{site.run}/state"}
    run_python(site, "commands.txt", ["-c", COMMANDS, *commands], published)
    codes: dict[str, int] = json.loads((site.run / "codes.json").read_text(encoding="utf-8"))
    return codes


def test_the_run_was_a_full_one(ran: Ran) -> None:
    states = {name: state for name, state in ran.states.items() if state not in {"success", "skipped"}}
    failing = {"wrong_store", "spark_fails", "secret_in_a_statement", "wrong_cloud", "wrong_lake"}
    wrong = (
        "wrong_password",
        "wrong_token",
        "wrong_key_password",
        "wrong_passphrase",
        "nobody_http",
        "nobody_tls",
    )
    failing |= {*wrong, *(f"remote_{name}" for name in wrong)}
    assert states == dict.fromkeys(failing, "failed")
    assert {"replicate.verify", "refresh", "describe", "glue", "iceberg", "ingest"} <= ran.states.keys()
    good = {command: code for command, code in ran.command_lines.items() if "wrong" not in command}
    del good["doctor nobody_headers"]
    assert good == dict.fromkeys(good, 0), (ran.site.run / "commands.txt").read_text(encoding="utf-8")
    assert 0 not in [code for command, code in ran.command_lines.items() if command not in good]
    assert f"{DATABASE}.t" in ran.parameters
    assert "planted_mirror.e" in ran.parameters
    assert {"planted_glue", "planted_iceberg"} <= ran.parameters.keys()
    assert any("copy-files" in command for command in ran.watched.commands)
    assert "wrong_password" in (ran.site.run / "errors.txt").read_text(encoding="utf-8")
    assert "TunnelSettings" in (ran.site.run / "reprs.txt").read_text(encoding="utf-8")


def test_lineage_has_rows_bytes_and_columns(ran: Ran) -> None:
    """By the real provider of OpenLineage, whose transport is a file."""
    lines = (ran.site.run / "lineage.jsonl").read_text(encoding="utf-8").splitlines()
    events = [event for event in map(json.loads, lines) if event["eventType"] == "COMPLETE"]
    done = {event["job"]["name"].partition(".")[2]: event for event in events}
    read = {dataset["name"]: dataset["namespace"] for dataset in done["replicate.load"]["inputs"]}
    written = {dataset["name"]: dataset for dataset in done["replicate.load"]["outputs"]}
    assert set(read) == set(written) == {f"{DATABASE}.t", f"{DATABASE}.e"}
    assert all(namespace.startswith("hive://") for namespace in read.values())
    table = written[f"{DATABASE}.t"]
    statistics = table["outputFacets"]["outputStatistics"]
    assert (statistics["size"] > 0, statistics["fileCount"]) == (True, 2)
    assert {
        column: [(field["namespace"], field["name"], field["field"]) for field in fields["inputFields"]]
        for column, fields in table["facets"]["columnLineage"]["fields"].items()
    } == {column: [(read[table["name"]], table["name"], column)] for column in ("id", "p")}
    counted = {
        (dataset["namespace"], dataset["name"]): dataset["inputFacets"]["dataQualityMetrics"]["rowCount"]
        for dataset in done["replicate.verify"]["inputs"]
        if dataset["name"] == table["name"]
    }
    assert counted == dict.fromkeys(
        [(read[table["name"]], table["name"]), (table["namespace"], table["name"])], 2
    )
    (landed,) = done["ingest"]["outputs"]
    assert (landed["name"], landed["outputFacets"]["outputStatistics"]["rowCount"]) == (
        "planted_near.landed",
        2,
    )


def test_no_secret_is_in_a_file(ran: Ran) -> None:
    """Logs of Airflow, its tasks, Spark, the gateway and the metastore; dumps, lineage, errors and reprs."""
    directories = [database.directory for database in ran.site.databases.values()]
    kept = {directory / name for directory in directories for name in KEPT}
    assert {path.stat().st_mode & 0o777 for path in kept if path.exists()} == {0o600}
    spawned = {ran.site.run / "spawned.jsonl"}
    assert in_files(ran.site.planted, [ran.site.run, *directories], but=kept | spawned) == []


def test_no_secret_is_in_airflows_database(ran: Ran) -> None:
    """XComs, rendered templates, serialized DAGs, the audit log."""
    leaks, counts = in_database(ran.site.planted, ran.site.run / "airflow" / "airflow.db")
    assert leaks == []
    assert min(counts[name] for name in ("xcom", "rendered_task_instance_fields", "task_instance")) > 5


def test_no_secret_is_in_a_metastore(ran: Ran) -> None:
    assert in_json(ran.site.planted, "", ran.parameters) == []


def test_no_secret_is_in_a_command_line_or_in_an_environment_without_need(ran: Ran) -> None:
    assert ran.watched.leaks == set()
    lines = (ran.site.run / "spawned.jsonl").read_text(encoding="utf-8").splitlines()
    assert any("spark-submit" in line for line in lines)
    for line in map(json.loads, lines):
        assert ran.site.planted.names_in(line["command"]) == set()
        assert in_environment(ran.site.planted, line["command"], line["environment"], MAY) == []
