"""The page that lists what removes data lists all of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_hive_federation"
PAGE = ROOT / "docs" / "what-removes-data.md"

#: Calls that remove something: of the metastore's client, of fsspec, of pathlib and shutil, and our own.
REMOVING = {
    "delete_snapshot",
    "drop_database",
    "drop_function",
    "drop_partitions",
    "drop_table",
    "remove_empty_directory",
    "remove_file",
    "remove_quietly",
    "remove_tree",
    "rm",
    "rm_file",
    "rmdir",
    "rmtree",
    "unlink",
}
#: Methods of the metastore that remove something, called by their names.
METHODS = re.compile(r"(drop|delete|truncate)_\w+")
_ROW = re.compile(r"^\| `([\w/]+\.py)` `([\w.]+)` \|", re.MULTILINE)


def removing_functions() -> set[tuple[str, str]]:
    """The package's functions that call one of these, as file and qualified name."""
    return {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in sorted(PACKAGE.rglob("*.py"))
        if "idl" not in path.parts
        for name, function in functions(ast.parse(path.read_text(encoding="utf-8")))
        if any(removes(call) for call in own_calls(function))
    }


def functions(node: ast.AST, above: str = "") -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}.{child.name}".strip(".")
            if not isinstance(child, ast.ClassDef):
                yield name, child
            yield from functions(child, name)
        else:
            yield from functions(child, above)


def own_calls(function: ast.AST) -> Iterator[ast.Call]:
    """Calls in a function, but for those in functions inside it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from own_calls(child)


def removes(call: ast.Call) -> bool:
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name in REMOVING:
        return True
    named = (
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )
    return name == "call" and any(METHODS.fullmatch(value) for value in named)


def test_the_page_lists_every_function_that_removes_something() -> None:
    listed = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(listed) == len(set(listed))
    assert set(listed) == removing_functions()


def test_a_removal_is_found() -> None:
    code = """
def outer():
    def inner():
        client.call("drop_index", x)
    path.unlink()
    call("get_x")
def none():
    client.call("get_table", x)
"""
    removing = [
        name
        for name, function in functions(ast.parse(code))
        if any(removes(call) for call in own_calls(function))
    ]
    assert removing == ["outer", "outer.inner"]
