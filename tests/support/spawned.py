"""Notes every process that this one starts, with its command line and environment, before it is started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Audit events of the standard library, and where the arguments and the environment are among theirs.
_EVENTS = {"subprocess.Popen": (1, 3), "os.exec": (1, 2), "os.posix_spawn": (1, 2), "os.system": (0, None)}


def note_spawned(path: Path) -> None:
    """Write a line of JSON for each process that is started from now on.

    :param path: file for the lines.
    """

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        command, environment = _EVENTS[event]
        given = arguments[environment] if environment is not None else None
        line = {
            "command": _texts(arguments[command]),
            "environment": dict(os.environ) if given is None else _mapping(given),
        }
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    sys.addaudithook(note)


def _texts(command: Any) -> str:
    if isinstance(command, str | bytes | os.PathLike):
        return os.fsdecode(command)
    return "\0".join(os.fsdecode(argument) for argument in command)


def _mapping(given: Any) -> dict[str, str]:
    if isinstance(given, Mapping):
        return {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    return dict(os.fsdecode(variable).partition("=")[::2] for variable in given)
