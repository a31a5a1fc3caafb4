"""Fetches the locked jars into the per-user cache, once.

Every file is verified against the lock before it is moved to ``jars/``, so that all files there are valid.
Each fetch has a directory of its own in ``incoming/``; the next fetch takes over the finished files of a
killed one. The Ivy processes of a killed fetch may still run: they end when their directory is removed.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.ivy import SETTINGS_VARIABLE, IvyRun, start_ivy
from airflow_hive_federation.embedded.lock import (
    HDFS,
    MARIADB,
    METASTORE,
    POSTGRESQL,
    SCHEMA,
    SQL,
    Artifact,
    locked,
)
from airflow_hive_federation.errors import JarDownloadError
from airflow_hive_federation.progress.quantities import part_of_size, several, size
from airflow_hive_federation.runtime.cache import CACHE_VARIABLE, cache_directory, exclusively
from airflow_hive_federation.runtime.java import Java

LOG = logging.getLogger(__name__)
_IVY_PROCESSES = 3
_POLL_S = 0.2
_LOG_EVERY_S = 5.0
# Seconds without a byte after which the network counts as lost: Ivy itself would wait for ever.
_STALL_TIMEOUT_S = 60.0
_UNREACHABLE = re.compile(
    r"UnknownHost|ConnectException|NoRouteToHost|SocketTimeout|Connection refused|timed out", re.IGNORECASE
)

_DRIVERS = {POSTGRESQL: "postgresql", MARIADB: "mariadb-java-client"}

#: The metastore's jars that HDFS needs in addition to its own: Groovy for our launcher, and logging.
_BESIDE_HDFS = frozenset(
    {
        "commons-logging",
        "groovy-all",
        "log4j-1.2-api",
        "log4j-api",
        "log4j-core",
        "log4j-slf4j-impl",
        "slf4j-api",
    }
)

Advance = Callable[[int], None]


def metastore_jars(java: Java) -> list[Path]:
    """Return the metastore's class path, and fetch the jars that the cache lacks.

    :raises JarDownloadError: if network or disk fail, or a jar differs from the lock.
    """
    return _class_path(fetch(java, locked(METASTORE)))


def sql_jars(java: Java) -> list[Path]:
    """Return the SQL engine's class path (the metastore's and more), and fetch jars that the cache lacks.

    :raises JarDownloadError: if network or disk fail, or a jar differs from the lock.
    """
    return _class_path(fetch(java, locked(METASTORE, SQL)))


def hdfs_jars(java: Java) -> list[Path]:
    """Return the class path of a NameNode and its DataNodes, and fetch the jars that the cache lacks.

    :raises JarDownloadError: if network or disk fail, or a jar differs from the lock.
    """
    beside = [artifact for artifact in locked(METASTORE) if artifact.name in _BESIDE_HDFS]
    return fetch(java, [*locked(HDFS), *beside])


def driver_jars(java: Java, kind: str) -> list[Path]:
    """Return the JDBC driver of a database, and fetch it if the cache lacks it; Derby has none of its own.

    :param kind: ``derby``, ``postgresql`` or ``mariadb``.
    :raises JarDownloadError: if it could not be fetched.
    """
    return fetch(java, [artifact for artifact in locked(kind) if artifact.name == _DRIVERS.get(kind)])


def _class_path(jars: Sequence[Path]) -> list[Path]:
    # The manifest of cron-utils names slf4j-api. A JVM uses an archive of classes only if the jars that
    # manifests name come before those that name them.
    return sorted(jars, key=lambda jar: not jar.name.startswith("slf4j-api-"))


def schema_archive(java: Java) -> Path:
    """Return the archive with Hive's schemas, and fetch it if the cache lacks it.

    :raises JarDownloadError: if network or disk fail, or the archive differs from the lock.
    """
    return fetch(java, locked(SCHEMA))[0]


def fetch(java: Java, artifacts: Sequence[Artifact]) -> list[Path]:
    """Return the artifacts' paths in the cache, in order, and fetch missing or damaged ones.

    :raises JarDownloadError: if an artifact cannot be fetched; the error has the artifact and the reason.
    """
    folder = cache_directory() / "jars"
    if not all(_is_cached(artifact, folder) for artifact in artifacts):
        with exclusively(cache_directory() / "jars.lock"):
            _fetch_missing(java, artifacts, folder)
    return [folder / artifact.file_name for artifact in artifacts]


def shares(artifacts: Sequence[Artifact], count: int) -> list[list[Artifact]]:
    """Distribute artifacts, biggest first, over ``count`` downloaders by their bytes; omit empty shares."""
    dealt: list[list[Artifact]] = [[] for _ in range(count)]
    loads = [0] * count
    for artifact in sorted(artifacts, key=lambda a: (-a.size_bytes, a.file_name)):
        lightest = loads.index(min(loads))
        dealt[lightest].append(artifact)
        loads[lightest] += artifact.size_bytes + 200_000  # a request takes about as long as 200 kB
    return [share for share in dealt if share]


def failure(missing: Sequence[Artifact], wrong: Sequence[Artifact], log_text: str) -> JarDownloadError:
    """Return the error with the artifact, the reason and the remedy.

    :param missing: artifacts that were not downloaded.
    :param wrong: artifacts that differ from the lock.
    :param log_text: Ivy's log.
    """
    names = [artifact.coordinates for artifact in [*wrong, *missing]]
    named = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    if wrong:
        return JarDownloadError(
            f"the download of {named} differs from the lock in size or SHA-256.",
            remedy="Find out which server answers as Maven Central, or check the mirror in "
            f"{SETTINGS_VARIABLE}.",
            artifacts=names,
        )
    lines = [line.strip() for line in log_text.splitlines()]
    reason = next((line for line in lines if "Server access error" in line or "not found" in line), "")
    reason = reason or next((line for line in reversed(lines) if line), "Ivy's log is empty")
    return JarDownloadError(f"could not fetch {named}: {reason}", remedy=_remedy(log_text), artifacts=names)


def _remedy(log_text: str) -> str:
    if _UNREACHABLE.search(log_text):
        return (
            "Connect this machine to the network once (a second start needs none), set HTTPS_PROXY, or name "
            f"a mirror by an Ivy settings file in {SETTINGS_VARIABLE}. Finished downloads are kept."
        )
    if "No space left" in log_text or "Permission denied" in log_text:
        return (
            f"Free space in {cache_directory()} and allow writing there, or name another directory in "
            f"{CACHE_VARIABLE}. Finished downloads are kept."
        )
    if "PKIX path" in log_text or "SSLHandshake" in log_text:
        return "Name the PEM bundle with your network's certificate authority in SSL_CERT_FILE."
    return f"Run it again, or name a mirror by an Ivy settings file in {SETTINGS_VARIABLE}."


def _is_cached(artifact: Artifact, folder: Path) -> bool:
    # The digest was checked before the file got its name. The size is checked at every start, because a full
    # disk or a crash changes it; digesting 170 MB at every start would take half a second.
    path = folder / artifact.file_name
    return path.is_file() and path.stat().st_size == artifact.size_bytes


def _fetch_missing(java: Java, artifacts: Sequence[Artifact], folder: Path) -> None:
    incoming = cache_directory() / "incoming"
    missing = [artifact for artifact in artifacts if not _is_cached(artifact, folder)]
    for leftover in sorted(incoming.glob("*")):
        missing = [artifact for artifact in missing if not _take_over(artifact, leftover, folder)]
        shutil.rmtree(leftover, ignore_errors=True)
    if not missing:
        return
    total_bytes = sum(artifact.size_bytes for artifact in missing)
    LOG.info("Fetching %s (%s) from Maven Central, once", several(len(missing), "jar"), size(total_bytes))
    try:
        incoming.mkdir(parents=True, exist_ok=True)
        arrived = Path(tempfile.mkdtemp(dir=incoming))
        with _progress(total_bytes) as advance:
            log_text = _run_ivys(java, missing, arrived, advance)
        wrong = [artifact for artifact in missing if _is_wrong(artifact, arrived)]
        failed = [artifact for artifact in missing if not _take_over(artifact, arrived, folder)]
        shutil.rmtree(arrived, ignore_errors=True)
    except OSError as error:
        raise JarDownloadError(
            f"could not write the jars into {folder}: {error}",
            remedy=f"Give {cache_directory()} room and rights, or name another in {CACHE_VARIABLE}.",
        ) from error
    if failed:
        raise failure([artifact for artifact in failed if artifact not in wrong], wrong, log_text)


def _is_wrong(artifact: Artifact, arrived: Path) -> bool:
    path = arrived / artifact.file_name
    return path.is_file() and not artifact.matches(path)


def _take_over(artifact: Artifact, arrived: Path, folder: Path) -> bool:
    """Move a fetched file into the cache if it matches the lock; delete it otherwise."""
    path = arrived / artifact.file_name
    if not path.is_file():
        return False
    if _is_wrong(artifact, arrived):
        LOG.warning("%s (%d bytes) differs from the lock and was deleted", path, path.stat().st_size)
        path.unlink()
        return False
    folder.mkdir(parents=True, exist_ok=True)
    path.replace(folder / artifact.file_name)
    return True


def _run_ivys(java: Java, missing: Sequence[Artifact], arrived: Path, advance: Advance) -> str:
    """Run Ivy processes in parallel, and return their logs."""
    runs: list[IvyRun] = []
    try:
        for number, share in enumerate(shares(missing, _IVY_PROCESSES)):
            runs.append(start_ivy(java, share, destination=arrived, work=arrived / f".work-{number}"))
        _watch(runs, missing, arrived, advance)
    finally:
        for run in runs:
            if run.process.poll() is None:
                run.process.kill()
            run.process.wait()
    return "\n".join(run.log_path.read_text("utf-8", "replace") for run in runs)


def _watch(runs: Sequence[IvyRun], missing: Sequence[Artifact], arrived: Path, advance: Advance) -> None:
    """Report progress until all processes have ended, or none has received a byte for too long."""
    last_bytes, last_change = -1, time.monotonic()
    while any(run.process.poll() is None for run in runs):
        time.sleep(_POLL_S)
        received = _received_bytes(missing, arrived)
        advance(received)
        if received != last_bytes:
            last_bytes, last_change = received, time.monotonic()
        elif time.monotonic() - last_change > _STALL_TIMEOUT_S:
            for run in runs:
                with run.log_path.open("a") as log:
                    log.write(f"\nServer access error: timed out, no byte for {_STALL_TIMEOUT_S:.0f} s\n")
            return
    advance(_received_bytes(missing, arrived))


def _received_bytes(missing: Sequence[Artifact], arrived: Path) -> int:
    total = 0
    for artifact in missing:
        for path in (arrived / artifact.file_name, arrived / f"{artifact.file_name}.part"):
            try:
                total += path.stat().st_size
                break
            except FileNotFoundError:
                continue
    return total


@contextmanager
def _progress(total_bytes: int) -> Iterator[Advance]:
    """Yield a function that shows the bytes received: as a bar on a terminal, as log lines otherwise."""
    if sys.stderr.isatty():
        with _bar(total_bytes) as advance:
            yield advance
        return
    logged_at = time.monotonic()

    def advance_log(received_bytes: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= _LOG_EVERY_S:
            logged_at = time.monotonic()
            LOG.info("Fetched %s", part_of_size(received_bytes, total_bytes))

    yield advance_log


@contextmanager
def _bar(total_bytes: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("Hive's jars", total=total_bytes)
        yield lambda received_bytes: progress.update(task, completed=received_bytes)
