"""Reads Hive's schema scripts; builds the schema in Derby once per cache, and copies it per metastore."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from airflow_hive_federation.embedded.jars import metastore_jars, schema_archive
from airflow_hive_federation.embedded.jvm import (
    LAUNCHER,
    SCHEMA_MAIN,
    clean_environment,
    java_command,
    launcher_classes,
)
from airflow_hive_federation.embedded.lock import lock_text
from airflow_hive_federation.errors import MetastoreStartError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively, short_digest
from airflow_hive_federation.runtime.java import Java

_BASE_SCRIPT = "hive-schema-4.0.0.derby.sql"
_STATEMENT_END = re.compile(r";\s*(?:\n|$)")
_DIFFERENCE = LAUNCHER / "schema-4.2.0.derby.sql"
_BUILD_TIMEOUT_S = 120


def put_database(java: Java, database: Path) -> None:
    """Create an empty metastore database at ``database``, unless one exists; only its owner may read it.

    :raises MetastoreStartError: if Derby refuses the schema.
    :raises JarDownloadError: if Derby or the schema could not be fetched.
    """
    if database.is_dir():
        # Earlier versions created databases that everybody could read.
        database.chmod(0o700)
        return
    partial = database.with_name(f"{database.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(_template(java), partial)
    partial.chmod(0o700)
    partial.rename(database)


def schema_script(java: Java, name: str) -> str:
    """Return a script of Hive's schema.

    :raises JarDownloadError: if the archive of the scripts could not be fetched.
    :raises MetastoreStartError: if it lacks the script.
    """
    return _script(schema_archive(java), name).decode()


def statements(script: str) -> list[str]:
    """Return the statements of a script, without comments and semicolons."""
    lines = (line for line in script.splitlines() if not line.lstrip().startswith("--"))
    return [sql.strip() for sql in _STATEMENT_END.split("\n".join(lines)) if sql.strip()]


def _template(java: Java) -> Path:
    version = short_digest(_DIFFERENCE.read_bytes(), lock_text().encode())
    template = cache_directory() / "schema" / version
    if not template.is_dir():
        with exclusively(cache_directory() / "schema.lock"):
            if not template.is_dir():
                _build(java, template)
    return template


def _build(java: Java, template: Path) -> None:
    jars, archive = metastore_jars(java), schema_archive(java)
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent) as folder:
        database, base = Path(folder, "metastore_db"), Path(folder, _BASE_SCRIPT)
        base.write_bytes(_script(archive, _BASE_SCRIPT))
        command = java_command(
            java,
            SCHEMA_MAIN,
            [str(database), str(base), str(_DIFFERENCE)],
            class_path=[launcher_classes(java, jars), *jars],
            argument_file=Path(folder, "java.args"),
            # No other process uses the new database yet, so that Derby need not sync it to the disk.
            properties={"derby.system.durability": "test", "derby.stream.error.file": f"{folder}/derby.log"},
        )
        done = subprocess.run(
            command,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            lines = (done.stderr + done.stdout).strip().splitlines() or ["no output"]
            reason = next((line for line in lines if line.startswith("FATAL")), lines[-1])
            raise MetastoreStartError(
                f"Derby could not build the metastore's schema: {reason}",
                remedy=f"Remove {cache_directory()} and start again.",
                log_path="",
            )
        database.rename(template)


def _script(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.name.endswith(f"/{name}"):
                extracted = packed.extractfile(member)
                if extracted is not None:
                    return extracted.read()
    raise MetastoreStartError(
        f"{archive} lacks {name}.", remedy=f"Remove {archive} and start again.", log_path=""
    )
