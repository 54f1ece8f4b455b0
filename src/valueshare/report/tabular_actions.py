"""Tabular studies that differ in their number of actions: the gain of k = 1 and k = n over k = 0 against n."""

import polars as pl

from valueshare.report.action_sets import FIGURE
from valueshare.report.figures.action_sets import Line, Panel, gain_against_actions
from valueshare.report.figures.style import ORANGE, RED, Look
from valueshare.report.folder import Drawn

NOTES = (
    (
        "The gridworld's four actions are there n / 4 times each. Copies do the same, which the learner does not know: "
        "with k = 0 it learns each of them alone."
    ),
    (
        "Each half of the seeds is scored at the step sizes that the other half chose, so no run has a part in "
        "choosing its own, apart from divergence, which is judged on all seeds: a step size at which any run diverged "
        "is no candidate. Every increase moves with the luck of the two choices for k = 0, which the bands do not hold."
    ),
)
K_IS_N = pl.col("k") == pl.col("actions")
LINES = ((Look("k = 1", ORANGE), pl.col("k") == 1), (Look("k = n", RED), K_IS_N))


def drawn_gains(increases: pl.DataFrame, measure: str) -> Drawn:
    """A row of panels per step reward, a panel per regime; `increases` are of step sizes that other seeds chose."""
    table = increases.rename({"increase_percent": "gain"})
    rows = [
        [
            Panel(f"{_case(case)}{regime:,} timesteps", [Line(look, own.filter(of_line)) for look, of_line in LINES])
            for (regime,), own in of_case.group_by("regime", maintain_order=True)
        ]
        for (case,), of_case in table.group_by("step_reward", maintain_order=True)
    ]
    caption = (
        f"Increase of the mean {measure} over k = 0 against the number of actions, each k at its best step size, "
        "chosen on the other half of the seeds. Shaded: 95 % intervals."
    )
    return Drawn(FIGURE, gain_against_actions(rows, f"{measure}: increase\nover k = 0, in %"), caption)


def headlines(increases: pl.DataFrame) -> list[str]:
    """A line per step reward: the increase of k = n at the second regime, with the fewest and the most actions."""
    regimes = increases["regime"].unique().sort()
    regime = regimes[min(1, len(regimes) - 1)]
    of_n = increases.filter(pl.col("regime") == regime, K_IS_N).drop_nulls(["increase_percent", "ci95_low"])
    lines = []
    for (case,), own in of_n.group_by("step_reward", maintain_order=True):
        ends = own.filter(pl.col("actions").is_in([own["actions"].min(), own["actions"].max()])).sort("actions")
        words = [
            f"{row['increase_percent']:+.1f} % [{row['ci95_low']:.1f}, {row['ci95_high']:.1f}] with "
            f"{row['actions']:,} actions"
            for row in ends.rows(named=True)
        ]
        lines.append(f"{_case(case)}{regime:,} timesteps: k = n over k = 0 {', '.join(words)}")
    return lines


def _case(step_reward: object) -> str:
    return "" if step_reward is None else f"{step_reward:g} per step, "
