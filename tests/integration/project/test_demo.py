"""``hive-federation demo`` as a newcomer runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import BLOCKS

COMMAND = [str(Path(sys.executable).parent / "hive-federation"), "demo"]
#: Flights that left: 336,776 scheduled ones without the 8,255 that were cancelled.
FLIGHTS = 328_521


@pytest.mark.slow
def test_the_demo_replicates_and_verifies(tmp_path: Path) -> None:
    # Settings of another Airflow must not matter.
    environment = {**os.environ, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nowhere/airflow.db"}
    done = subprocess.run(
        [*COMMAND, "--json", "--directory", str(tmp_path / "demo")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result) == {"tables", "seconds"}
    assert result["seconds"] > 0
    rows = {table["name"]: (table["source_rows"], table["target_rows"]) for table in result["tables"]}
    assert rows == {
        "flights": (FLIGHTS, FLIGHTS),
        "airlines": (16, 16),
        "weather": (26_115, 26_115),
        "delays": (None, None),
    }
    assert all(table["digest_equal"] is True for table in result["tables"])
    # It waited for the transaction left open, deferred.
    for line in (
        "; 1 transaction to wait for: ",
        "flights: 1 transaction still open",
        "files, 5.8 of 5.8 MB",
        "deferred",
        "is published at event",
        "4 tables compared",
    ):
        assert line in done.stderr
    shown, *tables = printed_in_the_readme()
    assert [line for line in shown if line not in {masked(line) for line in done.stderr.splitlines()}] == []
    # The tables of the first cycle.
    documented = re.findall(r"│ (\w+) .*│ +([\d,]*) │ +([\d,]*) │ \w* +│\n", tables[0])
    assert {name: tuple(numbers) for name, *numbers in documented} == {
        name: tuple("" if count is None else f"{count:,}" for count in counts)
        for name, counts in rows.items()
    }
    assert not any("\x1b" in text or "\r" in text for text in (done.stdout, done.stderr))


def printed_in_the_readme() -> tuple[list[str], str]:
    """The lines of the progress, masked, and the tables that follow the first cycle's."""
    (block,) = (block for block in BLOCKS if (block.document, block.language) == ("README.md", "text"))
    progress, _, tables = block.text.partition("Done\n")
    return [masked(line) for line in progress.splitlines()[:-1]], tables.partition("\n\n")[0]


def masked(line: str) -> str:
    """Leave out numbers, units and times, which differ between machines."""
    return (
        re.sub(r"in [\d.]+ (?:s|min)$|\d[\d.,]*(?: [kMG]?B| bytes)?(?:/s)?", "#", line)
        .replace("[ ", "[")
        .strip()
    )


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    done = subprocess.run(
        [*COMMAND, "--directory", str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("hive-federation demo: ")
    assert "is not empty" in done.stderr
    assert len(done.stderr.splitlines()) == 1
