"""Every argument of every command has a help, and names its default."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from airflow_hive_federation.cli.main import build_parser


def arguments(parser: argparse.ArgumentParser, command: str) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield from arguments(subparser, f"{command} {name}")
        else:
            yield f"{command} {'|'.join(action.option_strings) or action.dest}", action


def test_every_argument_has_a_help() -> None:
    assert [name for name, action in arguments(build_parser(), "") if not action.help] == []


def test_every_default_is_named() -> None:
    unnamed = [
        name
        for name, action in arguments(build_parser(), "")
        if action.option_strings
        and action.default not in (None, False, [], "", argparse.SUPPRESS)
        and "default" not in str(action.help)
    ]
    assert unnamed == []


def test_the_actions_of_replicate_name_the_files_that_they_take() -> None:
    """Those that refuse group files, or policy files, do not offer them."""
    files = {
        name.rpartition(" ")[0].removeprefix(" replicate "): str(action.help)
        for name, action in arguments(build_parser(), "")
        if name.startswith(" replicate ") and name.endswith(" policy")
    }
    both = "policy file, or group file (TOML)"
    assert files == {
        "run": both,
        "follow": "policy file (TOML)",
        "plan": both,
        "status": both,
        "verify": both,
        "repair": "policy file (TOML)",
        "failover": "policy file (TOML); with --source-lost also a group file",
        "leave": "group file (TOML)",
    }
