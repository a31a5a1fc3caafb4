"""Checks the names and calls in a piece of Python against the package, without running it.

The types of values are followed as far as imports, assignments, annotations, ``with`` and returned types
give them; a value of unknown type is not checked.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_hive_federation.metastore.client import METHODS, MetastoreClient

PACKAGE = "airflow_hive_federation"


@dataclass(frozen=True)
class Instance:
    """A value of a known class."""

    of: type


@dataclass(frozen=True)
class Method:
    """A method of a value of a known class."""

    of: type
    function: Callable[..., object]


@dataclass(frozen=True)
class Entered:
    """The context manager that a generator function returns, with the class of its value."""

    of: type


def problems_of_calls(source: str, known: Mapping[str, type] | None = None) -> list[str]:
    """Return the names and arguments that do not exist, each with its line.

    :param known: the classes of variables that the source uses and does not define.
    """
    tree = ast.parse(source)
    reader = _Reader({name: Instance(of) for name, of in (known or {}).items()})
    reader.body(tree.body)
    return reader.problems


class _Reader:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.problems: list[str] = []
        #: Mappings with constant keys, for calls that unpack them.
        self.keys: dict[str, list[str]] = {}

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.ImportFrom(module=str(module)) | ast.ImportFrom(module=module) if module:
                self._import(node, module)
            case ast.FunctionDef():
                self._function(node)
            case ast.ClassDef():
                self.body(node.body)
            case ast.With():
                self._with(node)
            case ast.If():
                self._if(node)
            case ast.Assign(targets=[ast.Name(id=name)]):
                self._assign(name, node.value)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.stmt):
                        self.statement(child)
                    elif isinstance(child, ast.expr):
                        self.value(child)

    def _import(self, node: ast.ImportFrom, module: str) -> None:
        if not module.startswith(PACKAGE):
            return
        imported = importlib.import_module(module)
        for alias in node.names:
            if not hasattr(imported, alias.name):
                with suppress(ModuleNotFoundError):
                    importlib.import_module(f"{module}.{alias.name}")
            if hasattr(imported, alias.name):
                self.values[alias.asname or alias.name] = getattr(imported, alias.name)
            else:
                self.problems.append(f"line {node.lineno}: {module} has no {alias.name}")

    def _function(self, node: ast.FunctionDef) -> None:
        for argument in node.args.args:
            of = self.value(argument.annotation) if argument.annotation else None
            if isinstance(of, type):
                self.values[argument.arg] = Instance(of)
        self.body(node.body)

    def _if(self, node: ast.If) -> None:
        before = dict(self.values)
        match node.test:
            case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), ast.Name() as tested]):
                if isinstance(of := self.value(tested), type):
                    self.values[name] = Instance(of)
            case _:
                self.value(node.test)
        self.body(node.body)
        self.values = before
        self.body(node.orelse)

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            if not isinstance(item.optional_vars, ast.Name):
                continue
            name = item.optional_vars.id
            self.values.pop(name, None)
            if isinstance(value, Entered):
                self.values[name] = Instance(value.of)
            elif isinstance(value, Instance) and (enter := getattr(value.of, "__enter__", None)):
                entered = _returned(enter, value.of)
                if entered is not None:
                    self.values[name] = entered
        self.body(node.body)

    def _assign(self, name: str, expression: ast.expr) -> None:
        self.values.pop(name, None)
        self.keys.pop(name, None)
        if (value := self.value(expression)) is not None:
            self.values[name] = value
        if isinstance(expression, ast.Dict):
            self.keys[name] = [key.value for key in expression.keys if isinstance(key, ast.Constant)]

    def value(self, node: ast.expr) -> Any:
        """Return the value or type of an expression, after a check of all calls in it; None if unknown."""
        match node:
            case ast.Name(id=name):
                return self.values.get(name)
            case ast.Attribute(value=inner, attr=name):
                return self._attribute(node, self.value(inner), name)
            case ast.Call():
                return self._call(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
        return None

    def _attribute(self, node: ast.Attribute, of: Any, name: str) -> Any:
        if of is None or isinstance(of, Method | Entered):
            return None
        if not isinstance(of, Instance):
            if not hasattr(of, name):
                self.problems.append(f"line {node.lineno}: {_called(of)} has no {name}")
            return getattr(of, name, None)
        if name in _names(of.of):
            member = inspect.getattr_static(of.of, name, None)
            if isinstance(member, property | cached_property):
                return _returned(member.fget if isinstance(member, property) else member.func, of.of)
            if inspect.isfunction(member):
                return Method(of.of, member)
            if isinstance(member, classmethod | staticmethod):
                return getattr(of.of, name)
            return None
        self.problems.append(f"line {node.lineno}: {of.of.__name__} has no {name}")
        return None

    def _call(self, node: ast.Call) -> Any:
        called = self.value(node.func)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.value(argument.value if isinstance(argument, ast.Starred) else argument)
        function = called.function if isinstance(called, Method) else called
        if not callable(function) or not str(getattr(function, "__module__", "")).startswith(PACKAGE):
            return None
        self._bind(node, function, bound=isinstance(called, Method))
        if isinstance(function, type):
            return Instance(function)
        owner = getattr(function, "__self__", None)
        return _returned(function, called.of if isinstance(called, Method) else owner)

    def _bind(self, node: ast.Call, function: Callable[..., object], *, bound: bool) -> None:
        positional = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        names = [keyword.arg for keyword in node.keywords if keyword.arg]
        whole = len(positional) == len(node.args)
        for keyword in node.keywords:
            if keyword.arg is None:
                unpacked = keyword.value.id if isinstance(keyword.value, ast.Name) else ""
                whole = whole and unpacked in self.keys
                names += self.keys.get(unpacked, [])
        signature = inspect.signature(function)
        bind = signature.bind if whole else signature.bind_partial
        try:
            bind(*[None] * (len(positional) + bound), **dict.fromkeys(names))
        except TypeError as error:
            self.problems.append(f"line {node.lineno}: {_called(function)}: {error}")


def _called(value: Any) -> str:
    return getattr(value, "__qualname__", None) or getattr(value, "__name__", repr(value))


def _names(of: type) -> set[str]:
    """Return the names of attributes of values of a class, also those that its methods assign."""
    names = set(dir(of))
    if issubclass(of, MetastoreClient):
        names |= set(METHODS)
    for base in of.__mro__:
        names |= set(vars(base).get("__annotations__", {}))
        if base.__module__.startswith(PACKAGE):
            names |= set(re.findall(r"\bself\.(\w+)\b", inspect.getsource(base)))
    return names


def _returned(function: Any, of: Any) -> Instance | Entered | None:
    """Return what a function returns, as far as its annotation names a class."""
    wrapped = inspect.unwrap(getattr(function, "__func__", function))
    written = getattr(wrapped, "__annotations__", {}).get("return")
    try:
        # Only this annotation: others may name what is imported for type checkers alone.
        hint = eval(written, vars(importlib.import_module(wrapped.__module__))) if written else None
    except NameError:
        return None
    if hint is typing.Self:
        return Instance(of) if isinstance(of, type) else None
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return Instance(hint) if hint.__module__.startswith(PACKAGE) else None
    yielded = typing.get_args(hint)
    if wrapped is not function and typing.get_origin(hint) in (Iterator, typing.Iterator) and yielded:
        if yielded[0] is typing.Self:
            return Entered(of) if isinstance(of, type) else None
        if isinstance(yielded[0], type) and yielded[0].__module__.startswith(PACKAGE):
            return Entered(yielded[0])
    return None
