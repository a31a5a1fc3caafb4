"""Lists skipped tests at the end of a run, and fails the run if the environment variable ``CI`` is ``true``.

What a test needs and a machine lacks (root, a KDC, an sshd) must not go missing unnoticed.
``tests/conftest.py`` imports the hooks.
"""

from __future__ import annotations

import os

import pytest

_SKIPPED = pytest.StashKey[dict[str, str]]()


class _Skips:
    """Notes the skipped tests, those of pytest-xdist's workers included.

    :param found: reasons by test.
    """

    def __init__(self, skipped: dict[str, str]) -> None:
        self._found = skipped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._found[report.nodeid] = _reason(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._found[report.nodeid] = _reason(report)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SKIPPED] = {}
    config.pluginmanager.register(_Skips(config.stash[_SKIPPED]), "skips-of-the-suite")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _fails(session.config) and session.exitstatus in {
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    }:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = config.stash[_SKIPPED]
    if not skipped:
        return
    terminalreporter.section(f"{len(skipped)} tests were skipped: what they test is not known to work")
    for name, reason in sorted(skipped.items()):
        terminalreporter.line(f"{name}: {reason}")
    if _fails(config):
        terminalreporter.line("The run fails: in CI every test has to run.", red=True)


def _fails(config: pytest.Config) -> bool:
    is_worker = hasattr(config, "workerinput")
    return bool(config.stash[_SKIPPED]) and not is_worker and os.environ.get("CI", "").lower() == "true"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
