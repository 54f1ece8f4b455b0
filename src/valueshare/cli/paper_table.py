"""The command `paper-table`: the published Atari scores, and what they are on the human scale."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl


def paper_table(
    *,
    human_normalized: bool = False,
    format: Literal["text", "csv"] = "text",  # noqa: A002 (the name of the option)
) -> None:
    """The paper's Atari scores: 57 games, 7 agents, and the IQM of their human-normalised scores.

    Args:
        human_normalized: Every score as (score - random) / (human - random).
        format: Aligned text, or CSV of the scores alone.
    """
    from valueshare.analysis import scales, scores
    from valueshare.analysis.csv_text import csv_text

    long = scales.human_normalized(scores.paper_scores())
    shown = "human_normalized" if human_normalized else "score"
    wide = long.pivot(on="algorithm", index="game", values=shown)
    if format == "csv":
        print(csv_text(wide), end="")
        return
    print("\n".join(_lines(long, wide, decimals=2 if human_normalized else 1)))
    print()
    kind = "Human-normalised scores" if human_normalized else "Scores"
    print(f"{kind}: means over the last three of 200 evaluations and over five seeds, as published.")
    print("IQM: interquartile mean, over the 57 games, of human-normalised scores.")
    print(scores.BASELINES)


def _lines(long: "pl.DataFrame", wide: "pl.DataFrame", *, decimals: int) -> list[str]:
    """The table as aligned text: one line per game, then the IQM of each agent."""
    from valueshare.analysis.statistics import iqm
    from valueshare.text import aligned

    agents = wide.columns[1:]
    rows = [["game", *agents]]
    rows += [[game, *(f"{score:,.{decimals}f}" for score in scores)] for game, *scores in wide.iter_rows()]
    normalised = long.partition_by("algorithm", as_dict=True)
    levels = [iqm(normalised[(agent,)]["human_normalized"].to_numpy()) for agent in agents]
    rows.append(["IQM", *(f"{level:.2f}" for level in levels)])
    lines = aligned(rows, right=True)
    rule = "-" * len(lines[0])
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]
