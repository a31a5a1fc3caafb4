"""The Groovy scripts beside this file: with Hive's classes, those of the databases' drivers, and ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

from airflow_hive_federation.embedded.database import KINDS
from airflow_hive_federation.embedded.jars import driver_jars, sql_jars
from airflow_hive_federation.embedded.jvm import java_command, launcher_classes
from airflow_hive_federation.runtime.java import find_java


def run_groovy(script: str, *arguments: str, scratch: Path) -> str:
    """Run a script and return the last word of its output."""
    java = find_java()
    jars = [*sql_jars(java), *(jar for kind in KINDS for jar in driver_jars(java, kind))]
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(Path(__file__).with_name(script)), *arguments],
        class_path=[launcher_classes(java, jars), *jars],
        argument_file=scratch / "groovy.args",
    )
    return subprocess.check_output(command, text=True).split()[-1]
