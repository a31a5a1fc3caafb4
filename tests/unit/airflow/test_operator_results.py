"""The results of all operators: one frozen dataclass each, turned into a dictionary by one function."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from airflow.sdk import BaseOperator

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.operators.results import ResultOperator
from airflow_hive_federation.provider import get_provider_info
from airflow_hive_federation.remotes.describe import Answer, Answers
from airflow_hive_federation.remotes.statement import Kind
from airflow_hive_federation.replication.repair import RepairResult

#: Airflow itself defines their results: the id of a task, and a list to map over.
OF_AIRFLOW = {"ReplicationBranchOperator", "ReplicationPoliciesOperator"}
_RETURNS = re.compile(r"[Rr]eturns\s+``\{([^}]*)\}``")


def operators() -> Iterator[tuple[ModuleType, type[BaseOperator]]]:
    for group in get_provider_info()["operators"]:
        for name in group["python-modules"]:
            module = importlib.import_module(name)
            for kind in vars(module).values():
                if inspect.isclass(kind) and issubclass(kind, BaseOperator) and kind.__module__ == name:
                    yield module, kind


ALL = [
    (module, kind)
    for module, kind in operators()
    if not kind.__name__.startswith("_") and kind.__name__ not in OF_AIRFLOW
]


def results_of(kind: type[BaseOperator]) -> list[Any]:
    """The classes in the annotation of ``perform``; the module imports them for the type checker only."""
    owner = next(base for base in kind.__mro__ if "perform" in vars(base))
    module: Any = importlib.import_module(owner.__module__)
    names = str(vars(owner)["perform"].__annotations__["return"]).split(" | ")
    imports = {
        alias.name: node.module or ""
        for node in ast.walk(ast.parse(Path(module.__file__).read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return [getattr(importlib.import_module(imports[name]), name) for name in names]


def test_there_are_operators() -> None:
    assert len(ALL) >= 19


@pytest.mark.parametrize(("_module", "kind"), ALL, ids=lambda value: value.__name__)
def test_an_operator_returns_a_frozen_dataclass_by_the_one_function(_module: Any, kind: Any) -> None:
    assert issubclass(kind, ResultOperator)
    assert next(base for base in kind.__mro__ if "execute" in vars(base)) is ResultOperator
    for result in results_of(kind):
        assert dataclasses.is_dataclass(result)
        assert result.__dataclass_params__.frozen  # type: ignore[attr-defined]
        source = Path(inspect.getfile(result)).read_text("utf-8")
        assert not re.search(r"^\s*(from|import) airflow[. ]", source, re.MULTILINE)


@pytest.mark.parametrize(("_module", "kind"), ALL, ids=lambda value: value.__name__)
def test_the_documentation_names_the_keys(_module: Any, kind: Any) -> None:
    text = " ".join((kind.__doc__ or "").split())
    if "result are those of :class:" in text or "same report as :class:" in text:
        return
    documented = [{name.strip(' "') for name in braces.split(",")} for braces in _RETURNS.findall(text)]
    expected = [{field.name for field in dataclasses.fields(result)} for result in results_of(kind)]
    assert documented == expected


def test_values_of_json() -> None:
    answers = Answers(answers=[Answer(columns=("a",), rows=(("1",), ("2",)))])
    assert result_json(answers) == {"answers": [{"columns": ["a"], "rows": [["1"], ["2"]]}]}
    assert json.loads(json.dumps(result_json(answers))) == result_json(answers)

    @dataclasses.dataclass(frozen=True)
    class Odd:
        value: Any

    assert result_json(Odd({Kind.TABLE: (Kind.TABLE, None)})) == {"value": {"table": ["table", None]}}
    with pytest.raises(TypeError, match="Path is no value of JSON"):
        result_json(Odd([Path()]))


def test_a_repair_without_differences_returns_the_report() -> None:
    report = {
        "database": "shop",
        "event_id": 7,
        "tables": [{"name": "t", "source_rows": 1}],
        "not_compared": {},
        "differences": [],
        "failures": [],
        "unread": [],
        "differing": [],
    }
    result = result_json(RepairResult.of_report(report))
    assert result == {**report, "repaired": [], "repaired_tables": [], "replaced_tables": []}
    with pytest.raises(ConfigurationError, match="not the result of a verification"):
        RepairResult.of_report({"differing": []})
