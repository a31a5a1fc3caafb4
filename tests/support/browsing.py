"""A browser for tests of pages: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import axe_playwright_python
from playwright.sync_api import expect, sync_playwright

from tests.support.debian import require_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
#: Where people look at the pages after a run.
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
#: Directory of the pictures in the documents; ``make screenshots`` sets it.
PICTURES = "HIVE_FEDERATION_PICTURES"
#: A busy machine may take long for anything.
PATIENCE_MS = 60_000
WIDE, NARROW = (1300, 900), (390, 800)
#: The size of pictures in documents.
DOCUMENTED = (1100, 620)
SERIOUS = {"serious", "critical"}


@dataclass
class Sight:
    """A page in one colour scheme and size, with the lines of its console."""

    page: Page
    name: str
    complaints: list[str] = field(default_factory=list)

    def serious_problems(self, selector: str) -> list[tuple[str, list[str]]]:
        """Problems of accessibility that axe-core calls serious, in a part of the page."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: Any = self.page.evaluate("selector => axe.run(selector)", selector)
        return [
            (problem["id"], [node["html"][:200] for node in problem["nodes"]])
            for problem in found["violations"]
            if problem["impact"] in SERIOUS
        ]

    def take_picture(self, of: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{of}-{self.name}.png")

    def take_picture_for_documents(self, of: str) -> None:
        """Write a picture where ``make screenshots`` asks for it, and otherwise among the others."""
        directory = Path(os.environ.get(PICTURES) or SCREENSHOTS)
        self.page.screenshot(path=directory / f"{of}.png")


@contextmanager
def chromium() -> Iterator[Browser]:
    path = require_program("chromium", "chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        # The sandbox needs rights that containers lack.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def sight(browser: Browser, url: str, *, scheme: str, size: tuple[int, int]) -> Iterator[Sight]:
    """Open a page of Airflow's in a colour scheme."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, locale="en-US", color_scheme="no-preference"
    )
    # Where Airflow keeps the user's choice.
    context.add_init_script(f"localStorage.setItem('theme', '{scheme}')")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    seen = Sight(page=page, name=f"{scheme}-{size[0]}")
    page.on(
        "console",
        lambda message: seen.complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    try:
        page.goto(url)
        yield seen
    finally:
        context.close()
