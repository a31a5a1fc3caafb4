"""Compiles our Groovy launchers once, and builds the command lines of our JVMs."""

from __future__ import annotations

import functools
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from airflow_hive_federation.embedded.lock import lock_text
from airflow_hive_federation.errors import EmbeddedError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively, short_digest, write_atomically
from airflow_hive_federation.runtime.environment import without_secrets
from airflow_hive_federation.runtime.java import Java

LAUNCHER = Path(__file__).with_name("launcher")
METASTORE_MAIN = "RunMetastore"
SQL_MAIN = "RunSql"
SCHEMA_MAIN = "BuildSchema"
HDFS_MAIN = "RunHdfs"

# Packages that Hive, Hadoop, DataNucleus and Kryo access by reflection.
_OPENED = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.reflect", "io", "net", "nio", "time", "text")),
    *(f"java.base/java.util{name}" for name in ("", ".concurrent", ".concurrent.atomic", ".regex")),
    *(f"java.base/sun.{name}" for name in ("nio.ch", "nio.cs", "security.action")),
    "java.sql/java.sql",
)
# For short-lived JVMs, C1 and the serial collector start fastest and leave the cores to other processes.
QUICK_START = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # By default, a full collection of garbage comes before each growth of the space for classes.
    "-XX:MetaspaceSize=256m",
    "-Xms384m",
    "-Xmn160m",
)
_COMPILE_TIMEOUT_S = 120
#: Ports from this one on belong to few programs by custom.
_FIRST_OWN_PORT = 20_000
_PORTS_TRIED = 50
_GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def java_command(
    java: Java,
    main: str,
    arguments: Sequence[str],
    *,
    class_path: Sequence[Path],
    argument_file: Path,
    heap: str = "512m",
    properties: Mapping[str, str] | None = None,
    archive_of: str | None = None,
) -> list[str]:
    """Return the command that runs ``main``, and write its flags into ``argument_file``.

    On the command line, a class path of a hundred jars would make ``ps`` unreadable. The JVM's temporary
    files lie beside that file, because Hive, Hadoop and Snappy leave theirs when a process is killed.

    :param class_path: jars before directories, because a JVM shares the classes of a path only up to its
        first directory.

    :param heap: the JVM's ``-Xmx``.
    :param archive_of: the main class whose archive of classes the JVM uses; by default ``main``. The class
        path begins as that one's does.
    """
    temporary = argument_file.absolute().parent / "tmp"
    temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = [f"-Xmx{heap}", *QUICK_START, "-Djava.net.preferIPv4Stack=true", f"-Djava.io.tmpdir={temporary}"]
    flags += archive_flags(java, archive_of or main)
    flags += [f"-Dlog4j.configurationFile={LAUNCHER / 'log4j2.properties'}"]
    flags += [f"-D{name}={value}" for name, value in (properties or {}).items()]
    flags += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    flags += ["-cp", os.pathsep.join(str(path) for path in class_path)]
    write_atomically(argument_file, "\n".join(_quoted(flag) for flag in flags).encode())
    return [str(java.executable), f"@{argument_file}", main, *arguments]


@functools.cache
def launcher_version() -> str:
    """Return a digest of the launchers and of the jars with which they run."""
    return short_digest(lock_text().encode(), *(source.read_bytes() for source in _sources()))


def archive_path(java: Java, main: str) -> Path:
    """Return the path of the archive of the classes that ``main`` loads; the file may be missing."""
    return (
        cache_directory() / "classes" / f"{main}-{short_digest(str(java.executable.resolve()).encode())}.jsa"
    )


def archive_flags(java: Java, main: str) -> list[str]:
    """Return the flags with which a JVM reads its classes from an archive, if that exists.

    Loading and verifying its classes takes half of the processor time of a server's start. A JVM ignores the
    archive of another Java release, and one whose jars are not the first ones of its class path.
    """
    archive = archive_path(java, main)
    # Unified logging writes to standard output, which belongs to the answers of the SQL engine.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.is_file() else []


def launcher_classes(java: Java, jars: Sequence[Path]) -> Path:
    """Return the jar of our compiled launchers; compiling takes a JVM one second, once per cache.

    They are compiled because Hadoop finds our file system by its class name, and some of Hive's class loaders
    do not use the class loader of a Groovy script. They are in a jar because a JVM shares no classes of a
    directory.

    :raises EmbeddedError: if they do not compile against the jars.
    """
    classes = cache_directory() / "launcher" / f"{launcher_version()}.jar"
    if not classes.is_file():
        with exclusively(cache_directory() / "launcher.lock"):
            if not classes.is_file():
                _compile(java, jars, _sources(), classes)
    return classes


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago, for servers that cannot choose one.

    If possible, the port is none of those that the system itself gives to programs: one of them might become
    another program's before the server listens, which takes a JVM seconds.
    """
    own = range(_FIRST_OWN_PORT, _first_given_port())
    for port in random.SystemRandom().sample(own, min(len(own), _PORTS_TRIED)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    with socket.create_server(("127.0.0.1", 0)) as server:
        given: int = server.getsockname()[1]
        return given


def _first_given_port() -> int:
    """Return the first of the ports that the system gives to programs."""
    try:
        return int(_GIVEN_PORTS.read_text(encoding="ascii").split()[0])
    except OSError:
        # The standard's (RFC 6335), where no file names them.
        return 49_152


def clean_environment() -> dict[str, str]:
    """Return this process' environment without secrets and without configurations of Hive and Hadoop."""
    return {
        name: value
        for name, value in without_secrets().items()
        if not name.startswith(("HADOOP_", "HIVE_", "TEZ_", "YARN_")) and name != "CLASSPATH"
    }


def _sources() -> list[Path]:
    return sorted(LAUNCHER.glob("*.groovy"))


def _compile(java: Java, jars: Sequence[Path], sources: Sequence[Path], classes: Path) -> None:
    classes.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=classes.parent))
    try:
        command = java_command(
            java,
            "org.codehaus.groovy.tools.FileSystemCompiler",
            ["-d", str(partial / "classes"), *(str(source) for source in sources)],
            class_path=jars,
            argument_file=partial / "java.args",
        )
        (partial / "classes").mkdir()
        done = subprocess.run(
            command,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise EmbeddedError(
                f"the launchers of the embedded metastore do not compile: {done.stderr or done.stdout}",
                remedy=f"Remove {cache_directory()} and start again.",
            )
        packed = shutil.make_archive(str(partial / "packed"), "zip", root_dir=partial / "classes")
        Path(packed).rename(classes)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _quoted(flag: str) -> str:
    # In Java's argument files, double quotes group and backslashes escape.
    escaped = flag.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
