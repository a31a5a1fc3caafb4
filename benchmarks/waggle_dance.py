"""Waggle Dance, the federating proxy of metastores that remotes come from, in a JVM of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_hive_federation.embedded.jars import fetch
from airflow_hive_federation.embedded.jvm import clean_environment, free_port
from airflow_hive_federation.embedded.lock import Artifact
from airflow_hive_federation.runtime.java import find_java, spark_java_home

PREFIX = "far_"
_JAR = Artifact(
    jar_set="peer",
    group="com.hotels",
    name="waggle-dance-boot",
    version="3.13.3",
    classifier="exec",
    sha256="ff012b25083b5c71009962e2c7f484a99b837f88c142392acfce6dc6f475c54e",
    size_bytes=197494257,
)
_START_S = 120.0
#: Its Spring reaches into these by reflection.
_OPENED = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.reflect", "net", "nio", "io", "text", "time")),
    *(f"java.base/java.util{name}" for name in ("", ".concurrent")),
    "java.base/sun.net.www.protocol.http",
)
_EXCLUDED = "org.springframework.boot.autoconfigure.groovy.template.GroovyTemplateAutoConfiguration"
_SERVER = """\
port: {port}
verbose: false
database-resolution: PREFIXED
"""
_FEDERATION = f"""\
primary-meta-store:
  name: near
  access-control-type: READ_ONLY
  remote-meta-store-uris: {{near}}
federated-meta-stores:
- name: far
  database-prefix: {PREFIX}
  remote-meta-store-uris: {{far}}
"""


@contextmanager
def waggle_dance(near: str, far: str, directory: Path) -> Iterator[tuple[str, int]]:
    """Run it before two metastores, and yield its URI and the id of its process.

    :param near: URI of the primary metastore.
    :param far: URI of the federated one, whose databases get the prefix :data:`PREFIX`.
    :raises RuntimeError: it does not start.
    """
    (jar,) = fetch(find_java(), [_JAR])
    port = free_port()
    server, federation = directory / "waggle-dance-server.yml", directory / "waggle-dance-federation.yml"
    server.write_text(_SERVER.format(port=port), encoding="utf-8")
    federation.write_text(_FEDERATION.format(near=near, far=far), encoding="utf-8")
    command = [
        str(spark_java_home() / "bin" / "java"),
        "-Xmx1g",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        "-jar",
        str(jar),
        f"--server-config={server.as_uri()}",
        f"--federation-config={federation.as_uri()}",
        f"--server.port={free_port()}",
        f"--spring.autoconfigure.exclude={_EXCLUDED}",
    ]
    log = directory / "waggle-dance.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=directory, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        deadline = time.monotonic() + _START_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text(encoding="utf-8", errors="replace")[-3000:])
            time.sleep(0.2)
        yield f"thrift://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
