"""Archives the classes that the embedded servers load: each later start needs a third less processor time.

A JVM maps such an archive (class data sharing, JEP 310) instead of reading, parsing and verifying the classes
of a hundred jars. An archive belongs to one Java runtime, to the locked jars and to our launchers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from airflow_hive_federation.embedded.jars import metastore_jars, sql_jars
from airflow_hive_federation.embedded.jvm import (
    METASTORE_MAIN,
    QUICK_START,
    SQL_MAIN,
    archive_path,
    clean_environment,
    launcher_classes,
    launcher_version,
)
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import EmbeddedError
from airflow_hive_federation.runtime.cache import exclusively, write_atomically
from airflow_hive_federation.runtime.java import Java, find_java

_JARS = {METASTORE_MAIN: metastore_jars, SQL_MAIN: sql_jars}
_TIMEOUT_S = 300
#: The statements load the classes that most sessions need: of DDL, ACID writes, Tez and reads.
_STATEMENTS = (
    "create table t (a int, b string) stored as orc tblproperties ('transactional'='true')",
    "insert into t values (1, 'x'), (2, 'y')",
    "update t set b = 'z' where a = 2",
    "create external table p (a int) partitioned by (d string) stored as parquet",
    "insert into p partition (d = '1') select a from t",
    "select b, count(*) from t join p on t.a = p.a group by b order by b",
    "show partitions p",
)


def make_archives() -> list[Path]:
    """Make the archives if they are missing or outdated, and return them; making them takes a minute.

    Servers that start meanwhile do without: an archive appears when it is complete.

    :raises EmbeddedError: a server or its Java failed; the error has the reason.
    """
    java = find_java()
    paths = {main: archive_path(java, main) for main in _JARS}
    basis = paths[METASTORE_MAIN].with_suffix(".basis")
    # It changes with the Java runtime, the locked jars and the launchers.
    needed = f"{java.executable.resolve().stat().st_mtime_ns} {launcher_version()}".encode()
    with exclusively(basis.with_suffix(".lock")):
        if not all(path.is_file() for path in (basis, *paths.values())) or basis.read_bytes() != needed:
            with tempfile.TemporaryDirectory(dir=basis.parent) as work:
                _run([sys.executable, "-m", __name__], {"JDK_JAVA_OPTIONS": _listing(Path(work))})
                for main, path in paths.items():
                    _archive(java, main, _list_of(main, Path(work))).rename(path)
            # It comes last: archives without it are made again.
            write_atomically(basis, needed)
    return list(paths.values())


def _load_classes() -> None:
    """Use a metastore and Hive's SQL engine once."""
    with EmbeddedMetastore.start("classes") as metastore, HiveSql(metastore) as sql:
        for statement in _STATEMENTS:
            sql.execute(statement)


def _listing(folder: Path) -> str:
    # The JVM replaces %p by its process id. Quotes keep a path with blanks together.
    return f'"-XX:DumpLoadedClassList={folder}/%p.classes"'


def _list_of(main: str, folder: Path) -> Path:
    for path in folder.glob("*.classes"):
        if any(line.split(" ", 1)[0] == main for line in path.read_text("utf-8").splitlines()):
            return path
    raise _failed(f"Java listed no classes of {main}")


def _archive(java: Java, main: str, classes: Path) -> Path:
    made = classes.with_suffix(".jsa")
    jars = _JARS[main](java)
    path = os.pathsep.join(map(str, [launcher_classes(java, jars), *jars]))
    options = [str(java.executable), *QUICK_START, f"-XX:SharedArchiveFile={made}", "-cp", path]
    _run([*options, "-Xshare:dump", f"-XX:SharedClassListFile={classes}"])
    # A damaged archive ends each JVM that uses it.
    _run([*options, "-Xshare:on", "-version"])
    return made


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**clean_environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(f"a step did not end within {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise _failed((done.stdout.strip().splitlines() or ["no output"])[-1])


def _failed(reason: str) -> EmbeddedError:
    return EmbeddedError(
        f"The classes of the embedded servers were not archived: {reason}.",
        remedy="Run `hive-federation metastore prepare` again; without archives, servers only start slower.",
    )


if __name__ == "__main__":
    _load_classes()
