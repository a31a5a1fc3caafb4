"""Programs that answer each line of JSON on their standard input by one on their standard output."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.jvm import clean_environment

_ANSWER_S = 180


class LineServer:
    """Asks a running program, one request after the other.

    :param log: the program's standard error.
    :param answer_s: seconds that an answer may take.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path, answer_s: float = _ANSWER_S) -> None:
        self._process = process
        self._log = log
        self._answer_s = answer_s

    @property
    def log(self) -> str:
        """Return the standard error so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def send(self, request: Any) -> None:
        """Send a request without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, request: Any) -> Any:
        """Send a request and return its answer."""
        self.send(request)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._answer_s)
        line = self._process.stdout.readline() if ready else b""
        assert line, f"{request}: {self.log[-4000:]}"
        return json.loads(line)


@contextmanager
def line_server(
    command: Sequence[str],
    home: Path,
    *,
    environment: Mapping[str, str] | None = None,
    answer_s: float = _ANSWER_S,
    stop_s: float = 60,
) -> Iterator[LineServer]:
    """Start a program, and end it with the block by closing its standard input.

    :param home: its directory, where its log lies.
    :param environment: by default this process' one without secrets.
    :param answer_s: seconds that an answer may take.
    :param stop_s: seconds that it has to end; 0 kills it at once.
    """
    log = home / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            cwd=home,
            env=clean_environment() if environment is None else environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        try:
            yield LineServer(process, log, answer_s)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                if stop_s:
                    process.wait(stop_s)
            finally:
                process.kill()
