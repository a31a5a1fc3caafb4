"""Java's own ``HiveStreamingConnection`` (Hive 3.1's, linked to Hive 4), in a JVM of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_hive_federation.embedded.jars import fetch, sql_jars
from airflow_hive_federation.embedded.jvm import java_command
from airflow_hive_federation.embedded.lock import Artifact
from airflow_hive_federation.runtime.java import find_java

_PROGRAM = Path(__file__).with_suffix(".groovy")
_JAR = Artifact(
    jar_set="peer",
    group="org.apache.hive",
    name="hive-streaming",
    version="3.1.3",
    sha256="3e708768b03f89c23ef2d9c66637dcb90a2715b662f41f1064795e6433ab5a6e",
    size_bytes=66084,
)


class JavaStreaming:
    """Streams the records that it gets; as a context manager it ends its JVM.

    :param uri: of the metastore.
    :param directory: for its flags and its log.
    :param briefly: the JVM streams so little that it had better start quickly than run fast.
    """

    def __init__(self, uri: str, directory: Path, *, briefly: bool = False) -> None:
        java = find_java()
        (jar,) = fetch(java, [_JAR])
        self.log_path = directory / "hive-streaming.log"
        command = java_command(
            java,
            "groovy.ui.GroovyMain",
            [str(_PROGRAM), str(jar), uri],
            class_path=sql_jars(java),
            argument_file=directory / "hive-streaming.args",
            heap="2g",
        )
        if not briefly:
            # The JVM's defaults again.
            command[2:2] = ["-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC"]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def stream(
        self,
        database: str,
        table: str,
        transactions: Sequence[dict[str, Any]],
        *,
        static: Sequence[str] = (),
        batch: int = 1,
    ) -> float:
        """Stream transactions, as the program describes them; return the seconds it took.

        :raises RuntimeError: it failed.
        """
        asked = {"database": database, "table": table, "static": static, "batch": batch}
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("The process has no pipes.")
        stdin.write(json.dumps({**asked, "transactions": transactions}) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(self.log_path.read_text(encoding="utf-8")[-3000:])
        return int(answer) / 1e9
