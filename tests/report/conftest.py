"""A real browser for the tests of pages."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium: that of VALUESHARE_CHROMIUM, or the first that is found."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = [os.environ.get("VALUESHARE_CHROMIUM"), *(shutil.which(name) for name in NAMES)]
    programs = [program for program in found if program]
    if not programs:
        pytest.skip("neither chromium nor google-chrome is here: set VALUESHARE_CHROMIUM")
    with playwright.sync_playwright() as started:
        # In a container there is no user to put into the sandbox.
        own = started.chromium.launch(executable_path=programs[0], args=["--no-sandbox"])
        yield own
        own.close()


class Visit:
    """One page in one window, with everything that it said or asked for."""

    def __init__(self, browser: Any, **options: Any) -> None:
        # Without smooth scrolling, which would move the page while a test moves the mouse.
        defaults = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        self.context = browser.new_context(**defaults | options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.refused: list[tuple[str, str]] = []  # address, reason
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("requestfailed", lambda request: self.refused.append((request.url, request.failure)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _dismiss(self, dialog: Any) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def open(self, file: Path) -> "Visit":
        self.page.goto(file.as_uri())
        return self

    def chart(self, expression: str) -> Any:
        """The value of an expression of `u`, the uPlot chart of the panel, and `mean`, the numbers of its means."""
        means = "u.series.map((s, i) => i).filter((i) => i && u.series[i].class !== 'aside')"
        plot = "document.getElementById('panel-plot')"
        return self.page.evaluate(f"async () => {{ const u = {plot}.chart, mean = {means}; return {expression}; }}")

    def curves(self) -> list[list[float | None]]:
        """The means that are drawn now."""
        found: list[list[float | None]] = self.chart("mean.map((i) => [...u.data[i]])")
        return found


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens windows: visit(color_scheme="dark").open(file)."""
    made: list[Visit] = []

    def make(**options: Any) -> Visit:
        made.append(Visit(browser, **options))
        return made[-1]

    yield make
    for one in made:
        one.context.close()
