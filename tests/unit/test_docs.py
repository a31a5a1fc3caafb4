"""The documentation is true where a machine can check it: code, links, commands, names."""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from airflow_hive_federation import errors
from airflow_hive_federation.cli.main import build_parser
from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.ingest import errors as ingest_errors
from airflow_hive_federation.replication.policy import HIVE_OPTIONS, ReplicationPolicy
from tests.support.documents import BY_NAME, ROOT

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_OWN = "airflow_hive_federation"
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_examples_are_short_and_shown(path: Path) -> None:
    """They run in tests/integration/project/test_docs_examples.py."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert any(f"examples/{path.name}" in text for text in BY_NAME.values())


# -- links and commands ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BY_NAME)
def test_links_lead_somewhere(name: str) -> None:
    for target in _LINK.findall(re.sub(r"```.*?```", "", BY_NAME[name], flags=re.DOTALL)):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if anchor:
            assert anchor in _anchors(file.read_text(encoding="utf-8")), target


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def quoted_commands() -> Iterator[tuple[str, str]]:
    """Quoted command lines of ours, which may stand for several by ``a | b``."""
    for name, text in BY_NAME.items():
        for quoted in _INLINE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            if quoted.startswith("hive-federation ") and "…" not in quoted:
                yield name, quoted


@pytest.mark.parametrize(("where", "command"), sorted(set(quoted_commands())))
def test_quoted_commands_exist(where: str, command: str) -> None:
    """Command lines of blocks are parsed in test_docs_blocks.py."""
    used: list[argparse.ArgumentParser] = [build_parser()]
    for argument in shlex.split(command.replace("[", "").replace("]", ""))[1:]:
        if argument.startswith("-"):
            assert any(argument.partition("=")[0] in action._option_string_actions for action in used), (
                argument
            )
        elif (choices := _subcommands(used[-1])) is not None:
            alternatives = [alternative for alternative in argument.split("|") if alternative]
            assert set(alternatives) <= set(choices), argument
            used.extend(choices[alternative] for alternative in alternatives[-1:])
        elif argument == "|":
            used.pop()


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser] | None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return None


def test_tests_that_are_named_exist() -> None:
    named = {path for text in BY_NAME.values() for path in re.findall(r"`(tests/[\w/]+\.py)`", text)}
    assert "tests/unit/test_secrets.py" in named
    assert not [path for path in sorted(named) if not (ROOT / path).is_file()]
    files = {name for text in BY_NAME.values() for name in re.findall(r"`(test_\w+\.py)`", text)}
    assert "test_increment_kills.py" in files
    assert not files - {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for name, text in BY_NAME.items():
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
            assert target in targets, f"{name}: make {target}"


# -- names -------------------------------------------------------------------------------------------------

ERROR_LINE = re.compile(r"^\| ((?:· )*)`(\w+)` \|(.*)\|(.*)\| (yes|no) \|$", re.MULTILINE)


def error_classes() -> dict[str, type[HiveFederationError]]:
    members = inspect.getmembers(errors, inspect.isclass)
    return {name: member for name, member in members if issubclass(member, HiveFederationError)}


def test_every_error_is_listed_in_its_place() -> None:
    listed: dict[str, tuple[str, bool]] = {}
    above: list[str] = []
    for dots, name, _, _, retryable in ERROR_LINE.findall(BY_NAME["docs/errors.md"]):
        depth = len(dots) // 2
        assert depth <= len(above), name
        above = [*above[:depth], name]
        assert name not in listed, name
        listed[name] = (above[-2] if depth else "Exception", retryable == "yes")
    expected = {
        name: (error_class.__bases__[0].__name__, error_class.retryable)
        for name, error_class in error_classes().items()
    }
    assert listed == expected


def test_every_error_has_a_meaning() -> None:
    for _, name, meaning, _, _ in ERROR_LINE.findall(BY_NAME["docs/errors.md"]):
        assert len(meaning) > 10, name


def test_errors_that_nothing_raises_are_marked() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / _OWN).rglob("*.py")
        if path.name != "errors.py" and "idl" not in path.parts
    )
    further_names = {
        kind.__name__: name
        for name, kind in vars(ingest_errors).items()
        if isinstance(kind, type) and name != kind.__name__
    }
    for _, name, meaning, _, _ in ERROR_LINE.findall(BY_NAME["docs/errors.md"]):
        bases = {base.__name__ for error_class in error_classes().values() for base in error_class.__bases__}
        if name not in bases:
            raised = name in sources or further_names.get(name, name) in sources
            assert ("nothing raises it yet" in meaning) is not raised, name


def test_the_tree_in_errors_py_names_every_class() -> None:
    for name in error_classes():
        assert name in (errors.__doc__ or ""), name


def test_every_field_of_a_policy_is_documented_with_hives_option() -> None:
    section = BY_NAME["docs/replication.md"].partition("| field |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`([\w.]+)`)? ?\|", section, re.MULTILINE))
    options = {field: option for option, field in HIVE_OPTIONS.items()}
    assert rows == {field.name: options.get(field.name, "") for field in fields(ReplicationPolicy)}


def test_every_extra_of_a_connection_is_documented() -> None:
    from airflow_hive_federation.hooks.metastore import EXTRAS

    section = BY_NAME["docs/connections.md"].partition("| extra |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in section.splitlines()[1:]]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(EXTRAS)


def test_every_file_of_a_dump_is_documented() -> None:
    from airflow_hive_federation.replication.format import directory as dump_directory

    names = re.findall(r"^        ([\w./<>]+) ", dump_directory.__doc__ or "", re.MULTILINE)
    assert len(names) > 8
    for name in names:
        assert name in BY_NAME["ARCHITECTURE.md"], name


def test_the_layers_shown_are_the_layers_held() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (held,) = (contract["layers"] for contract in contracts if contract.get("containers") == [_OWN])
    shown = BY_NAME["ARCHITECTURE.md"].partition("```text\n")[2].partition("```")[0]
    names = [re.split(r"  +", line.strip())[0].replace("│", "|") for line in shown.splitlines()]
    assert [name for name in names if re.match(r"\w", name)] == held


def test_the_modules_of_each_step_through_the_rooms_hold_its_names() -> None:
    section = BY_NAME["ARCHITECTURE.md"].partition("## Through the rooms\n")[2].partition("\n## ")[0]
    steps = [step.replace("\n", " ") for step in re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]]
    assert len(steps) == 40
    texts: list[str] = []
    for step in steps:
        names = _INLINE.findall(step)
        modules = [name for name in names if name.endswith(".py")]
        texts = [(ROOT / _OWN / name).read_text(encoding="utf-8") for name in modules] or texts
        called = [name for name in names if re.fullmatch(r"[A-Za-z_]+(\.[a-z_]+)?", name)]
        for name in [part for call in called if call != "repl.last.id" for part in call.split(".")]:
            assert any(re.search(rf"\b{name}\b", text) for text in texts), (step, name)
