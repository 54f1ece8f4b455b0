"""The page of a study of one run: its result, curves, figures, how to read them, tables, and how it was made."""

from collections.abc import Sequence

from valueshare.analysis.importers.formats import Imported
from valueshare.report.data import ReportData
from valueshare.report.page.about import made_section
from valueshare.report.page.elements import Picture, bullets, figure, paragraph, section
from valueshare.report.page.results import panel_section, with_panel

LINKS = {"result": "The result", "curves": "Curves", "made": "How it was made"}


def study_page(
    run: Imported,
    data: ReportData,
    title: str,
    lead: str,
    *,
    verdict: Sequence[str],
    pictures: Sequence[Picture],
    notes: Sequence[str],
    tables: Sequence[str],
    deviations: Sequence[str],
) -> str:
    """One HTML file; figures without a caption are left out, `tables` are HTML already."""
    settings = dict(next(iter((run.config or {}).get("settings", {}).values()), {}))
    sections = [
        section("The result", bullets(verdict), name="result"),
        panel_section(),
        *(figure(picture.svg, picture.caption) for picture in pictures if picture.caption),
        section("How to read it", bullets(notes)),
        *tables,
        made_section(
            str((run.provenance or {}).get("command", "unknown")),
            settings,
            run.provenance or {},
            paragraph("Deviations from the paper:"),
            bullets(deviations or ["unknown: the folder has no config.json"]),
            name="made",
        ),
    ]
    return with_panel(data, title, lead, sections, LINKS)
