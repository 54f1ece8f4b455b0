"""The page of any results: the verdict first, then curves, figures, tables, and what was run."""

import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from valueshare.analysis.importers.results import Results
from valueshare.analysis.statistics import RESAMPLES
from valueshare.report.data import ReportData, is_synthetic, report_data
from valueshare.report.findings import READING, Verdict, verdict
from valueshare.report.page import elements
from valueshare.report.page.about import (
    about_section,
    agent_rows,
    lead,
    short_names,
    shortened,
    title,
)
from valueshare.report.page.curve_data import curve_data
from valueshare.report.page.elements import Picture
from valueshare.report.page.tables import by_environment, final_scores_table, findings, published

SCRIPTS = ("curves.js", "panel.js", "page.js")
# Of a page that is served. The page says it of itself too; the server's word comes first.
LIVE_POLICY = elements.policy([elements.asset(name) for name in SCRIPTS], online=True)
MADE_UP = "Synthetic records: no agent was trained, and nothing here is evidence of anything."
WIDE, A_PAGE = 1.9, 450.0  # width by height, or width in points, from which it needs all the room


class Live(NamedTuple):
    """How far a run that is being followed has come."""

    version: str  # changes with the page
    message: str
    done: float | None = None  # of 1


def results_page(
    results: Results,
    pictures: Sequence[Picture] = (),
    *,
    asked: Sequence[str] = (),
    resamples: int = RESAMPLES,
    data: ReportData | None = None,
    answer: Verdict | None = None,
    live: Live | None = None,
) -> str:
    """One HTML file that stands alone; with `live` it asks its server for what is new.

    `asked` names comparisons, as "ib-dqn:4,dqn"; `data` and `answer` are the results' own, where
    they were made before.
    """
    data = report_data(results, resamples) if data is None else data
    answer = verdict(data, asked) if answer is None else answer
    found = answer.found
    curves = curve_data(data)
    tables = [*by_environment(found), *final_scores_table(data), *published(data)]
    figures = [_figure(picture) for picture in pictures]
    notes = dict.fromkeys(
        note
        for notes in (
            results.notes,
            answer.missing,
            *(one.notes for one in found),
            *(picture.notes for picture in pictures),
            curves.notes,
            _kept_apart(data),
        )
        for note in notes
    )
    names = short_names([source.path for source in results.about])
    sections = [
        elements.section(
            "The verdict",
            *(elements.paragraph(text, "headline") for text in answer.sentences),
            *findings(found),
            elements.paragraph(" ".join(READING), "small"),
            name="verdict",
        ),
        panel_section(),
        elements.section(
            "Figures", f'<div class="gallery">{"".join(figures)}</div>', name="figures"
        )
        if figures
        else "",
        elements.section("Tables", *tables, name="tables") if tables else "",
        about_section(results, data, names),
        elements.section("Notes", elements.bullets(shortened(notes, names)), name="notes"),
    ]
    links = {
        "verdict": "Verdict",
        "curves": "Curves",
        **({"figures": "Figures"} if figures else {}),
        **({"tables": "Tables"} if tables else {}),
        "run": "What was run",
        "notes": "Notes",
    }
    warning = elements.paragraph(MADE_UP, "warning") if is_synthetic(results) else ""
    return elements.page(
        title(data),
        lead(data),
        sections if live is None else [live_banner(live), *sections],
        scripts=SCRIPTS,
        data={"curve-data": curves.data, "agent-rows": agent_rows(data)},
        above=warning,
        links=links,
        online=live is not None,
    )


def waiting_page(names: Sequence[str], live: Live) -> str:
    """What is shown before a run's first phase has ended."""
    sections = [
        live_banner(live),
        elements.paragraph("The page appears when the first phase ends."),
    ]
    return elements.page(
        "Waiting for the first records",
        ", ".join(names),
        sections,
        scripts=("page.js",),
        links={},
        online=True,
    )


def live_banner(live: Live) -> str:
    bar = "" if live.done is None else f'<progress max="1" value="{live.done:.4f}"></progress>'
    return (
        f'<div class="live" id="live" data-version="{html.escape(live.version)}">'
        f'<span class="state" role="status">{html.escape(live.message)}</span>{bar}</div>'
    )


def _figure(picture: Picture) -> str:
    width, height = elements.svg_size(picture.svg) or (1.0, 1.0)
    shape = "wide" if width >= WIDE * height or width >= A_PAGE else ""
    return elements.figure(picture.svg, picture.caption, f"figure-{picture.name}", shape)


def _kept_apart(data: ReportData) -> tuple[str, ...]:
    left = data.table.height - data.main.height
    if not left:
        return ()
    return ("Runs with RMSprop are in their own figure, and in nothing else of this page.",)


def panel_section() -> str:
    """The interactive curves."""
    return elements.section("Learning curves", elements.asset("panel.html"), name="curves")


def with_panel(
    data: ReportData, title: str, lead: str, sections: Sequence[str], links: Mapping[str, str]
) -> str:
    """A page with `panel_section` among its sections, and the curves that it shows."""
    curves = {"curve-data": curve_data(data).data}
    return elements.page(title, lead, sections, scripts=SCRIPTS, data=curves, links=links)
