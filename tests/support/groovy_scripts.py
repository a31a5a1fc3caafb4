"""The Groovy scripts beside this file: with Hive's classes, those of the databases' drivers, and ours."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from airflow_hive_federation.embedded.database import KINDS
from airflow_hive_federation.embedded.jars import driver_jars, sql_jars
from airflow_hive_federation.embedded.jvm import SQL_MAIN, clean_environment, java_command, launcher_classes
from airflow_hive_federation.runtime.java import find_java


def run_groovy(script: str, *arguments: str, scratch: Path) -> str:
    """Run a script and return the last word of its output."""
    return groovy_output(script, *arguments, scratch=scratch).split()[-1]


def groovy_output(
    script: str,
    *arguments: str,
    scratch: Path,
    given: str | None = None,
    conf: Sequence[Path] = (),
    timeout_s: float = 280,
) -> str:
    """Run a script and return its output; a script that fails fails the test with its last words.

    :param scratch: directory in which the script runs.
    :param given: the script's standard input.
    :param conf: further directories of its class path.
    """
    java = find_java()
    jars = [*sql_jars(java), *(jar for kind in KINDS for jar in driver_jars(java, kind))]
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(Path(__file__).with_name(script)), *arguments],
        class_path=[launcher_classes(java, jars), *jars, *conf],
        argument_file=scratch / "groovy.args",
        archive_of=SQL_MAIN,
    )
    done = subprocess.run(
        command,
        cwd=scratch,
        env=clean_environment(),
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]
    return done.stdout
