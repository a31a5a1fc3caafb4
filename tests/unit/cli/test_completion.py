"""Shells complete commands, options and choices by argcomplete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_commands_options_and_choices(tmp_path: Path) -> None:
    answers = [
        completions(line, tmp_path / "answer")
        for line in ("re", "ingest a.b x --for", "ingest a.b x --format ")
    ]
    assert answers == [["replicate", "remote"], ["--format"], ["csv", "json", "regex", "parquet"]]


def completions(line: str, answer: Path) -> list[str]:
    whole = f"hive-federation {line}"
    environment = {
        **os.environ,
        "COMP_LINE": whole,
        "COMP_POINT": str(len(whole)),
        "COMP_TYPE": "9",
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
    }
    code = "from airflow_hive_federation.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    return answer.read_text(encoding="utf-8").split("\n")
