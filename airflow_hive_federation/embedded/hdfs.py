"""Runs a real HDFS, and a real YARN, on this machine: the servers of Hadoop's own minicluster, in one JVM."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from airflow_hive_federation.embedded.configuration import (
    core_site_xml,
    hdfs_settings,
    shared_settings,
    site_xml,
    yarn_client_settings,
    yarn_settings,
)
from airflow_hive_federation.embedded.failed_starts import leaving_nothing
from airflow_hive_federation.embedded.jars import hdfs_jars, metastore_jars
from airflow_hive_federation.embedded.jvm import HDFS_MAIN, java_command, launcher_classes
from airflow_hive_federation.embedded.process import end_server, start_server
from airflow_hive_federation.errors import EmbeddedError
from airflow_hive_federation.runtime.cache import write_atomically
from airflow_hive_federation.runtime.java import find_java

_START_TIMEOUT_S = 120.0
_COMMAND_TIMEOUT_S = 60.0
_LOCK = "hdfs.lock"
_LOG = "hdfs.log"
_ANNOUNCEMENT = "hdfs.json"


@dataclass(frozen=True, kw_only=True)
class _Running:
    port: int
    http_port: int
    pid: int
    yarn: dict[str, str] = field(default_factory=dict)


class EmbeddedHdfs:
    """An HDFS with one NameNode and two DataNodes, on free ports of 127.0.0.1.

    Permissions and access lists are on; its superuser is the user of this process. It ends with this process,
    even if that is killed. As a context manager it stops at the end::

        with EmbeddedHdfs.start() as hdfs:
            settings = settings_on_hdfs(f"{hdfs.uri}/source")
            metastore = EmbeddedMetastore.start("source", settings=settings)
    """

    def __init__(
        self,
        running: _Running,
        process: subprocess.Popen[bytes],
        directory: Path,
        settings: Mapping[str, str],
        *,
        delete: bool,
    ) -> None:
        self._running = running
        self._process = process
        self._directory = directory
        self._settings = settings
        self._delete = delete
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        *,
        directory: Path | None = None,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        yarn: bool = False,
    ) -> EmbeddedHdfs:
        """Start an HDFS and return when it answers (6 to 20 s; the very first start also fetches jars).

        :param directory: its directory, created if missing; an existing HDFS in it continues. By default a
            temporary directory, which is removed when the HDFS stops.
        :param port: the NameNode's port; 0 takes a free one.
        :param settings: Hadoop settings that replace ours, those of Kerberos for instance.
        :param yarn: also start a ResourceManager and a NodeManager with 4 GB for containers.
        :raises EmbeddedError: if the launchers do not compile against the jars.
        :raises JavaNotFoundError: if no Java runtime fits.
        :raises JarDownloadError: if the jars could not be fetched.
        :raises MetastoreStartError: if it did not start; the error has the most informative line of its log,
            which is kept in ``failed-starts`` of the cache if the directory was a temporary one.
        """
        temporary = directory is None
        home = Path(tempfile.mkdtemp(prefix="hdfs-")) if directory is None else directory.absolute()
        with leaving_nothing(home, "hdfs", remove=True) if temporary else nullcontext():
            running, process = _start(home, port, settings or {}, yarn=yarn)
        return cls(running, process, home, dict(settings or {}), delete=temporary)

    @property
    def uri(self) -> str:
        """Return ``hdfs://127.0.0.1:PORT``."""
        return f"hdfs://127.0.0.1:{self._running.port}"

    @property
    def web_uri(self) -> str:
        """Return ``http://127.0.0.1:PORT`` of the NameNode, which serves WebHDFS."""
        return f"http://127.0.0.1:{self._running.http_port}"

    @property
    def resource_manager_uri(self) -> str:
        """Return ``http://localhost:PORT`` of the ResourceManager.

        :raises EmbeddedError: it was started without YARN.
        """
        return f"http://{self._yarn['yarn.resourcemanager.webapp.address']}"

    @property
    def configuration(self) -> Path:
        """Return the directory with the configuration of YARN's clients, for ``HADOOP_CONF_DIR``.

        :raises EmbeddedError: it was started without YARN.
        """
        folder = self._directory / "client"
        folder.mkdir(exist_ok=True)
        shared = shared_settings(self._settings)
        core = site_xml({"fs.defaultFS": self.uri, **shared})
        write_atomically(folder / "core-site.xml", core.encode())
        write_atomically(folder / "yarn-site.xml", site_xml(yarn_client_settings(self._yarn)).encode())
        return folder

    @property
    def _yarn(self) -> dict[str, str]:
        if not self._running.yarn:
            raise EmbeddedError("This HDFS has no YARN.", remedy="Start it with yarn=True.")
        return self._running.yarn

    @property
    def pid(self) -> int:
        """Return the process id of the JVM."""
        return self._running.pid

    @property
    def directory(self) -> Path:
        """Return the directory of its blocks, its names and its log."""
        return self._directory

    @property
    def log_path(self) -> Path:
        """Return the path of the HDFS's log."""
        return self._directory / _LOG

    def shell(self, *arguments: str) -> str:
        """Run a command of ``hdfs dfs`` as the superuser, and return its output.

        :raises EmbeddedError: if the command failed.
        """
        return self._run("dfs", arguments)

    def admin(self, *arguments: str) -> str:
        """Run a command of ``hdfs dfsadmin`` as the superuser, and return its output.

        :raises EmbeddedError: if the command failed.
        """
        return self._run("dfsadmin", arguments)

    def crypto(self, *arguments: str) -> str:
        """Run a command of ``hdfs crypto`` as the superuser, and return its output.

        It makes encryption zones, if a setting names a key server (``hadoop.security.key.provider.path``).

        :raises EmbeddedError: if the command failed.
        """
        return self._run("crypto", arguments)

    def stop(self) -> None:
        """Stop the HDFS, and delete its temporary directory; a second call does nothing."""
        end_server(self._process)
        if self._delete:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, tool: str, arguments: tuple[str, ...]) -> str:
        command = " ".join(("hdfs", tool, *arguments))
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or stdin.closed:
            raise EmbeddedError(f"{command} cannot run: this HDFS has been stopped.")
        with self._lock:
            request = json.dumps({"tool": tool, "arguments": list(arguments)})
            try:
                stdin.write(request.encode() + b"\n")
                stdin.flush()
            except BrokenPipeError as error:
                raise EmbeddedError(f"{command}: HDFS has ended.", remedy=f"See {self.log_path}.") from error
            if not select.select([stdout], [], [], _COMMAND_TIMEOUT_S)[0]:
                # A later answer would be taken for that of another command.
                self.stop()
                raise EmbeddedError(
                    f"{command} did not end within {_COMMAND_TIMEOUT_S:.0f} s.",
                    remedy=f"See {self.log_path}.",
                )
            line = stdout.readline()
        if not line:
            raise EmbeddedError(f"{command}: HDFS has ended.", remedy=f"See {self.log_path}.")
        answer: dict[str, Any] = json.loads(line)
        if answer["code"] != 0:
            raise EmbeddedError(f"{command} failed: {answer['text'].strip()}")
        return str(answer["text"])


def _start(
    home: Path, port: int, settings: Mapping[str, str], *, yarn: bool
) -> tuple[_Running, subprocess.Popen[bytes]]:
    java = find_java()
    jars = hdfs_jars(java)
    classes = launcher_classes(java, metastore_jars(java))
    (home / "conf").mkdir(parents=True, exist_ok=True)
    site = {**hdfs_settings(home), **settings}
    write_atomically(home / "conf" / "hdfs-site.xml", site_xml(site).encode(), private=True)
    # Hadoop decides on Kerberos by this file, before it reads the other one.
    write_atomically(home / "conf" / "core-site.xml", core_site_xml(site).encode(), private=True)
    (home / "conf" / "yarn-site.xml").unlink(missing_ok=True)
    if yarn:
        write_atomically(home / "conf" / "yarn-site.xml", site_xml({**yarn_settings(), **settings}).encode())
    announcement = home / _ANNOUNCEMENT
    announcement.unlink(missing_ok=True)
    command = java_command(
        java,
        HDFS_MAIN,
        [str(port), str(home / _LOCK), str(announcement), str(home), str(os.getpid())],
        class_path=[classes, *jars, home / "conf"],
        argument_file=home / "conf" / "java.args",
    )

    def announced(pid: int) -> _Running | None:
        try:
            running = _Running(**json.loads(announcement.read_text("utf-8")))
        except FileNotFoundError:
            return None
        return running if running.pid == pid else None

    return start_server(
        command,
        server="the embedded HDFS",
        log_path=home / _LOG,
        announced=announced,
        timeout_s=_START_TIMEOUT_S,
        stdout=subprocess.PIPE,
    )
