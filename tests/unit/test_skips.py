"""Skipped tests are listed, and fail a run in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

def test_that_runs():
    pass

@pytest.mark.xfail(reason="known")
def test_that_is_expected_to_fail():
    assert False

def test_that_cannot():
    if SKIPS:
        pytest.skip("mounting needs root")
"""


def run(folder: Path, *, skips: bool, ci: str, processes: int) -> tuple[int, str]:
    (folder / "test_some.py").write_text(f"SKIPS = {skips}\n{TESTS}", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.skips", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [*command, "-n", str(processes), str(folder)],
        cwd=ROOT,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", [0, 2])
def test_in_ci_a_skip_fails_the_run(tmp_path: Path, processes: int) -> None:
    code, output = run(tmp_path, skips=True, ci="true", processes=processes)
    assert code == 1, output
    assert "1 tests were skipped" in output
    assert "test_some.py::test_that_cannot: mounting needs root" in output
    assert "The run fails" in output


def test_elsewhere_a_skip_is_listed(tmp_path: Path) -> None:
    code, output = run(tmp_path, skips=True, ci="", processes=0)
    assert code == 0, output
    assert "test_that_cannot: mounting needs root" in output
    assert "The run fails" not in output


def test_in_ci_a_run_without_skips_succeeds(tmp_path: Path) -> None:
    code, output = run(tmp_path, skips=False, ci="true", processes=0)
    assert code == 0, output
    assert "skipped" not in output


def test_the_checks_before_a_change_run_as_in_ci(tmp_path: Path) -> None:
    """``.ci/run`` has every test run, or fails: what it calls sees the variable."""
    done = run_checks(tmp_path, make='echo "$* CI=$CI"')
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["--jobs=2 check docs CI=true", "test CI=true"]


@pytest.mark.parametrize("failing", ["check", "docs", "test"])
def test_a_step_that_fails_fails_the_checks(tmp_path: Path, failing: str) -> None:
    assert run_checks(tmp_path, make=f'case " $* " in *" {failing} "*) exit 1;; esac').returncode == 1


def run_checks(folder: Path, *, make: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of ``.ci/run`` with another ``make``.

    :param make: what that does, in the shell's words.
    """
    for name in (".ci", "bin"):
        (folder / name).mkdir()
    script, program = folder / ".ci/run", folder / "bin/make"
    shutil.copy(ROOT / ".ci/run", script)
    program.write_text(f"#!/bin/sh\n{make}\n", encoding="utf-8")
    program.chmod(0o700)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    return subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
