"""``gateway check``: each finding once, in words, and with a remedy that fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.metastore.idl import types
from tests.support.certificate_files import Authority
from tests.support.gateways import Gateways, Peers
from tests.support.metastore_peers import Thrift

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
    cert, key = authority.issue("server", hosts=hosts)
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
