"""The tutorial, ``docs/first-replication.md``, run to the letter: each block of commands in a shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.runtime.cache import DATA_VARIABLE
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.documents import BLOCKS, Block
from tests.support.processes import is_alive

pytestmark = pytest.mark.slow

TUTORIAL = [block for block in BLOCKS if block.document == "docs/first-replication.md"]
#: The first block installs the package, as ``make release-check`` does; the last one stops both metastores.
_INSTALL, *SHELL, STOP = (block for block in TUTORIAL if block.language == "sh")
#: Only other replications have these: groups, tables with partitions, HDFS, verifications by Spark's job, and
#: sources that make tables or partitions anew.
ELSEWHERE = {
    "group/",
    "load/made_room.jsonl",
    "partition_states/<table>.jsonl",
    "snapshot_roots.jsonl",
    "verify/task-<digest>/",
}
SOON = PollPolicy(first_s=0.05, timeout_s=60)


@dataclass(frozen=True)
class Newcomer:
    """A directory and an environment in which nothing of the package exists yet."""

    directory: Path

    def run(self, block: Block) -> tuple[str, str]:
        """Run the commands of a block as one script; return what they print on both outputs."""
        mine = {
            name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "HIVE_"))
        }
        if cache := os.environ.get("AIRFLOW_HIVE_FEDERATION_CACHE"):
            mine["AIRFLOW_HIVE_FEDERATION_CACHE"] = cache
        done = subprocess.run(
            ["bash", "-e", "-c", block.text],
            cwd=self.directory,
            env={
                **mine,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "AIRFLOW_HOME": str(self.directory / "airflow"),
                DATA_VARIABLE: str(self.directory / "data"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout, done.stderr

    def data_of(self, name: str) -> Path:
        return self.directory / "data" / "metastores" / name


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    return Newcomer(tmp_path_factory.mktemp("newcomer"))


@pytest.fixture(scope="module")
def printed(newcomer: Newcomer) -> Iterator[list[tuple[str, str]]]:
    try:
        yield [newcomer.run(block) for block in SHELL]
    finally:
        # Those that still run. A name alone could mean a metastore of other tests.
        for name in ("source", "target"):
            main(["metastore", "stop", name, "--directory", str(newcomer.data_of(name))])


def test_each_step_prints_what_the_tutorial_shows(printed: list[tuple[str, str]]) -> None:
    _, _, _, (replicated, progress), (in_airflow, _) = printed
    (table,) = (block.text for block in TUTORIAL if block.language == "text")
    assert replicated.endswith(table)
    assert "sales: 1 table compared, 0 differences" in progress
    assert "sales is published: an increment." in in_airflow
    assert "sales: 1 table compared, 0 differences" in in_airflow
    assert "behind by 0 events" in in_airflow


def test_the_files_are_those_that_the_tutorial_lists(
    printed: list[tuple[str, str]], newcomer: Newcomer
) -> None:
    made = newcomer.directory / "shop"
    assert {"policy.toml", "connections.json", "dags/replicate_sales.py"} <= {
        str(path.relative_to(made)) for path in made.rglob("*.*")
    }
    assert set(json.loads((made / "connections.json").read_text())) == {"sales_source", "sales_target"}


def test_the_files_of_the_dumps_are_those_that_the_pages_list(
    printed: list[tuple[str, str]], newcomer: Newcomer
) -> None:
    """Of a bootstrap and an increment, with their verifications; what only other databases have is unseen."""
    (tree,) = (block.text for block in BLOCKS if block.language == "text" and "_finished_dump " in block.text)
    names = re.findall(r"^    (\S+)  ", tree, re.MULTILINE)
    shapes = {name: name.replace(".", r"\.") + (".+" if name.endswith("/") else "") for name in names}
    patterns = {name: re.compile(re.sub(r"<\w+>", "[^/]+", shape)) for name, shape in shapes.items()}
    dumps = [path.parent for path in newcomer.directory.rglob("_finished_dump")]
    assert len(dumps) == 2
    files = {str(path.relative_to(dump)) for dump in dumps for path in dump.rglob("*") if path.is_file()}
    assert {file for file in files if not any(one.fullmatch(file) for one in patterns.values())} == set()
    unseen = {name for name, one in patterns.items() if not any(map(one.fullmatch, files))}
    assert unseen == ELSEWHERE


def test_the_command_line_starts_lists_and_stops(
    printed: list[tuple[str, str]],
    newcomer: Newcomer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start of a metastore that runs changes nothing; the tutorial's last step ends both."""
    monkeypatch.setenv(DATA_VARIABLE, str(newcomer.directory / "data"))
    again = ["metastore", "start", "target"]
    assert main([*again, "--json"]) == 0
    started = json.loads(capsys.readouterr().out)
    with MetastoreClient(MetastoreSettings(uris=(started["uri"],))) as client:
        assert sorted(client.list_databases()) == ["default", "sales"]
    assert main([*again, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == started
    assert main([*again, "--port", "1"]) == 1
    assert f"on port {started['uri'].rpartition(':')[2]}, not 1" in capsys.readouterr().err
    script = "USE sales; SHOW TABLES; DESCRIBE orders; SELECT * FROM orders; SELECT * FROM u"
    assert main(["metastore", "sql", "target", script]) == 1
    shown = capsys.readouterr()
    rows = ("│ orders ", "│ id       │ int ", "┃ orders.id ┃ orders.fruit ┃", "│ 3         │ medlar ")
    assert [row in shown.out for row in rows] == [True] * 4, shown.out
    assert "HiveSqlError" in shown.err
    assert "Table not found 'u'" in shown.err
    assert main(["metastore", "list", "--json"]) == 0
    assert started in json.loads(capsys.readouterr().out)
    stopped, _ = newcomer.run(STOP)
    assert stopped.count("is stopped") == 2
    # The command waits for the end of the lock, which precedes that of the process.
    assert wait_until(lambda: not is_alive(started["pid"]), SOON)
    directory = ["--directory", str(newcomer.data_of("target"))]
    assert main(["metastore", "stop", "target", *directory]) == 1
    assert "no metastore named 'target' is running" in capsys.readouterr().err
