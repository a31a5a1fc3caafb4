"""Builds the documentation as a site in build/site: the pages of docs/, and a reference made from the code.

Sphinx reads copies below build/site-source: pages that people write do not lie beside generated ones.
A warning of Sphinx, such as a link that leads nowhere, fails the build.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from airflow_hive_federation.cli.main import COMMANDS
from airflow_hive_federation.hooks.connection_form import CONNECTION_TYPE
from airflow_hive_federation.provider import get_provider_info

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"

#: Public modules that are no part of Airflow's surface, which the provider's metadata list.
LIBRARY = (
    "airflow_hive_federation.metastore.client",
    "airflow_hive_federation.embedded",
    "airflow_hive_federation.ingest",
    "airflow_hive_federation.tables.read.reader",
    "airflow_hive_federation.replication.policy",
    "airflow_hive_federation.model.results",
    "airflow_hive_federation.errors",
)

#: Documents of the repository's root, and the list of decisions.
PROJECT = ("ARCHITECTURE", "docs/decisions/README", "CONTRIBUTING", "SECURITY", "CHANGELOG")

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Page:
    """A page of the reference.

    :param group: the heading of its table of contents.
    :param path: below the folder of the reference, without suffix.
    :param title: its heading.
    :param text: Markdown below the heading.
    """

    group: str
    path: str
    title: str
    text: str


def main() -> int:
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    documents = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
    for document in documents:
        _copy(document)
    _append(SOURCE / "docs" / "decisions" / "README.md", _contents("Decisions", ["*"], "glob"))
    pages = [*_commands(), _connection(), *_modules()]
    for page in pages:
        _write(SOURCE / "reference" / f"{page.path}.md", f"# {page.title}\n\n{page.text}\n")
    _append(SOURCE / "README.md", *_tables_of_contents(pages))
    arguments = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "docs"), str(SOURCE), str(SITE)]
    status = sphinx(arguments)
    if status == 0:
        shutil.copy(SITE / "README.html", SITE / "index.html")
        print(f"{SITE / 'index.html'}: {len(list(SITE.rglob('*.html')))} pages")
    return status


def _copy(document: Path) -> None:
    """Copy a document, and the files that it links; a link to a folder becomes its text."""

    def kept(link: re.Match[str]) -> str:
        linked = document.parent / link[3]
        if "://" in link[3] or linked.suffix == ".md":
            return link[0]
        if linked.is_dir():
            return link[2]
        copy = SOURCE / linked.resolve().relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(linked, copy)
        return link[0]

    text = document.read_text(encoding="utf-8")
    _write(SOURCE / document.relative_to(ROOT), _LINK.sub(kept, text))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _append(document: Path, *parts: str) -> None:
    text = document.read_text(encoding="utf-8")
    _write(document, "\n\n".join([text.rstrip("\n"), *parts, ""]))


def _contents(caption: str, entries: Iterable[str], *options: str) -> str:
    lines = [f":{option}:" for option in ("hidden", *options)]
    return "\n".join(["```{toctree}", *lines, f":caption: {caption}", "", *entries, "```"])


def _tables_of_contents(pages: Iterable[Page]) -> Iterator[str]:
    """Make a table of contents per group of README's list of pages, and those of the reference."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    caption, entries = "", list[str]()
    for line in [*readme[readme.index("## More") :].splitlines(), "- "]:
        if link := re.match(r"  - \[[^\]]*\]\((\S+)\.md\)", line):
            entries.append(link[1])
        elif line.startswith("- "):
            if entries:
                yield _contents(caption, entries)
            caption, entries = line[2:], []
    for caption, group in groupby(pages, key=lambda page: page.group):
        yield _contents(caption, [f"reference/{page.path}" for page in group])
    tests = sorted(str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "tests").rglob("*.md"))
    yield _contents("The project", [*PROJECT, *tests])


def _modules() -> Iterator[Page]:
    info = get_provider_info()
    names = [
        module
        for kind in ("operators", "sensors", "hooks", "triggers")
        for entry in info[kind]
        for module in entry["python-modules"]
    ]
    for name in [*names, *LIBRARY]:
        short = name.partition(".")[2]
        text = f"```{{eval-rst}}\n.. automodule:: {name}\n```"
        yield Page("Python", f"python/{short}", f"`{short}`", text)


def _commands() -> Iterator[Page]:
    for command in COMMANDS:
        text = (
            "```{eval-rst}\n"
            ".. argparse::\n"
            "   :module: airflow_hive_federation.cli.main\n"
            "   :func: build_parser\n"
            "   :prog: hive-federation\n"
            f"   :path: {command}\n"
            "   :nodefault:\n"
            "```"
        )
        yield Page("Commands", f"commands/{command}", f"`hive-federation {command}`", text)


def _connection() -> Page:
    """Make the page of the connection's fields from the form."""
    rows = [
        f"| `{name}` | {field['label']} | {field['description']} |"
        for name, field in CONNECTION_TYPE["conn-fields"].items()
    ]
    text = "\n".join(["| field | label in the form | meaning, and its default |", "|---|---|---|", *rows])
    return Page("Configuration", "connection", "Fields of a connection", text)


if __name__ == "__main__":
    sys.exit(main())
