"""Tables of scores: a row per environment, a column per algorithm, the best in bold.

As in the paper: the mean of the last three evaluations over seeds, one decimal, and the highest score of an environment
bold, with quantile networks compared among themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import polars as pl

from valueshare.analysis.csv_text import csv_text
from valueshare.analysis.run_values import final_scores
from valueshare.analysis.scales import human_normalized
from valueshare.analysis.scores import PAPER_AGENTS, game_name, has_human_score, paper_scores
from valueshare.analysis.tidy import VARIANT, Estimate
from valueshare.errors import InvalidInput
from valueshare.report.figures.series import game, with_k
from valueshare.report.figures.variants import Variant, find_variants
from valueshare.text import FINAL_SCORE, LAST_SCORE

MISSING = "–"
FINAL = f"Final score: the {FINAL_SCORE}. The command train ends with the {LAST_SCORE} alone."
BOLD = "Bold: the highest, quantile networks among themselves."


class ScoreTable(NamedTuple):
    """Formatted scores: `scores[row][column]`, None for missing ones."""

    envs: tuple[str, ...]
    variants: tuple[Variant, ...]
    scores: tuple[tuple[float | None, ...], ...]

    def rows(self) -> Iterator[tuple[str, list[tuple[float | None, bool]]]]:
        """The name of every environment, and each score with whether it is bold.

        Bold are the highest of a row, quantile networks among themselves; all of equals.
        """
        first = self.first_quantile
        for env, scores in zip(self.envs, self.scores, strict=True):
            cells = list[tuple[float | None, bool]]()
            for part in (scores[:first], scores[first:]):
                best = max((score for score in part if score is not None), default=None)
                cells += [(score, score is not None and score == best) for score in part]
            yield game(env), cells

    @property
    def first_quantile(self) -> int:
        """The first column of a quantile network; they are last."""
        return sum(not variant.name.is_quantile for variant in self.variants)


def mean_scores(table: pl.DataFrame) -> Estimate:
    """The mean over seeds of the last three evaluations, from a tidy table.

    Returns `env, algorithm, k, score, seeds`, and notes on runs that ended before the others.
    """
    finals, notes = final_scores(with_k(table))
    means = finals.group_by("env", *VARIANT).agg(
        pl.col("score").mean(), pl.col("score").count().cast(pl.Int64).alias("seeds")
    )
    return Estimate(means.sort("env", *VARIANT), notes)


def published() -> pl.DataFrame:
    """The published scores in this package's words: `game, algorithm, k, score`."""
    algorithms, ks = (
        dict(zip(PAPER_AGENTS, values, strict=True)) for values in zip(*PAPER_AGENTS.values(), strict=True)
    )
    agent = pl.col("algorithm")
    return paper_scores().select("game", agent.replace_strict(algorithms), agent.replace_strict(ks).alias("k"), "score")


def score_table(means: pl.DataFrame, n: int | None = None) -> ScoreTable:
    """A table to print, from `env` (or `game`), `algorithm, k, score`."""
    if means.is_empty():
        raise InvalidInput("no run has a final score: there is no table to write")
    rows = means.rename({"game": "env"}) if "env" not in means.columns else means
    envs = sorted(rows["env"].unique().to_list(), key=lambda env: game(env).lower())
    variants = sorted(find_variants(rows, n), key=lambda v: v.name.is_quantile)  # last, as in the paper
    known = {(e, a, k): score for e, a, k, score in rows.select("env", *VARIANT, "score").iter_rows()}
    scores = tuple(tuple(known.get((env, v.algorithm, v.k)) for v in variants) for env in envs)
    return ScoreTable(tuple(envs), tuple(variants), scores)


def to_latex(table: ScoreTable) -> str:
    """A tabular for booktabs, with a double line before quantile networks."""
    rules = "".join("||c" if i == table.first_quantile > 0 else "|c" for i in range(len(table.variants)))
    names = [_tex(v.style.label).replace("(n)", "($n$)") for v in table.variants]
    lines = [
        rf"\begin{{tabular}}{{@{{}}l{rules}@{{}}}}\toprule",
        " & ".join([r"\textbf{Environment}", *names]) + r" \\",
        r"\midrule",
    ]
    for env, cells in _rows(table, lambda text: rf"\textbf{{{text}}}"):
        cells = [cell.replace(MISSING, "--") for cell in cells]
        lines.append(" & ".join([rf"\textsc{{{_tex(env)}}}", *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def to_markdown(table: ScoreTable) -> str:
    names = ["environment", *(v.style.label for v in table.variants)]
    rows = [[_markdown(env), *cells] for env, cells in _rows(table, lambda text: f"**{text}**")]
    text = _markdown_table(names, [False] + [True] * len(table.variants), rows)
    two_bold = 0 < table.first_quantile < len(table.variants)  # in a row, which would look like a mistake
    return f"{text}\n{BOLD}\n" if two_bold else text


def to_csv(table: ScoreTable) -> str:
    """The table for programs: all digits, nothing bold."""
    columns: dict[str, Sequence[str | float | None]] = {"environment": table.envs}
    for i, variant in enumerate(table.variants):
        columns[variant.style.label] = [row[i] for row in table.scores]
    return csv_text(pl.DataFrame(columns, strict=False))


def beside_published(means: pl.DataFrame, n: int | None = None) -> pl.DataFrame:
    """A run's Atari scores beside the published ones of the same algorithm and k.

    Returns `game, algorithm, seeds, score, published, percent, human_normalized, published_human_normalized`, percent =
    100 (score - published) / |published|. Nulls where the paper has no run.
    """
    atari_means = means.filter(pl.col("env").map_elements(has_human_score, return_dtype=pl.Boolean))
    if atari_means.is_empty():
        raise InvalidInput("there is no Atari game in the table: only Atari scores were published")
    named = atari_means.with_columns(game=pl.col("env").map_elements(game_name, return_dtype=pl.String))
    scores = published().rename({"score": "published"})
    named = named.join(scores, on=["game", *VARIANT], how="left", maintain_order="left")
    normal = human_normalized(named)
    theirs = human_normalized(named.drop("env"), "published")["human_normalized"]
    labels = {(v.algorithm, v.k): v.style.label for v in find_variants(atari_means, n)}
    order = {label: index for index, label in enumerate(labels.values())}
    size = pl.when(pl.col("published") != 0).then(pl.col("published").abs())
    return (
        normal.with_columns(
            published_human_normalized=theirs,
            percent=100 * (pl.col("score") - pl.col("published")) / size,
            algorithm=pl.Series([labels[variant] for variant in atari_means.select(VARIANT).iter_rows()]),
        )
        .select(
            "game",
            "algorithm",
            "seeds",
            "score",
            "published",
            "percent",
            "human_normalized",
            "published_human_normalized",
        )
        .sort("game", pl.col("algorithm").replace_strict(order, return_dtype=pl.Int64))
    )


def frame_to_markdown(frame: pl.DataFrame) -> str:
    """Any table as Markdown: four digits, a dash for nothing."""
    names = [name.replace("_", " ") for name in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame.iter_rows()]
    return _markdown_table(names, [dtype.is_numeric() for dtype in frame.dtypes], rows)


def _markdown_table(names: Sequence[str], numeric: Sequence[bool], rows: Sequence[Sequence[str]]) -> str:
    rule = "|" + "".join("---:|" if number else "---|" for number in numeric)
    head, *body = (f"| {' | '.join(row)} |" for row in ([*map(_markdown, names)], *rows))
    return "\n".join([head, rule, *body, ""])


def _rows(table: ScoreTable, bold: Callable[[str], str]) -> Iterator[tuple[str, list[str]]]:
    for name, scores in table.rows():
        texts = [(MISSING if score is None else f"{score:z.1f}", best) for score, best in scores]
        yield name, [bold(text) if best else text for text, best in texts]


def _cell(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1_000 else f"{value:,.0f}"
    return _markdown(str(value))


def _tex(text: str) -> str:
    """Text escaped for TeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: "\\" + character for character in "&%$#_{}"}
    return "".join(special.get(character, character) for character in text)


def _markdown(text: str) -> str:
    """Text escaped for Markdown, on one line."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return "".join("\\" + character if character in "\\|*_`[]" else character for character in plain)
