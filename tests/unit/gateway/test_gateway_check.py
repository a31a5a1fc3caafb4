"""``gateway check``: each finding once, in words, and with a remedy that fits."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.metastore.idl import types
from tests.support.authorities import Authority
from tests.support.gateways import Gateways, Peers
from tests.support.metastore_peers import HangUp, Thrift

Check = Callable[..., tuple[int, list[str]]]


def metastore(method: str, args: Any) -> Any:
    if method in {"get_database", "get_table", "get_table_req"}:
        if method == "get_database" and args.name == "sales":
            return types.Database(name="sales")
        raise types.NoSuchObjectException(message="there is no such thing")
    return {
        "getVersion": lambda: "4.2.1",
        "getStatus": lambda: 2,
        "get_all_databases": lambda: ["default", "sales"],
        "get_open_txns": lambda: types.GetOpenTxnsResponse(
            txn_high_water_mark=7, open_txns=[], abortedBits=b""
        ),
    }[method]()


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Check a configuration file; return the exit code and the lines."""

    def run(text: str, *options: str) -> tuple[int, list[str]]:
        file = tmp_path / "gateway.toml"
        file.write_text(text, encoding="utf-8")
        code = main(["gateway", "check", "--config", str(file), *options])
        return code, capsys.readouterr().out.splitlines()

    return run


def upstream(uri: str, more: str = "") -> str:
    return f'[upstream]\nuris = ["{uri}"]\n{more}\n'


def starts(lines: list[str]) -> list[str]:
    return [line.split(" (")[0] for line in lines]


def test_all_is_well(peer: Peers, check: Check) -> None:
    code, lines = check(upstream(peer(Thrift(metastore)).uri, '[aliases]\nfar = "sales"'), "--as-user", "ann")
    assert starts(lines) == [
        "ok       Thrift front: would listen at 127.0.0.1:9083, plain text",
        "ok       metastore main: answers",
        "ok       rules: user 'ann' may read, write, admin",
        "ok       version: 4.2.1",
        "ok       databases: 2: default, far",
        "ok       open transactions: 0; the newest transaction is 7",
        "ok       alias far: stands for sales",
        "ok       clients of Hive 2 and 3: get_table is answered",
    ]
    assert code == 0


def test_a_metastore_that_is_down_is_one_finding(peer: Peers, check: Check) -> None:
    listening = peer(Thrift(metastore))
    uri = listening.uri
    listening.close()
    code, lines = check(upstream(uri))
    assert code == 1
    assert [line[:8].strip() for line in lines] == ["ok", "error", "", "ok"]
    assert f"metastore main: Upstream main does not answer: {uri}: " in lines[1]
    assert "→ Start the metastore, or correct the upstream's URIs" in lines[2]
    assert lines[3].endswith("rules: a client without a name may read, write, admin")


@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["10.1.2.3"]], ids=["authority", "host"])
def test_a_certificate_that_is_not_trusted(
    peer: Peers, gateway: Gateways, check: Check, tmp_path: Path, hosts: list[str]
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    cert, key = authority.sign("server", *hosts)
    far = gateway(peer(Thrift(metastore)).uri, front={"tls": ServerTls(cert_file=cert, key_file=key)})
    trusted = (stranger if hosts == ["127.0.0.1"] else authority).ca_file
    code, lines = check(upstream(far.front.uri, f'ca_file = "{trusted}"'))
    assert code == 1
    assert "certificate verify failed" in lines[1]
    assert (
        "→ Give the authorities of the server's certificate (ca_file), and a name that it is for." in lines[2]
    )


def test_files_of_tls_that_are_missing_are_named(peer: Peers, check: Check) -> None:
    uri = peer(Thrift(metastore), scheme="thrift+tls").uri
    code, lines = check(upstream(uri, 'ca_file = "/no/such/file"'))
    assert code == 1
    assert "TLS files /no/such/file cannot be used: " in lines[1]


def test_an_alias_of_nothing_is_an_error(peer: Peers, check: Check) -> None:
    code, lines = check(upstream(peer(Thrift(metastore)).uri, '[aliases]\nfar = "nowhere"'))
    assert code == 1
    place = next(number for number, line in enumerate(lines) if "alias far" in line)
    assert lines[place] == "error    alias far: NoSuchObjectException: there is no such thing"
    assert "→ Correct [aliases], or create the database." in lines[place + 1]


def test_a_caller_sees_what_the_rules_show(peer: Peers, check: Check) -> None:
    text = upstream(
        peer(Thrift(metastore)).uri, '[[rule]]\nusers = ["etl_*"]\ndatabases = ["sales", "tmp_*"]'
    )
    code, lines = check(text, "--as-user", "etl_1")
    assert starts(lines)[2:] == [
        "ok       rules: user 'etl_1' may read",
        "ok       version: 4.2.1",
        "ok       databases: 1: sales",
        "ok       open transactions: 0; the newest transaction is 7",
        # Asked about a database that the caller may see.
        "ok       clients of Hive 2 and 3: get_table is answered",
    ]
    assert code == 0
    code, lines = check(text, "--as-user", "bob")
    assert lines[2:] == ["refused  rules: user 'bob' may make no calls", "         → Add a [[rule]]."]
    assert code == 0


def test_a_caller_who_sees_no_database(peer: Peers, check: Check) -> None:
    _, lines = check(upstream(peer(Thrift(metastore)).uri, '[expose]\ndatabases = ["other"]'))
    assert "ok       databases: none" in starts(lines)


def test_fronts_are_shown_as_they_would_listen(peer: Peers, check: Check, tmp_path: Path) -> None:
    uri = peer(Thrift(metastore)).uri
    authority = Authority(tmp_path)
    cert_file, key_file = authority.sign("gateway")
    tls = f'cert_file = "{cert_file}"\nkey_file = "{key_file}"\n'
    _, lines = check(f"thrift = false\n[grpc]\nport = 0\n{tls}{upstream(uri)}")
    assert lines[0] == "ok       gRPC front: would listen at 127.0.0.1:(a free port), TLS"
    assert "Thrift front" not in "".join(lines)
    _, lines = check(f'[thrift]\nport = 0\n{tls}client_ca_file = "{authority.ca_file}"\n{upstream(uri)}')
    assert lines[0] == (
        "ok       Thrift front: would listen at 127.0.0.1:(a free port), TLS, clients need a certificate"
    )
    assert "gRPC front" not in "".join(lines)


@pytest.mark.parametrize(
    ("section", "by_default"),
    [("", True), ("[thrift]\nport = 9083\n", True), ("[thrift]\nport = 0\n", False)],
)
def test_a_thrift_front_that_the_file_does_not_set_up_is_named(
    peer: Peers, check: Check, section: str, by_default: bool
) -> None:
    _, lines = check(f"{section}[grpc]\nport = 0\n{upstream(peer(Thrift(metastore)).uri)}")
    assert lines[0].startswith("ok       Thrift front: would listen at 127.0.0.1:")
    assert (", plain text (by default; thrift = false leaves it out)" in lines[0]) is by_default


OPEN = "would serve 0.0.0.0 in plain text."
NO_FILES = 'cert_file = "/no/such/cert"\n'


@pytest.mark.parametrize(
    ("text", "finding", "remedy"),
    [
        ('[thrift]\nhost = "0.0.0.0"\n', f"Thrift front: The gateway {OPEN}", "Give a certificate"),
        (
            f"[thrift]\n{NO_FILES}",
            "Thrift front: TLS files /no/such/cert cannot be used",
            "Give readable PEM",
        ),
        (
            'thrift = false\n[grpc]\nhost = "0.0.0.0"\n',
            f"gRPC front: The gateway {OPEN}",
            "Give a certificate",
        ),
        (
            f"thrift = false\n[grpc]\n{NO_FILES}",
            "gRPC front: TLS files /no/such/cert cannot be used",
            "Give readable PEM",
        ),
        (
            'thrift = false\n[grpc]\nhost = "0.0.0.0"\nallow_plain = true\n',
            "gRPC front: The gRPC front would serve 0.0.0.0, and no authentication is set.",
            "Set metastore.grpc.authentication.class to ",
        ),
        (
            'thrift = false\n[properties]\n"metastore.custom.server.class" = "no.such.Class"\n',
            "gRPC front: metastore.custom.server.class names 'no.such.Class'",
            "",
        ),
    ],
)
def test_a_front_that_would_not_start_is_an_error(
    peer: Peers, check: Check, text: str, finding: str, remedy: str
) -> None:
    code, lines = check(text + upstream(peer(Thrift(metastore)).uri))
    assert code == 1
    assert lines[0].startswith(f"error    {finding}")
    assert lines[1].startswith(f"         → {remedy}")
    assert "ok       metastore main: answers" in starts(lines)


class OtherFront:
    """A server with rules of its own about its addresses."""

    def start(self) -> None:
        """Never called."""

    def stop(self, drain_timeout_s: float | None = None) -> None:
        """Never called."""


def test_a_server_of_another_class_is_not_held_to_the_rules_of_ours(peer: Peers, check: Check) -> None:
    named = f'"metastore.custom.server.class" = "{OtherFront.__module__}.OtherFront"'
    text = f'thrift = false\n[grpc]\nhost = "0.0.0.0"\nport = 0\n[properties]\n{named}\n'
    _, lines = check(text + upstream(peer(Thrift(metastore)).uri))
    assert lines[0] == "ok       gRPC front: would listen at 0.0.0.0:(a free port), plain text"


def test_calls_that_fail_are_findings(peer: Peers, check: Check) -> None:
    """The server lacks one method, fails in another one, and hangs up in a third one."""

    def failing(method: str, args: Any) -> Any:
        if method == "get_table":
            raise types.MetaException(message="out of order")
        if method == "get_all_databases":
            raise HangUp
        return metastore(method, args)

    code, lines = check(upstream(peer(Thrift(failing, {"get_open_txns"})).uri))
    assert code == 1
    assert "error    open transactions: Invalid method name: 'get_open_txns'" in lines
    table = lines.index("error    clients of Hive 2 and 3: MetaException: out of order")
    # It is no alias that is at fault.
    assert not any("Correct [aliases]" in line for line in lines[table:])
    assert any(line.startswith("error    databases: get_all_databases: the connection") for line in lines)


def test_a_caller_who_only_writes_is_refused_what_reads(peer: Peers, check: Check) -> None:
    text = upstream(peer(Thrift(metastore)).uri, '[[rule]]\naccess = ["write"]')
    _, lines = check(text, "--as-user", "ann")
    assert "ok       rules: user 'ann' may write" in lines
    refused = [line.split(": ")[0] for line in lines if line.startswith("refused")]
    assert refused == [
        "refused  version",
        "refused  databases",
        "refused  open transactions",
        "refused  clients of Hive 2 and 3",
    ]


def test_the_database_of_the_last_check_is_one_of_the_callers_rules(peer: Peers, check: Check) -> None:
    rules = '[[rule]]\nusers = ["bob"]\ndatabases = ["hr"]\n[[rule]]\nusers = ["ann"]\ndatabases = ["sales"]'
    code, lines = check(upstream(peer(Thrift(metastore)).uri, rules), "--as-user", "ann")
    assert code == 0
    assert starts(lines)[-1] == "ok       clients of Hive 2 and 3: get_table is answered"


@pytest.mark.parametrize(
    ("count", "shown"), [(10, "10: d0, d1, d2, d3, d4, d5, d6, d7, d8, d9"), (11, "d8, d9, …")]
)
def test_long_lists_are_cut(peer: Peers, check: Check, count: int, shown: str) -> None:
    def many(method: str, args: Any) -> Any:
        if method == "get_all_databases":
            return [f"d{number}" for number in range(count)]
        if method == "get_open_txns":
            return types.GetOpenTxnsResponse(txn_high_water_mark=9, open_txns=[7, 8], abortedBits=b"")
        return metastore(method, args)

    _, lines = check(upstream(peer(Thrift(many)).uri))
    databases = next(line for line in starts(lines) if "databases" in line)
    assert databases.endswith(shown)
    assert "ok       open transactions: 2; the newest transaction is 9" in starts(lines)


def test_a_port_in_use_may_be_the_gateways_own(peer: Peers, check: Check) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sections = "".join(f"[{name}]\nport = {port}\n" for name in ("thrift", "grpc", "metrics"))
        code, lines = check(sections + upstream(peer(Thrift(metastore)).uri))
    use = f"would listen at 127.0.0.1:{port}, plain text (in use now, perhaps by this gateway)"
    assert lines[:3] == [f"ok       {name}: {use}" for name in ("Thrift front", "gRPC front", "metrics")]
    assert code == 0


# 192.0.2.1 is an address for documentation, which no machine has (RFC 5737).
@pytest.mark.parametrize(
    ("number", "sections"),
    [
        (0, '[thrift]\nhost = "192.0.2.1"\nallow_plain = true\n'),
        (1, '[thrift]\nport = 0\n[metrics]\nhost = "192.0.2.1"\n'),
    ],
    ids=["thrift", "metrics"],
)
def test_an_address_that_is_not_this_machines_is_an_error(
    peer: Peers, check: Check, number: int, sections: str
) -> None:
    code, lines = check(sections + upstream(peer(Thrift(metastore)).uri))
    assert "The gateway cannot listen at 192.0.2.1:" in lines[number]
    assert code == 1


@pytest.mark.parametrize(("place", "state"), [("log", "ok"), ("no/log", "error"), ("", "error")])
def test_an_access_log_that_cannot_be_written_is_an_error(
    peer: Peers, check: Check, tmp_path: Path, place: str, state: str
) -> None:
    log = f'[thrift]\nport = 0\n[log]\naccess = "{tmp_path / place}"\n'
    code, lines = check(log + upstream(peer(Thrift(metastore)).uri))
    assert lines[1].startswith(f"{state:<8} access log: ")
    assert code == (state == "error")
    assert not (tmp_path / "log").exists()


def test_a_cluster_with_the_name_of_a_catalog_is_an_error(peer: Peers, check: Check, tmp_path: Path) -> None:
    def with_catalogs(method: str, args: Any) -> Any:
        if method == "get_catalogs":
            return types.GetCatalogsResponse(names=["hive", "near"])
        return metastore(method, args)

    registry = tmp_path / "clusters.json"
    clusters = {"near": {"fileSystem": "/near", "jobTracker": "near"}}
    registry.write_text(
        json.dumps({"hive.cluster.properties": clusters, "hive.default.cluster.name": "near"}),
        encoding="utf-8",
    )
    uri = peer(Thrift(with_catalogs)).uri
    code, lines = check(f'[thrift]\nport = 0\n[cluster]\nregistry = "{registry}"\n' + upstream(uri))
    assert any(line.startswith("error    clusters: ") for line in lines), lines
    assert code == 1


#: Files with which no gateway starts; the second text is the start of the error, without the file's name.
REFUSED = {
    "no front": ("thrift = false\n", "The gateway would serve no front."),
    "front of a wrong kind": ("thrift = true\n", "[thrift] is no section."),
    "port": ("[thrift]\nport = -1\n", "[thrift] port is -1."),
    "plain text": (
        '[thrift]\nhost = "0.0.0.0"\nport = 0\n',
        "The gateway would serve 0.0.0.0 in plain text.",
    ),
    "certificate": ('[thrift]\ncert_file = "/no/pem"\n', "TLS files /no/pem cannot be used:"),
    "class": (
        '[thrift]\nport = 0\n[grpc]\nport = 0\nauthentication_class = "no.Such"\n',
        "metastore.grpc.authentication.class names 'no.Such'",
    ),
    "registry": (
        '[thrift]\nport = 0\n[cluster]\nregistry = "/no/json"\n',
        "The registry of clusters, /no/json,",
    ),
    "log": ('[thrift]\nport = 0\n[log]\naccess = "/no/dir/log"\n', "The access log /no/dir/log cannot"),
    "federation": ('[federation]\ntransactions_of = "far"\n', "[federation] joins several metastores"),
    "property": ('[properties]\n"metastore.uri" = "grpc://a:1"\n', "[properties] has 'metastore.uri'"),
    "syntax": ("[thrift\n", "cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_check_and_serve_refuse_the_same_files(
    peer: Peers, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    text, message = REFUSED[case]
    file = tmp_path / "gateway.toml"
    file.write_text(text + upstream(peer(Thrift(metastore)).uri), encoding="utf-8")
    shown = []
    for action in ("check", "serve"):
        assert main(["gateway", action, "--config", str(file)]) == 1
        shown.append(capsys.readouterr())
    checked, served = shown
    assert message in served.err
    assert "Remedy: " in served.err
    if checked.err:
        # Not a finding about one front: nothing else was checked.
        assert checked.err == served.err
        assert str(file) in served.err
    else:
        (number, finding) = next(
            (number, line) for number, line in enumerate(checked.out.splitlines()) if line.startswith("error")
        )
        assert message in finding
        assert checked.out.splitlines()[number + 1].split("→ ")[1] in served.err
    assert "Traceback" not in served.err


def test_a_port_of_the_command_line_is_a_front(peer: Peers, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("thrift = false\n" + upstream(peer(Thrift(metastore)).uri), encoding="utf-8")
    command = ["gateway", "check", "--config", str(file)]
    assert main(command) == 1
    assert main([*command, "--grpc-port", "0"]) == 0
