"""The tables of the page: findings with their intervals drawn, environments, chosen settings, scores."""

import html
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from valueshare.analysis.tidy import CI95
from valueshare.analysis.tuned import CHOICES, DIFFERENCE, MEAN
from valueshare.report import tuned_text
from valueshare.report.data import ReportData
from valueshare.report.figures.series import game
from valueshare.report.findings import Comparison, clear_differences, sentence
from valueshare.report.interval import Interval, format_interval, probability_text
from valueshare.report.page import elements
from valueshare.report.page.elements import Cell
from valueshare.report.swept_settings import HeldOutChoice
from valueshare.report.tables import BOLD, FINAL, beside_published, mean_scores, score_table
from valueshare.text import format_number, plain_number, pluralize, with_minus

CLASSES = {1: "better", -1: "worse", 0: ""}
MARKS = {1: "▲", -1: "▼", 0: ""}
MAX_FINDINGS = 6  # that are open; the others fold
TUNED_HEADINGS = (
    "{first}",
    "best {second}",
    "chosen by the first half",
    "by the second half",
    "score on the other half",
    "difference from {first} = {reference}",
    "score at the {second} of {first} = {reference}",
    "agents",
    "{second}: left out",
)


def findings(comparisons: Sequence[Comparison], first: Comparison | None = None) -> list[str]:
    """A row per comparison: the sentence, its interval drawn, and the numbers. Many fold, but not the `first`."""
    if not comparisons:
        return []
    several = any(comparison.envs.height > 1 for comparison in comparisons)
    quantity = next((comparison.quantity for comparison in comparisons if comparison.difference), "AUC")
    is_difference = any(comparison.difference for comparison in comparisons)
    unit = "" if "normalized" in quantity else ", in points of the score"
    label = f"difference of the {quantity}{unit}" if is_difference else "probability of a higher AUC"
    columns = ["Finding", "Interval", f"Difference of the {quantity}", "Probability of improvement"]
    columns += ["Clearly higher / lower on"] if several else []

    def table(listed: Sequence[Comparison], name: str) -> str:
        scale = _scale(listed)
        foot = [Cell(" "), Cell(_axis(scale, label), css_class="forest axis"), *[Cell(" ")] * (len(columns) - 2)]
        rows = [_finding(comparison, scale, several) for comparison in listed]
        return elements.table(columns, rows, name=name, css_class="findings", caption="Findings", foot=foot)

    order = sorted(comparisons, key=lambda comparison: comparison is not first)
    if len(order) <= MAX_FINDINGS:
        return [table(comparisons, "findings")]
    more = table(order[MAX_FINDINGS:], "more-findings")
    summary = pluralize(len(order) - MAX_FINDINGS, "more comparison")
    return [table(order[:MAX_FINDINGS], "findings"), elements.details(summary, more, name="more-findings-details")]


def by_environment(data: ReportData, comparisons: Sequence[Comparison]) -> list[str]:
    """A row per environment, a column per comparison: the difference, and whether it is clear."""
    envs = sorted({env for comparison in comparisons for env in comparison.envs["env"]}, key=lambda e: game(e).lower())
    if len(envs) < 2:
        return []
    known = [
        {row["env"]: Interval.of(row, ("difference", *CI95)) for row in comparison.envs.to_dicts()}
        for comparison in comparisons
    ]
    rows = [
        [Cell("", game(env)), *(interval_cell(intervals.get(env), marked=True) for intervals in known)] for env in envs
    ]
    columns = [
        "Environment",
        *(f"{comparison.x.style.label} − {comparison.y.style.label}" for comparison in comparisons),
    ]
    text = (
        f"Difference of the mean {data.auc_name} with its 95 % interval. ▲ and ▼: the interval lies above or below 0."
    )
    table = elements.table(columns, rows, name="by-environment", caption="By environment", tall=True)
    return ["<h3>By environment</h3>", elements.paragraph(text, "small"), table]


def tuned_tables(choices: Sequence[HeldOutChoice]) -> list[str]:
    """A heading, how to read it, and a table for each map of two swept settings."""
    parts = []
    for index, choice in enumerate(choices):
        (first, second), (name, _) = choice.grid.names, choice.grid.settings
        smallest = choice.table[name][0]
        headings = [
            text.format(first=first, second=second, reference=plain_number(smallest)) for text in TUNED_HEADINGS
        ]
        rows = []
        for row in choice.table.to_dicts():
            settings = (_number_cell(row[column], plain_number) for column in (name, *CHOICES))
            difference = Cell("–") if row[name] == smallest else interval_cell(Interval.of(row, DIFFERENCE))
            score = interval_cell(Interval.of(row, MEAN), sign=False)
            at_reference = _number_cell(row["mean_at_reference"])
            rows.append([*settings, score, difference, at_reference, row["runs"], row["failed"]])
        caption = f"{choice.grid.title}: the best {second} of each {first}"
        reading = elements.paragraph(" ".join(tuned_text.reading(choice)), "small")
        table = elements.table(headings, rows, name=f"tuned-{index}", caption=caption)
        parts += [f"<h3>{html.escape(caption)}</h3>", reading, table]
    return parts


def score_tables(data: ReportData) -> list[str]:
    """Final scores of several environments, the best in bold; Atari beside published scores."""
    parts, means = list[str](), mean_scores(data.main).table
    if len(data.envs) > 1:
        final = score_table(means, data.label_actions)
        rows = [
            [Cell("", name), *(_number_cell(score, bold=bold) for score, bold in scores)]
            for name, scores in final.rows()
        ]
        columns = ["Environment", *(variant.style.label for variant in final.variants)]
        text = elements.paragraph(f"{FINAL} Means over seeds. {BOLD}", "small")
        table = elements.table(columns, rows, name="final-scores", caption="Final scores", tall=True)
        parts += ["<h3>Final scores</h3>", text, table]
    if data.is_atari:
        beside = beside_published(means, data.label_actions).drop_nulls("published")
        columns, caption = [name.replace("_", " ") for name in beside.columns], "Beside the published"
        table = elements.table(columns, beside.rows(), name="published", caption=caption, tall=True)
        if not beside.is_empty():
            parts.append(elements.details(f"{caption} scores", table, name="published-details"))
    return parts


def _finding(comparison: Comparison, scale: tuple[float, float], several: bool) -> list[Any]:
    name = CLASSES[comparison.direction]
    shown, middle = _drawn(comparison)
    text = f'<span class="{name}">{elements.unbroken(sentence(comparison))}</span>'
    unit = Cell("–")
    if comparison.difference is not None:
        markup = f'<span class="number">{html.escape(with_minus(comparison.difference_text))}</span>'
        unit = Cell(markup, comparison.difference.value)
    chance = f'<span class="number">{probability_text(comparison.improvement)}</span>'
    row = [
        Cell(text, sentence(comparison), "text"),
        Cell(_forest(shown, middle, scale, name), shown.value, "forest"),
        unit,
        Cell(chance, comparison.improvement.value, label="probability of improvement"),
    ]
    if several:
        up, down = clear_differences(comparison)
        markup = f'<span class="number">{up} / {down} of {comparison.envs.height}</span>'
        row.append(Cell(markup, up - down, label="clearly higher / lower on"))
    return row


def _drawn(comparison: Comparison) -> tuple[Interval, float]:
    """The interval of the picture, and its reference."""
    return (comparison.difference, 0.0) if comparison.difference is not None else (comparison.improvement, 0.5)


def _scale(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """One scale for the pictures of a table, with the references in it and some room."""
    ends = [
        e for comparison in comparisons for i, middle in [_drawn(comparison)] for e in (*i, middle) if e is not None
    ]
    low, high = min(ends), max(ends)
    room = 0.04 * (high - low) or 1.0
    return low - room, high + room


def _forest(shown: Interval, middle: float, scale: tuple[float, float], name: str) -> str:
    """An interval as a line with a dot, and a dotted line where nothing would differ."""
    value, low, high, zero = (None if x is None else _position(x, scale) for x in (*shown, middle))
    parts = [f'<line class="zero" x1="{zero}" x2="{zero}" y1="0" y2="26"/>']
    if low is not None and high is not None:
        parts.append(
            f'<line x1="{low}" x2="{high}" y1="13" y2="13" '
            'stroke="currentColor" stroke-width="3" stroke-linecap="round" stroke-opacity=".45"/>'
        )
    parts.append(f'<circle cx="{value}" cy="13" r="5" fill="currentColor"/>')
    return f'<svg class="{name}" aria-hidden="true">{"".join(parts)}</svg>'


def _axis(scale: tuple[float, float], label: str) -> str:
    """The axis below the intervals: ticks with round numbers, and its label."""
    low, high = scale
    marks = [mark for mark in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high) if low <= mark <= high]
    parts = ['<line x1="0" x2="100%" y1="1" y2="1"/>']
    for mark in marks:
        at = _position(mark, scale)
        text = with_minus(plain_number(0.0 if abs(mark) < 1e-9 * (high - low) else float(mark)))
        parts.append(f'<line x1="{at}" x2="{at}" y1="1" y2="5"/><text x="{at}" y="17">{text}</text>')
    return f'<svg aria-hidden="true">{"".join(parts)}</svg>{html.escape(label)}'


def _position(value: float, scale: tuple[float, float]) -> str:
    low, high = scale
    return f"{100 * (value - low) / (high - low):.2f}%"


def interval_cell(interval: Interval | None, *, sign: bool = True, marked: bool = False) -> Cell:
    """A number above its interval; `marked` says whether the interval lies above 0 or below."""
    if interval is None:
        return Cell("–")
    direction = interval.sign_relative_to(0.0) if marked else 0
    value, _, ends = with_minus(format_interval(interval, sign=sign)).partition(" ")
    name, text = f"number {CLASSES[direction]}".rstrip(), f"{MARKS[direction]} {value}".lstrip()
    return Cell(f'<span class="{name}">{text}</span><small>{ends}</small>', interval.value)


def _number_cell(value: float | None, text: Callable[[float], str] = format_number, *, bold: bool = False) -> Cell:
    markup = "–" if value is None else with_minus(text(value))
    return Cell(f"<b>{markup}</b>" if bold else markup, value)
