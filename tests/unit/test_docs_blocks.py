"""Each fenced block of the documents is read by the code that reads such text: Python, commands, settings."""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from airflow.sdk import DAG, Connection

from airflow_hive_federation.cli.main import build_parser, main
from airflow_hive_federation.cli.replicate import read_policy_file
from airflow_hive_federation.cli.replicate_group import read_group
from airflow_hive_federation.clusters.advice_report import in_words
from airflow_hive_federation.clusters.advice_result import Advice, CopyAdvice
from airflow_hive_federation.clusters.registry import PROPERTIES, read_registry
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.hooks.metastore import settings_from_connection, storage_options_from_connection
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.ingest import HiveStreamingConnection
from airflow_hive_federation.metastore.client import MetastoreClient
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.operators.replication import replicate_database
from airflow_hive_federation.progress.cycle_events import CycleFollowed
from airflow_hive_federation.progress.events import FailedOver, TakenOver
from airflow_hive_federation.progress.observers import RECORD_EVENT
from airflow_hive_federation.progress.reading import event_of
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.provider import get_provider_info
from airflow_hive_federation.remotes import statement as remotes_statement
from airflow_hive_federation.remotes.statement import parse_script
from airflow_hive_federation.spark.copy_files import SUMMARY
from airflow_hive_federation.storage.filesystem import OBJECT_STORES, parse_location
from tests.support.documented_calls import problems_of_calls
from tests.support.documents import BLOCKS, COMMANDS, ROOT, Block, Command, blocks_in

PYTHON = blocks_in("python")
#: Classes of variables that blocks use and do not define.
KNOWN = {
    "client": MetastoreClient,
    "connection": HiveStreamingConnection,
    "hive_metastore": EmbeddedMetastore,
}
#: Each language has a check below; ``text`` is what programs print, and Sphinx draws ``mermaid``.
LANGUAGES = {"python", "sh", "json", "toml", "ini", "properties", "sql", "text", "mermaid"}


def test_every_block_has_a_language_with_a_check() -> None:
    assert {block.language for block in BLOCKS} == LANGUAGES


# -- Python ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_names_and_calls_what_there_is(block: Block) -> None:
    compile(block.text, str(block), "exec")
    assert problems_of_calls(block.text, KNOWN) == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("from airflow_hive_federation.metastore import Metastores", "has no Metastores"),
        ("MetastoreSettings(uris=(), colour='red')", "colour"),
        ("MetastoreClient(MetastoreSettings(uris=())).get_tables_of()", "has no get_tables_of"),
        ("with MetastoreClient(MetastoreSettings(uris=())) as it:\n    it.get_table('a')", "get_table"),
        ("client.list_databases(1, 2, 3)", "list_databases"),
        ("ends = {'colour': 1}\nMetastoreSettings(uris=(), **ends)", "colour"),
        ("def f(it: MetastoreClient):\n    it.nothing()", "has no nothing"),
        ("print([MetastoreSettings(uris=(), colour=1)])", "colour"),
    ],
)
def test_wrong_names_and_arguments_are_found(wrong: str, problem: str) -> None:
    imports = "from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings\n"
    (found,) = problems_of_calls(imports + wrong, KNOWN)
    assert problem in found


def dags_of_documents(tmp_path: Path) -> Path:
    """Write DAG files: the blocks, the examples and what ``init`` makes. Loose operators get a DAG."""
    dags = tmp_path / "dags"
    dags.mkdir()
    for number, block in enumerate(PYTHON):
        if re.search(r"\bDAG\(", block.text):
            (dags / f"dag_{number}.py").write_text(block.text, encoding="utf-8")
        elif "airflow_hive_federation.operators" in block.text:
            body = textwrap.indent(block.text, "    ")
            text = f"from airflow.sdk import DAG\n\nwith DAG('block_{number}', schedule=None):\n{body}"
            (dags / f"dag_{number}.py").write_text(text, encoding="utf-8")
    for example in (ROOT / "dags").glob("*.py"):
        (dags / example.name).write_bytes(example.read_bytes())
    ends = ("--source", "thrift://a:1", "--target", "thrift://b:1")
    assert main(["init", str(tmp_path / "new"), *ends, "--database", "mine"]) == 0
    (dags / "mine.py").write_bytes((tmp_path / "new" / "dags" / "replicate_mine.py").read_bytes())
    return dags


#: Reads the DAGs of a folder, and parses command lines of Airflow.
AIRFLOW = """
import json, sys
from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag
for words in json.loads(sys.argv[2]):
    get_parser().parse_args(words)
bag = DagBag(sys.argv[1])
print(json.dumps([bag.import_errors, {d.dag_id: sorted(d.task_ids) for d in bag.dags.values()}]))
"""


def test_dags_and_commands_of_airflow(tmp_path: Path) -> None:
    """In a process and a home of its own: Airflow's import writes there."""
    dags = dags_of_documents(tmp_path)
    lines = [command.words[1:] for command in COMMANDS if command.words[:1] == ["airflow"]]
    assert lines
    done = subprocess.run(
        [sys.executable, "-c", AIRFLOW, str(dags), json.dumps(lines)],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    import_errors, dags_found = json.loads(done.stdout.splitlines()[-1])
    assert import_errors == {}
    assert len(dags_found) == len(list(dags.glob("*.py")))
    steps = ("decide", "drain", "dump", "increment", "load", "verify")
    for policy in ("sales", "mine"):
        assert dags_found[f"replicate_{policy}"] == [f"replicate_{policy}.{step}" for step in steps]


# -- commands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_commands_are_accepted(command: Command) -> None:
    for name, value in command.variables.items():
        if name.startswith("AIRFLOW_CONN_"):
            read_connection(json.loads(value))
    match command.words:
        case [] if command.variables:
            return
        case ["hive-federation", *arguments] | ["airflow", "hive-federation", *arguments]:
            parsed(build_parser(), arguments)
        case ["make", target, *arguments]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
            assert all(argument.startswith(("ARGS=", "JOBS=")) for argument in arguments)
        case ["pip", "install", package, *others]:
            # Packages of others, and an option with their versions, may stand beside this one.
            assert package in installable()
            assert not any(other.startswith("airflow-hive-federation") for other in others)
        case ["docker", "build", "-f", file, *_]:
            assert (ROOT / file).is_file()
        case ["kubectl", *arguments]:
            (options,) = (word.partition("options=")[2] for word in arguments if "options=" in word)
            assert read_options(json.loads(options))
        # A program of Hadoop is not installed; Airflow's parser reads its own above.
        case (
            ["airflow", *_]
            | ["export", "AIRFLOW_HOME=$PWD/airflow"]
            | ["hdfs", "dfsadmin", *_]
            | ["python3", "-m", "venv", _]
            | [".", "first/bin/activate"]
        ):
            pass
        case words:
            pytest.fail(f"No check for {words}")


def parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Parse a line; abbreviated options, which argparse accepts, do not count."""
    used = [parser]
    for argument in arguments:
        for action in used[-1]._actions:
            if isinstance(action, argparse._SubParsersAction) and argument in action.choices:
                used.append(action.choices[argument])
    options = {option for one in used for option in one._option_string_actions}
    assert {word.partition("=")[0] for word in arguments if word.startswith("--")} <= options
    return parser.parse_args(arguments)


def installable() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = list(project["optional-dependencies"])
    pairs = [f"{one},{two}" for one in extras for two in extras if one != two]
    return {project["name"], *(f"{project['name']}[{extra}]" for extra in [*extras, *pairs])}


# -- settings ----------------------------------------------------------------------------------------------


def read_connection(fields: Mapping[str, Any]) -> None:
    # The documents write … for a secret.
    extra = json.dumps(fields.get("extra", {}), ensure_ascii=False).replace("…", "open-sesame")
    connection = Connection(**{**fields, "conn_id": "shown", "extra": extra})
    if fields["conn_type"] == "hive_federation":
        assert settings_from_connection(connection).uris
        storage_options_from_connection(connection)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_SHOWN", json.dumps(fields))
        if fields["host"].startswith("k8s://"):
            # The provider that reads it further is not among those of the tests.
            with pytest.raises(ConfigurationError, match=r"cncf\.kubernetes"):
                SparkPipelineHook(conn_id="shown").check_connection()
        else:
            SparkPipelineHook(conn_id="shown").check_connection()


def read_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = json.dumps({"secret_storage_options": options})
    return storage_options_from_connection(
        Connection(conn_id="shown", conn_type="hive_federation", host="h", extra=extra)
    )


@pytest.mark.parametrize("block", blocks_in("json"), ids=str)
def test_json_is_read(block: Block) -> None:
    value = json.loads(block.text)
    if "conn_type" in value:
        read_connection(value)
    elif PROPERTIES in value:
        assert list(read_registry(value, origin=str(block)))
    elif RECORD_EVENT in value:
        assert event_of(value[RECORD_EVENT]).to_json() == value[RECORD_EVENT]
    elif "cycle" in value:
        # follow --json writes the rate, too.
        rate = value.pop("bytes_per_s")
        assert round(CycleFollowed(**value).bytes_per_s) == rate
    else:
        assert read_options(value) == value


@pytest.mark.parametrize("block", blocks_in("toml"), ids=str)
def test_toml_is_read(block: Block, tmp_path: Path) -> None:
    value = tomllib.loads(block.text)
    if "policies" in value:
        path = tmp_path / "group.toml"
        assert read_group(path, value, value.pop("options", {}), into_existing=False).group.policies
    elif any(isinstance(part, dict | list) and name != "options" for name, part in value.items()) and (
        "allowed_source_roots" not in value
    ):
        # A gateway always has an upstream; the block may show another section only.
        value.setdefault("upstream", {"uris": ["grpc://metastore:9084"]})
        assert config_of(value).upstream.uris
    else:
        required = ("name", "source", "target", "source_database", "dump_root")
        missing = [f'{name} = "x"\n' for name in required if name not in value]
        (tmp_path / "policy.toml").write_text("".join(missing) + block.text, encoding="utf-8")
        assert read_policy_file(tmp_path / "policy.toml").policy.source_database


@pytest.mark.parametrize("block", blocks_in("ini"), ids=str)
def test_sections_of_airflows_configuration_are_declared(block: Block) -> None:
    shown = configparser.ConfigParser()
    shown.read_string(block.text)
    declared: Any = get_provider_info()["config"]
    for section in shown.sections():
        assert set(shown[section]) <= set(declared[section]["options"])


@pytest.mark.parametrize("block", blocks_in("properties"), ids=str)
def test_properties_of_engines_are_pairs(block: Block) -> None:
    lines = [line for line in block.text.splitlines() if not line.startswith("#")]
    names = [re.fullmatch(r"([a-z][\w.-]+)=\S+", line)[1] for line in lines]  # type: ignore[index]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("block", blocks_in("sql"), ids=str)
def test_sql_is_a_statement_of_remotes(block: Block) -> None:
    assert parse_script(block.text)


# -- what programs print -----------------------------------------------------------------------------------


def printed(document: str) -> list[str]:
    return [block.text for block in blocks_in("text") if block.document == document]


def test_a_failover_prints_what_the_page_shows() -> None:
    over = FailedOver(database="sales", replica="sales", event_id=4711, policy="sales.reversed")
    taken = TakenOver(database="sales", event_id=4711)
    assert printed("docs/failover.md") == [f"{words(over)}\n", f"{words(taken)}\n"]


def test_the_grammar_of_remotes_is_that_of_their_parser() -> None:
    grammar = (remotes_statement.__doc__ or "").split("::\n\n")[1].split("\n\n")[0]
    assert printed("docs/remotes.md") == [textwrap.dedent(grammar) + "\n"]


def test_the_drawing_of_a_task_group_shows_its_tasks_in_their_order() -> None:
    """A task stands to the right of those that it follows."""
    (drawing,) = printed("docs/airflow.md")
    ends = {"source_conn_id": "a", "target_conn_id": "b"}
    policy = {"name": "shop", "source_database": "shop", "dump_root": "/dumps"}
    with DAG("drawn", schedule=None) as dag:
        replicate_database(policy, **ends)
    followers = {
        task.label: {dag.get_task(name).label for name in task.downstream_task_ids} for task in dag.tasks
    }
    places = {match[0]: match.start() for line in drawing.splitlines() for match in re.finditer(r"\w+", line)}
    assert set(places) == set(followers)
    assert all(places[name] < places[later] for name in followers for later in followers[name])


def test_the_locations_of_object_stores_are_read_as_the_page_shows() -> None:
    (shown,) = printed("docs/object-stores.md")
    places = [parse_location(line) for line in shown.splitlines()]
    assert {place.scheme for place in places} == OBJECT_STORES - {"s3"}
    assert [urlsplit(line).path for line in shown.splitlines()] == [place.path for place in places]


def test_the_files_of_a_copy_have_the_fields_that_the_page_shows() -> None:
    (shown,) = printed("docs/copying.md")
    parts = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in shown.splitlines()]
    lines = {file: "".join(meaning) for file, *meaning in parts}
    records = {"<dump>/load/copy_plan.jsonl": CopyItem, "<run>-<group>-<attempt>.jsonl": CopyOutcome}
    for file, record in records.items():
        named = lines[file].partition(": ")[2].split(", ")
        assert named
        assert set(named) <= {field.name for field in fields(record)}
    assert SUMMARY in lines


def test_the_advice_on_copies_is_printed_as_the_page_shows() -> None:
    gib = 2**30
    customers = CopyAdvice(
        table="sales.customers",
        cluster="C2",
        source="C1",
        copied_bytes=40 * gib,
        saved_bytes=280 * gib,
        statements=1,
        runs=7,
    )
    orders = CopyAdvice(
        table="sales.orders",
        cluster="C2",
        source="C1",
        keys=("day",),
        key="day",
        days=30,
        copied_bytes=300 * gib,
        kept_bytes=60 * gib,
        saved_bytes=2100 * gib,
        statements=3,
        runs=21,
    )
    advice = Advice(
        days=7,
        budget_bytes=None,
        copies=(customers, orders),
        statements=6,
        runs=36,
        refused=30,
        crossing_bytes=2_500_000_000_000,
    )
    (shown,) = printed("docs/clusters.md")
    assert in_words(advice).startswith(shown)
