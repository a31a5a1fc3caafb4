"""``make fuzz`` finds faults: one of each kind, planted where only a search meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fuzz.planted import SEEDS, met
from tests.fuzz.watching import Finding, _processor_s, watched

#: It meets the fault after a thousand inputs, and not after a hundred thousand if no reached lines count.
SEED = 2
MORE = ["--inputs", "20000", "--memory-bytes", str(200 << 20)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "summary", "message"),
    [
        ("exception", "it ended with 1", "KeyError"),
        ("hang", "no answer within 1 s of work", ""),
        ("memory", "it ended with 1", "bytes of memory are in use"),
        ("crash", "it ended with -6", "Aborted"),
    ],
)
def test_a_planted_fault_is_found(kind: str, summary: str, message: str, tmp_path: Path) -> None:
    name = f"tests.fuzz.planted.{kind}"
    finding = watched(name, SEED, tmp_path, MORE, hang_s=1)
    assert isinstance(finding, Finding), finding
    assert summary in finding.summary
    assert message in finding.errors
    assert met(finding.data)
    assert finding.number > len(SEEDS)
    # The input that was kept finds it again.
    kept = tmp_path / "kept"
    kept.write_bytes(finding.data)
    again = watched(name, SEED, tmp_path, [*MORE, "--input", str(kept)], hang_s=1)
    assert isinstance(again, Finding)
    assert (again.number, again.data) == (1, finding.data)


def test_the_end_of_a_child_takes_no_time_from_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an input would begin at nothing, and the next one would seem to hang."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        ended = psutil.Process(child.pid)
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [ended])
    used = os.times()
    assert _processor_s(os.getpid()) >= used.user
