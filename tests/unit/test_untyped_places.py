"""The number of untyped places of each module can only fall."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "airflow_hive_federation"
#: A line per module that has some: its path below the package, and the most occurrences of ``Any``.
CEILINGS = Path(__file__).with_name("any_per_module.txt")


def count_of_any(source: str) -> int:
    """Count the uses of ``Any`` in a module, also those in annotations that are texts; imports are no use."""
    nodes = list(ast.walk(ast.parse(source)))
    names = sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return names + sum(len(re.findall(r"\bAny[],]", text)) for text in texts if "\n" not in text)


def counts() -> dict[str, int]:
    modules = (path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "metastore" / "idl")
    by_module = {
        path.relative_to(PACKAGE).as_posix(): count_of_any(path.read_text(encoding="utf-8"))
        for path in modules
    }
    return {module: count for module, count in sorted(by_module.items()) if count}


def test_no_module_has_more_any_than_before() -> None:
    """A module that is not listed has none: give the value its type, or ``object`` if it has no other."""
    lines = CEILINGS.read_text(encoding="utf-8").splitlines()
    ceilings = {module: int(most) for module, most in (line.split() for line in lines)}
    above = {module: count for module, count in counts().items() if count > ceilings.get(module, 0)}
    assert above == {}


def test_any_is_counted_wherever_it_types_something() -> None:
    source = """
from typing import Any, cast
def f(one: Any, *rest: "list[Any]") -> dict[str, Any]:
    '''Any text.'''
    return cast("dict[str, Any]", rest)  # Any comment
"""
    assert count_of_any(source) == 4
