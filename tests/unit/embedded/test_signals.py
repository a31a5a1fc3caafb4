"""Only the server that holds a lock gets a signal, whatever process has its id here."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.process import signal_holder
from airflow_hive_federation.errors import EmbeddedError

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="process ids are not looked up here")


@contextmanager
def waiting(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that waits, and whose command line names a lock."""
    program = "import sys; print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        # For a moment after its start, the kernel shows no command line.
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def test_another_process_gets_no_signal(tmp_path: Path) -> None:
    """Two containers may share a directory, and not the ids of processes."""
    lock = tmp_path / "metastore.lock"
    lock.touch()
    with waiting(lock) as holder, waiting(tmp_path / "other" / "metastore.lock") as other:
        with pytest.raises(EmbeddedError, match="another container") as caught:
            signal_holder(other.pid, signal.SIGTERM, lock, name="source")
        assert caught.value.remedy
        assert other.poll() is None
        signal_holder(holder.pid, signal.SIGTERM, lock, name="source")
        assert holder.wait(60) == -signal.SIGTERM
        other.kill()
    with pytest.raises(EmbeddedError, match="source runs on another machine"):
        signal_holder(other.pid, signal.SIGTERM, lock, name="source")
