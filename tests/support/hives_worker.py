"""Hive's own compactor on an embedded metastore, whose SQL engine has run before."""

from __future__ import annotations

import subprocess
from pathlib import Path

from airflow_hive_federation.embedded.jars import sql_jars
from airflow_hive_federation.embedded.jvm import clean_environment, java_command, launcher_classes
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.runtime.java import find_java

WORKER = Path(__file__).with_name("hives_worker.groovy")


def hives_worker(source: EmbeddedMetastore) -> None:
    """Serve the queue by Hive's own worker until it is empty."""
    java = find_java()
    jars = sql_jars(java)
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(WORKER), "240"],
        class_path=[source.directory / "sql-conf", launcher_classes(java, jars), *jars],
        argument_file=source.directory / "compaction.args",
    )
    done = subprocess.run(
        command,
        check=False,
        cwd=source.directory,
        env=clean_environment(),
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr[-5_000:]
