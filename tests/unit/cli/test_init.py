"""``hive-federation init``: the files that it writes, and the ones that it leaves alone."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_hive_federation.cli import init
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.cli.replicate import read_policy_file
from tests.support.metastore_peers import Peer, Thrift

ENDS = ["--source", "thrift://a:9083,thrift://b:9084", "--target", "conn:mine", "--database", "sales"]


def test_policy_connections_and_dag_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "new"), *ENDS, "--target-database", "copy", "--json"]) == 0
    policy_path, connections_path, dag_path = map(Path, json.loads(capsys.readouterr().out))
    file = read_policy_file(policy_path)
    assert (file.source, file.target) == ("thrift://a:9083,thrift://b:9084", "mine")
    assert (file.policy.name, file.policy.target_database) == ("sales", "copy")
    connections = json.loads(connections_path.read_text(encoding="utf-8"))
    # The target's connection exists already.
    assert connections == {
        "sales_source": {"conn_type": "hive_federation", "extra": {"uris": "thrift://a:9083,thrift://b:9084"}}
    }
    calls = {
        getattr(node.func, "id", ""): node
        for node in ast.walk(ast.parse(dag_path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    settings = {keyword.arg: keyword.value for keyword in calls["DAG"].keywords}
    assert ast.literal_eval(settings["default_args"])["retries"] > 0
    call = calls["replicate_database"]
    fields = ast.literal_eval(call.args[0])
    assert fields["dump_root"] == file.policy.dump_root == str(tmp_path / "new" / "dumps")
    assert fields["target_database"] == "copy"
    assert {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords} == {
        "source_conn_id": "sales_source",
        "target_conn_id": "mine",
    }


def test_files_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "connections.json").write_text("mine", encoding="utf-8")
    assert main(["init", str(tmp_path), *ENDS]) == 1
    assert f"Files exist already: {tmp_path / 'connections.json'}." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["connections.json"]
    assert (tmp_path / "connections.json").read_text(encoding="utf-8") == "mine"


def test_a_killed_run_is_completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["init", str(tmp_path), *ENDS, "--json"]
    assert main(line) == 0
    policy, connections, dag = map(Path, json.loads(capsys.readouterr().out))
    texts = [path.read_text(encoding="utf-8") for path in (policy, connections, dag)]
    connections.write_text(texts[1][:5], encoding="utf-8")
    dag.unlink()
    assert main(line) == 0
    assert [path.read_text(encoding="utf-8") for path in (policy, connections, dag)] == texts
    capsys.readouterr()
    assert main(line) == 1
    assert f"Files exist already: {policy}, {connections}, {dag}." in capsys.readouterr().err


def test_a_link_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.toml").symlink_to(tmp_path / "elsewhere")
    assert main(["init", str(tmp_path), *ENDS]) == 1
    assert f"Files exist already: {tmp_path / 'policy.toml'}." in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_nothing_is_written_if_a_directory_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dags").write_text("mine", encoding="utf-8")
    assert main(["init", str(tmp_path), *ENDS]) == 1
    assert "dags/replicate_sales.py cannot be written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["dags"]


def test_names_with_quotes_and_rare_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "a b \N{GRINNING FACE} \u00e9"
    line = ["init", str(directory), "--source", "conn:a", "--target", "conn:b", "--name", "odd"]
    assert main([*line, "--database", 'x"""y{z}']) == 0
    printed = capsys.readouterr().out
    assert f"replicate run '{directory}/policy.toml'" in printed
    policy = read_policy_file(directory / "policy.toml").policy
    assert (policy.source_database, policy.dump_root) == ('x"""y{z}', f"{directory}/dumps")
    text = (directory / "dags" / "replicate_odd.py").read_text(encoding="utf-8")
    strings = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    assert {'x"""y{z}', f"{directory}/dumps"} <= strings


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--source", "no_such_metastore"], "no metastore named 'no_such_metastore' is running"),
        (["--source", "thrift://user:hunter2@h:1"], "names a user before its host"),
        (["--source", "https://h/m?token=hunter2"], "The URI of --source has a query"),
        (["--target", "thrift://h:1#hunter2"], "The URI of --target has a query"),
        (["--dump-root", "s3://key:hunter2@b/x"], "--dump-root has a password"),
        (["--external-base", "hdfs://u:hunter2@n/x"], "--external-base has a password"),
        (["--target", "conn:"], "conn: names no connection"),
        (["--name", "a b"], "cannot be the name of a policy"),
        (["--target", "thrift://a:9083,thrift://b:9084"], "would be replicated to itself"),
    ],
)
def test_mistakes_write_nothing(
    changed: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "new"), *ENDS, *changed]) == 1
    output = capsys.readouterr()
    assert message in output.err
    assert "hunter2" not in output.err
    assert not (tmp_path / "new").exists()


def test_an_embedded_source_has_the_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(Thrift(lambda *_: ["default", "sales"]))
    running = SimpleNamespace(uri=peer.uri, warehouse="/w", external_warehouse="/e")
    monkeypatch.setattr(init, "named_metastore", lambda _: running)
    line = ["init", str(tmp_path / "new"), "--source", "source", "--target", "conn:b", "--database"]
    try:
        assert main([*line, "sale"]) == 1
        error = capsys.readouterr().err
        assert "The metastore source has no database sale." in error
        assert "name one that it has: default, sales." in error
        assert not (tmp_path / "new").exists()
        assert main([*line, "SALES"]) == 0
    finally:
        peer.close()
