"""The map of two swept settings for a report: figure, caption and notes."""

from matplotlib.figure import Figure

from valueshare.report.data import ReportData
from valueshare.report.figures.heat_map import settings_maps
from valueshare.report.swept_settings import find_grids, settings_map
from valueshare.text import how_many

MOST = 12  # maps in one figure
CAPTION = (
    "Mean score (AUC) of every combination of two swept settings. Outlined: the best of each value of the first "
    "setting, over all of these seeds. A cross: some agents diverged, and the combination is no candidate. Hatched: no "
    "score. Where the colour bar ends in an arrow, lower scores have its last colour."
)


def content(data: ReportData) -> tuple[Figure, str, tuple[str, ...]]:
    """A map for every environment and algorithm with two swept settings, up to twelve."""
    grids = find_grids(data)
    left = len(grids) - MOST
    notes = [f"{how_many(left, 'map')} of swept settings not drawn: too many for one figure"] if left > 0 else []
    for grid in grids:
        counts = grid.runs.group_by(grid.settings).len()["len"].to_list()
        if min(counts) < max(counts):
            notes.append(f"{grid.title}: combinations of settings have {min(counts)} to {max(counts)} runs")
        if missing := grid.runs["score"].null_count():
            notes.append(f"{grid.title}: {how_many(missing, 'run')} without a score, whose settings are not chosen")
    return settings_maps([settings_map(grid) for grid in grids[:MOST]]), CAPTION, tuple(notes)


def has_scores(data: ReportData) -> bool:
    """Whether two settings were swept somewhere, and a run there has a score."""
    return any(grid.runs["score"].is_not_null().any() for grid in find_grids(data))
