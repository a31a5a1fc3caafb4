from __future__ import annotations

import importlib

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.spark.copy_files import distinct, pending_items
from airflow_hive_federation.spark.job import (
    JOBS,
    OPTIONS_VARIABLE,
    _split,
    _take_options,
    encoded_options,
    run_job,
)


def test_unknown_job() -> None:
    with pytest.raises(ConfigurationError, match="Jobs: copy-files"):
        run_job(None, "nonsense", [])


@pytest.mark.parametrize("arguments", [[], ["--plan"], ["--plan", "p", "--outcomes", "o", "--nonsense"]])
def test_wrong_arguments(arguments: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="copy-files"):
        run_job(None, "copy-files", arguments)


def test_options_of_a_drivers_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """YARN takes two braces for a variable's mark, and removes them."""
    options = {"hdfs://a": {"dfs.replication": "3"}}
    text = encoded_options(options)
    assert "}" not in text
    own, rest = _split(["--report", "r", "--options", text, "copy-files", "--options", "of the job"])
    assert (own["--report"], rest) == ("r", ["copy-files", "--options", "of the job"])
    monkeypatch.delenv(OPTIONS_VARIABLE, raising=False)
    assert _take_options(own["--options"]) == options
    assert _take_options("") is None
    monkeypatch.setenv(OPTIONS_VARIABLE, '{"key": "k"}')
    assert _take_options(text) == {"key": "k"}


def test_every_job_has_its_functions() -> None:
    for name in JOBS.values():
        module = importlib.import_module(name)
        assert callable(module.run)
        assert callable(module.add_arguments)


def make_item(name: str, size_bytes: int = 1, write_ids: str | None = None) -> CopyItem:
    return CopyItem(
        source=f"s/{name}", target=f"t/{name}", size_bytes=size_bytes, visible_write_ids=write_ids
    )


def make_outcome(name: str, size_bytes: int = 1) -> CopyOutcome:
    return CopyOutcome(target=f"t/{name}", size_bytes=size_bytes, digest="", copied=True)


def test_pending_are_those_not_recorded_or_not_as_recorded() -> None:
    items = [
        make_item("done"),
        make_item("unrecorded"),
        make_item("lost"),
        make_item("cut short"),
        make_item("listed anew", 2),
        make_item("rewritten", 9, "ids"),
        make_item("rewritten and lost", 9, "ids"),
    ]
    outcomes = {
        outcome.target: outcome
        for outcome in (
            make_outcome("done"),
            make_outcome("lost"),
            make_outcome("cut short"),
            make_outcome("listed anew"),
            make_outcome("rewritten", 5),
            make_outcome("rewritten and lost", 5),
        )
    }
    sizes = {"t/done": 1, "t/unrecorded": 1, "t/cut short": 0, "t/listed anew": 1, "t/rewritten": 5}
    pending = {item.target for item in pending_items(items, outcomes, sizes)}
    assert pending == {
        "t/unrecorded",
        "t/lost",
        "t/cut short",
        "t/listed anew",
        "t/rewritten and lost",
    }


def test_plan_that_makes_a_file_twice() -> None:
    same = make_item("a")
    assert distinct([same, make_item("b"), same]) == [same, make_item("b")]
    other = CopyItem(source="elsewhere/a", target="t/a", size_bytes=1)
    with pytest.raises(ConfigurationError, match="t/a twice: from s/a and from elsewhere/a"):
        distinct([same, other])
