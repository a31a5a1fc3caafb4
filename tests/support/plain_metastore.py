"""Metastores that the package does not start itself: older ones, and other transports."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from airflow_hive_federation.embedded import jars
from airflow_hive_federation.embedded.configuration import site_xml
from airflow_hive_federation.embedded.jvm import clean_environment, free_port, java_command
from airflow_hive_federation.embedded.lock import Artifact, parse_lock
from airflow_hive_federation.embedded.process import end_server
from airflow_hive_federation.errors import MetastoreUnreachableError
from airflow_hive_federation.metastore import (
    KerberosSettings,
    MetastoreClient,
    MetastoreSettings,
    PlainSettings,
)
from airflow_hive_federation.runtime.java import Java, find_java
from airflow_hive_federation.waiting import PollPolicy, wait_until


def older_settings(home: Path) -> dict[str, str]:
    """Settings of a Hive 2 or 3 metastore on Derby, which makes its own schema."""
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home}/db;create=true",
        "hive.metastore.warehouse.dir": f"file://{home}/warehouse",
        "hive.metastore.schema.verification": "false",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.async.log.enabled": "false",
        "hive.stats.autogather": "false",
    }


def sparks_jars() -> Path:
    """The jars that pyspark carries, a Hive 2.3 metastore among them."""
    return Path(find_spec("pyspark").origin).with_name("jars") / "*"  # type: ignore[union-attr,arg-type]


def fetched(lock: str) -> list[Path]:
    """Jars of tests alone, as lines of a lock, by the package's own resolver."""
    wanted: list[Artifact] = parse_lock(lock)
    return jars.fetch(find_java(), wanted)


@contextmanager
def plain_metastore(
    home: Path,
    class_path: Sequence[Path],
    settings: Mapping[str, str],
    *,
    uri: str = "thrift://127.0.0.1:{}",
    java: Java | None = None,
    properties: Mapping[str, str] | None = None,
    authentication: KerberosSettings | PlainSettings | None = None,
) -> Iterator[str]:
    """Run Hive's own ``HiveMetaStore`` and yield its URI once it answers.

    :param settings: of ``hive-site.xml``, and of ``core-site.xml`` if their names begin with ``hadoop.``.
    :param uri: its URI; ``{}`` stands for its port.
    :param java: the Java that runs it; by default that of the embedded metastore.
    :param properties: of the JVM.
    :param authentication: the authentication that it requires.
    """
    port = free_port()
    hadoop = {name: value for name, value in settings.items() if name.startswith("hadoop.")}
    (home / "core-site.xml").write_text(site_xml(hadoop), encoding="utf-8")
    (home / "hive-site.xml").write_text(site_xml(settings), encoding="utf-8")
    command = java_command(
        java or find_java(),
        "org.apache.hadoop.hive.metastore.HiveMetaStore",
        ["-p", str(port)],
        class_path=[home, *class_path],
        argument_file=home / "java.args",
        properties=properties,
    )
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=clean_environment(), stdout=log, stderr=log)
    try:
        reachable = MetastoreSettings(uris=(uri.format(port),), authentication=authentication)
        policy = PollPolicy(first_s=0.2, factor=1, timeout_s=200)
        with MetastoreClient(reachable) as client:
            ready = wait_until(lambda: process.poll() is not None or _answers(client), policy)
        log_text = (home / "log").read_text(errors="replace")[-3000:]
        assert ready, log_text
        assert process.poll() is None, log_text
        yield reachable.uris[0]
    finally:
        end_server(process, timeout_s=30)


def _answers(client: MetastoreClient) -> bool:
    try:
        return "default" in client.list_databases()
    except MetastoreUnreachableError:
        return False
