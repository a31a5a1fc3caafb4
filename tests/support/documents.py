"""The documents of the project and their fenced blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests" / "golden").glob("*.md")]
)
BY_NAME = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in DOCUMENTS}

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(?:^| {2,})# .*$")
_ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command line of a block: the variables assigned before the program, and the program's arguments."""

    block: Block
    variables: dict[str, str]
    words: list[str]

    def __str__(self) -> str:
        return f"{self.block}: {shlex.join(self.words) or ' '.join(self.variables)}"


def _blocks() -> Iterator[Block]:
    for name, text in BY_NAME.items():
        for match in _BLOCK.finditer(text):
            yield Block(name, text.count("\n", 0, match.start()) + 1, match[1], match[2])


BLOCKS = list(_blocks())


def blocks_in(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def commands_of(block: Block) -> Iterator[Command]:
    """Read a block as a shell does, as far as the documents use one."""
    lines, open_line = list[str](), ""
    for line in block.text.splitlines():
        open_line += _COMMENT.sub("", line)
        # A quoted text goes on in the next line.
        open_line += "\n" if open_line.count('"') % 2 else ""
        if not open_line.endswith("\n"):
            lines.append(open_line)
            open_line = ""
    for part in (part for line in lines for part in line.split(" && ") if part.strip()):
        words = shlex.split(part)
        variables: dict[str, str] = {}
        while words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
            variables[assigned[1]] = assigned[2]
            words.pop(0)
        yield Command(block, variables, words)


COMMANDS = [command for block in blocks_in("sh") for command in commands_of(block)]
