"""Each operator in a DAG of its user's, executed by Airflow between two real metastores.

The first run meets a target database of another owner and a transaction that never ends; the second comes
after the remedy that the error names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from airflow_hive_federation.demo.data import open_a_transaction
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, Row
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.drain import open_transactions
from tests.support.airflow_homes import new_airflow
from tests.support.small_source import connected, make_table

pytestmark = pytest.mark.slow

DATABASE = "lighthouse"
DAG_FILE = Path(__file__).parents[1] / "airflow_dags" / "one_by_one.py"
TASKS = ("drain", "dump", "load", "verify", "compact")


class Airflow:
    """An Airflow of its own, in whose process the DAG runs again and again.

    :param home: its directory.
    :param database: a new database of Airflow's.
    """

    def __init__(self, home: Path, database: Path) -> None:
        self._home, self._log_path = home, home / "runs.log"
        environment = {
            **new_airflow(home, database).environment,
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAG_FILE.parent),
        }
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(DAG_FILE)],
                env=environment,
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, database: str, **ports: int) -> dict[str, Any]:
        """Return the outcome of each task in one run of the DAG.

        :param ports: Thrift ports of the metastores on this machine, by the id of the connection.
        """
        connections = {
            f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(
                {"conn_type": "hive_federation", "host": "127.0.0.1", "port": port}
            )
            for conn_id, port in ports.items()
        }
        conf = {"database": database, "root": f"file:{self._home / 'dumps'}"}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"conf": conf, "variables": connections}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log_path.read_text(encoding="utf-8", errors="replace")[-4000:]
        tasks: dict[str, Any] = json.loads(answer)
        return tasks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()


@dataclass(frozen=True)
class Runs:
    """The outcomes of the tasks in the two runs, and the target's state between them."""

    refused: dict[str, Any]
    left_alone: list[str]
    open_txn: int
    open_afterwards: set[int]
    remedied: dict[str, Any]


@pytest.fixture(scope="module")
def airflow(airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with Airflow(tmp_path_factory.mktemp("one_by_one"), airflow_database) as started:
        yield started


@pytest.fixture(scope="module")
def runs(
    source: EmbeddedMetastore, target: EmbeddedMetastore, hive_sql_source: HiveSql, airflow: Airflow
) -> Iterator[Runs]:
    statements = f"""
CREATE DATABASE {DATABASE};
CREATE TABLE {DATABASE}.lamps (id int, name string) PARTITIONED BY (coast string) STORED AS ORC
TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true');
INSERT INTO {DATABASE}.lamps VALUES (1, 'Kéréon', 'west'), (2, 'Ar-Men', 'west'), (3, 'Gatteville', 'north');
DELETE FROM {DATABASE}.lamps WHERE id = 2"""
    for statement in statements.split(";"):
        hive_sql_source.execute(statement)
    ports = {"source": source.port, "target": target.port}
    with connected(source) as client:
        open_txn = open_a_transaction(client, database=DATABASE, table="lamps")
    with connected(target) as client:
        client.create_database(types.Database(name=DATABASE, parameters={}))
        make_table(client, DATABASE, "theirs")
    refused = airflow.run(DATABASE, **ports)
    with connected(target) as client:
        left_alone = client.list_tables(DATABASE)
        client.drop_database(DATABASE, delete_data=True, cascade=True)
    with connected(source) as client:
        open_afterwards = set(open_transactions(client.get_open_txns()))
    yield Runs(refused, left_alone, open_txn, open_afterwards, remedied=airflow.run(DATABASE, **ports))
    with connected(target) as client:
        client.drop_database(DATABASE, delete_data=True, cascade=True)


def test_a_transaction_that_never_ends_is_aborted(runs: Runs) -> None:
    drained = runs.refused["drain"]
    assert drained["state"] == "success"
    assert drained["xcom"]["aborted"] == [runs.open_txn]
    assert runs.open_txn not in runs.open_afterwards


def test_a_target_that_is_not_ours_fails_the_task_for_good(runs: Runs) -> None:
    assert {name: runs.refused[name]["state"] for name in TASKS} == {
        "drain": "success",
        "dump": "success",
        "load": "failed",
        "verify": "upstream_failed",
        "compact": "upstream_failed",
    }
    # No retry can mend it, so none is spent.
    assert runs.refused["load"]["tries"] == 1
    assert runs.refused["load"]["error"].startswith("TargetNotOursError: ")
    assert DATABASE in runs.refused["load"]["error"]
    assert runs.left_alone == ["theirs"]


def test_the_run_after_the_remedy_succeeds(runs: Runs) -> None:
    assert {name: runs.remedied[name]["error"] for name in TASKS} == dict.fromkeys(TASKS)
    assert {runs.remedied[name]["state"] for name in TASKS} == {"success"}
    assert runs.remedied["drain"]["xcom"]["transactions"] == []
    assert runs.remedied["load"]["xcom"]["dump"] == runs.remedied["dump"]["xcom"]["dump"]
    (table,) = runs.remedied["verify"]["xcom"]["tables"]
    assert (table["name"], table["source_rows"], table["target_rows"]) == ("lamps", 2, 2)
    assert table["digest_equal"] is True


def test_the_target_is_compacted_and_hive_reads_the_same(
    runs: Runs, target: EmbeddedMetastore, hive_sql_source: HiveSql, hive_sql_target: HiveSql
) -> None:
    states = {
        compaction["partition"]: compaction["state"]
        for compaction in runs.remedied["compact"]["xcom"]["compactions"]
    }
    # One insert and nothing else is nothing to compact.
    assert states == {"coast=north": "refused", "coast=west": "compacted"}
    assert list((target.warehouse / f"{DATABASE}.db" / "lamps" / "coast=west").glob("base_*"))
    assert rows(hive_sql_target) == rows(hive_sql_source)


def rows(sql: HiveSql) -> list[Row]:
    rows = sorted(sql.execute(f"SELECT ROW__ID, * FROM {DATABASE}.lamps"), key=repr)
    assert len(rows) == 2
    return rows


def test_a_metastore_that_does_not_answer_is_asked_again_as_the_retries_say(airflow: Airflow) -> None:
    tasks = airflow.run(DATABASE, source=1, target=1)
    assert {name: tasks[name]["state"] for name in TASKS} == {
        "drain": "failed",
        **dict.fromkeys(TASKS[1:], "upstream_failed"),
    }
    assert tasks["drain"]["tries"] == 3
    assert tasks["drain"]["error"].startswith("MetastoreUnreachableError: ")
    assert "127.0.0.1:1" in tasks["drain"]["error"]
