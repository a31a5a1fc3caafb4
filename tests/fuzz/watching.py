"""The watchdog ends a process that takes too long for one input, and keeps an input that ended one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.fuzz.child import Note

ROOT = Path(__file__).parents[2]
#: Seconds of the processor's time without another input, after which the process is ended. (A busy machine
#: gives few of them to a process in a minute.)
HANG_S = 60
#: So many times as long by the clock, a process is ended that waits for something.
_IDLE_FACTOR = 10
_POLL_S = 2


@dataclass(frozen=True)
class Finding:
    """An input that should have been refused, or read, in another way."""

    number: int
    data: bytes
    summary: str
    errors: str


def watched(
    name: str, seed: int, folder: Path, more: Sequence[str], *, hang_s: int = HANG_S
) -> Finding | dict[str, Any]:
    """Run a target in a process of its own; return the finding, or what was done.

    :param more: further arguments of the process.
    :param hang_s: seconds of the processor for one input.
    """
    place, errors = folder / f"{name}.note", folder / f"{name}.errors"
    command = [sys.executable, "-m", "tests.fuzz.child", name, "--note", str(place), "--seed", str(seed)]
    with errors.open("wb") as stderr:
        process = subprocess.Popen([*command, *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr)
        ended = _until_it_ends(process, place, hang_s)
    output = (process.stdout.read() if process.stdout else b"").decode()
    if process.stdout:
        process.stdout.close()
    if ended == 0:
        return dict(json.loads(output.splitlines()[-1]))
    number, data = Note(place).read() if place.exists() else (0, b"")
    summary = f"{name}, input {number}: " + (
        f"no answer within {hang_s} s of work" if ended is None else f"it ended with {ended}"
    )
    return Finding(number, data, summary, errors.read_text(encoding="utf-8", errors="replace")[-4000:])


def _until_it_ends(process: subprocess.Popen[bytes], place: Path, hang_s: int) -> int | None:
    """Wait for a process; ``None`` if it was ended for standing still."""
    last, idle_s, worked_s = -1, 0, 0.0
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            now = Note(place).read()[0] if place.exists() and place.stat().st_size else 0
            used_s = _processor_s(process.pid)
            if now != last:
                last, idle_s, worked_s = now, 0, used_s
            idle_s += _POLL_S
            # Its start takes as long as that of the modules that it imports.
            most_s = hang_s if now else HANG_S
            if used_s - worked_s >= most_s or idle_s >= _IDLE_FACTOR * most_s:
                process.kill()
                process.wait()
                return None


def _processor_s(pid: int) -> float:
    """The processor's time of a process and of those that it has started, running or ended."""
    seconds = 0.0
    for process in _family(pid):
        # A process that ends meanwhile takes nothing from the others' times.
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def _family(pid: int) -> list[psutil.Process]:
    """A process and, after it, those that it has started; empty if it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
