"""The page of any results: the verdict first, then curves, figures, tables, and the runs."""

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from valueshare.analysis.importers.results import Results
from valueshare.analysis.run_values import uneven_evaluations
from valueshare.analysis.statistics import RESAMPLES
from valueshare.report import action_sets
from valueshare.report.data import ReportData, report_data
from valueshare.report.figures.variants import Variant
from valueshare.report.findings import HOW_TO_READ, Comparison, Verdict, compare_all, sentence_with_numbers
from valueshare.report.notes import merged_notes, short_names, shortened
from valueshare.report.page import elements
from valueshare.report.page.about import about_parts, agent_rows, subtitle, title
from valueshare.report.page.curve_data import curve_data
from valueshare.report.page.elements import Picture
from valueshare.report.page.tables import by_environment, findings, score_tables, tuned_tables
from valueshare.report.page.videos import find_videos
from valueshare.report.swept_settings import HeldOutChoice, find_tuned, tuned_variants
from valueshare.report.tuned_text import has_few_seeds
from valueshare.report.tuned_text import verdict as tuned_verdict
from valueshare.text import pluralize

SCRIPTS = ("uplot/uPlot.iife.min.js", "elements.js", "chart.js", "panel.js", "page.js")
# Of a page that is served: in its header, and in the page itself.
LIVE_POLICY = elements.policy([elements.asset(name) for name in SCRIPTS], online=True)
SYNTHETIC = "Synthetic records: no agent was trained, and nothing here is evidence of anything."
WIDE, A_PAGE = 1.9, 450.0  # width by height, and width in points, of figures in full width
HALF_PAGE = 330.0  # points: narrower ones would be enlarged there
MINUS = re.compile(r"(?<!\w)-(?=\d)")  # of a number, and not of names and options
PANEL = ("Learning curves", elements.asset("panel.html"))  # the interactive curves: heading and content


class Live(NamedTuple):
    """The progress of a run that is being watched."""

    version: str  # changes with the page
    message: str
    done: float | None = None  # of 1


def results_page(
    results: Results, pictures: Sequence[Picture] = (), *, compare: Sequence[str] = (), resamples: int = RESAMPLES
) -> str:
    """The page of results, as one HTML file that stands alone; `compare` names comparisons, as "ib-dqn:4,dqn"."""
    data = report_data(results, resamples)
    return data_page(data, compare_all(data, compare), pictures)


def data_page(
    data: ReportData,
    verdict: Verdict,
    pictures: Sequence[Picture],
    *,
    notes: Sequence[str] = (),
    live: Live | None = None,
) -> str:
    """The page of a report's data, with more `notes`; with `live` it asks its server for updates."""
    results, chosen = data.results, find_tuned(data)
    compared, conclusive = verdict.comparisons, _conclusive(verdict, chosen)
    curves, curve_notes = curve_data(data, headline_variants(data, verdict))
    videos, video_notes = find_videos(data)
    note_groups = [results.notes, notes, uneven_evaluations(data.main), video_notes, verdict.failed_comparisons]
    note_groups += [
        *(comparison.notes for comparison in compared),
        *(picture.notes for picture in pictures),
        curve_notes,
    ]
    all_notes = dict.fromkeys(note for group in note_groups for note in group)
    if data.table.height > data.main.height:
        all_notes["Runs with RMSprop are in their own figure, and in nothing else of this page."] = None
    merged = merged_notes(all_notes, data.variants, one_seed=verdict.has_one_seed and not chosen)
    names = short_names(results.paths)
    is_playable = live is None and any(source.kind == "run" for source in results.sources)  # a live page has clips
    headlines = (elements.paragraph(MINUS.sub("−", text), "headline") for text in verdict_sentences(data, verdict))
    reading = elements.paragraph(" ".join(HOW_TO_READ), "small")
    rows = findings(conclusive.comparisons, headline(conclusive))
    gallery = f'<div class="gallery">{"".join(map(_figure, pictures))}</div>'
    contents: tuple[tuple[str, str, str, Sequence[str]], ...] = (  # name, link, heading, parts
        ("verdict", "Verdict", "The verdict", (*headlines, *rows, reading)),
        ("curves", "Curves", PANEL[0], PANEL[1:]),
        ("figures", "Figures", "Figures", [gallery] if pictures else []),
        ("tables", "Tables", "Tables", (*by_environment(data, compared), *tuned_tables(chosen), *score_tables(data))),
        ("run", "What was run", "What was run", about_parts(data, names)),
        ("notes", "Notes", "Notes", [elements.bullets(shortened(merged, names))]),
    )
    shown = [content for content in contents if content[-1]]
    sections = [elements.section(heading, *parts, name=name) for name, _, heading, parts in shown]
    return elements.page(
        title(data),
        subtitle(data),
        sections if live is None else [live_banner(live), *sections],
        scripts=SCRIPTS,
        data={"curve-data": {**curves, "videos": videos, "playable": is_playable}, "agent-rows": agent_rows(data)},
        above=elements.paragraph(SYNTHETIC, "warning") if data.is_synthetic else "",
        links={name: link for name, link, *_ in shown},
        online=live is not None,
    )


def verdict_sentences(data: ReportData, verdict: Verdict) -> tuple[str, ...]:
    """The result in sentences, AUC explained at its first use; those on swept settings warn of few seeds themselves."""
    chosen = find_tuned(data)
    warning, conclusive = [] if chosen else verdict.few_seeds, _conclusive(verdict, chosen)
    compared = [] if conclusive is not verdict and not conclusive.comparisons else conclusive.sentences
    if left_out := len(verdict.comparisons) - len(conclusive.comparisons):
        count, verb = pluralize(left_out, "comparison"), "is" if left_out == 1 else "are"
        compared.append(f"{count} {verb} left out, because there are too few seeds: --compare shows them.")
    lines = [*warning, *action_sets.verdict(data), *tuned_verdict(chosen), *compared]
    if (first := next((line for line in lines if "AUC" in line), None)) is not None:
        explained = re.sub(r"(mean )?((\S+-normalized )?)AUC", r"mean \2score over training (AUC)", first, count=1)
        lines[lines.index(first)] = explained
    return tuple(lines)


def _conclusive(verdict: Verdict, chosen: Sequence[HeldOutChoice]) -> Verdict:
    """The verdict with the comparisons that are shown: all that were requested, or if no sweep has too few seeds.

    Else those with enough seeds, of algorithms that have them in their sweeps too.
    """
    few = {name for choice in chosen if has_few_seeds(choice) for name in choice.grid.algorithms}
    if verdict.requested or not few:
        return verdict
    kept = [
        comparison
        for comparison in verdict.comparisons
        if not comparison.has_few_seeds
        and few.isdisjoint(str(variant.name.without_settings) for variant in (comparison.x, comparison.y))
    ]
    return verdict._replace(comparisons=kept)


def headline(verdict: Verdict) -> Comparison | None:
    """The comparison in the first sentence; if it has none, the first comparison."""
    sentences = verdict.sentences
    compared = verdict.comparisons
    return next(
        (comparison for comparison in compared if sentence_with_numbers(comparison) in sentences[0]),
        compared[0] if compared else None,
    )


def headline_variants(data: ReportData, verdict: Verdict) -> list[Variant]:
    """The best of two swept settings or the headline's algorithm, and what it is compared with: the first curves."""
    if not verdict.requested and (tuned := tuned_variants(data)):
        return tuned
    first = headline(verdict)
    return [] if first is None else [first.x, first.y]


def waiting_page(title: str, subtitle: str, live: Live) -> str:
    """The page before records are read, or before a run's first phase has ended."""
    text = elements.paragraph("The page appears when the records of the first phase are read.")
    return elements.page(title, subtitle, [live_banner(live), text], scripts=["page.js"], online=True)


def live_banner(live: Live) -> str:
    bar = "" if live.done is None else f'<progress max="1" value="{live.done:.4f}"></progress>'
    return (
        f'<div class="live" id="live" data-version="{html.escape(live.version)}">'
        f'<span class="state" role="status">{html.escape(live.message)}</span>{bar}'
        '<span class="notice" role="status"></span></div>'
    )


def _figure(picture: Picture) -> str:
    width, height = elements.svg_size(picture.svg) or (1.0, 1.0)
    css_class = "wide" if width >= (HALF_PAGE if width >= WIDE * height else A_PAGE) else ""
    return elements.figure(picture.svg, picture.caption, f"figure-{picture.name}", css_class)
