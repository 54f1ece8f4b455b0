"""The results table: numbers, bold, and text that no name can break."""

import io

import polars as pl
import pytest

from valueshare.errors import InvalidInput
from valueshare.report import tables


def means(rows: list[tuple[str, str, float, float | None]]) -> pl.DataFrame:
    schema = {"env": pl.String, "algorithm": pl.String, "k": pl.Float64, "score": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def paper_line(game: str) -> str:
    text = tables.to_latex(tables.score_table(tables.published(), 18))
    return next(line for line in text.splitlines() if line.startswith(rf"\textsc{{{game}}}"))


PRINTED = r"""
Alien & 3446.7& 3686.3& 3602.8& 3751.2& \textbf{5075.3} & 3886.3& \textbf{4298.1} \\
Berzerk & 628.5& 493.9& \textbf{691.2} & 576.8& 597.2& \textbf{718.2} & 593.9\\
DoubleDunk & -2.3& -5.3& \textbf{9.6} & -7.0& 3.1& -1.8& \textbf{2.0} \\
Skiing & -23539.1& \textbf{-10948.9} & -24026.5& -11007.6& -30000.0& -22549.1& \textbf{-10119.8} \\
"""  # the paper's own table; of equal scores it has the first in bold, ours all


@pytest.mark.parametrize("line", PRINTED.strip().splitlines())
def test_the_published_table_comes_out_as_printed(line: str) -> None:
    game, scores = line.split(" & ", 1)
    ours = paper_line(game).removeprefix(rf"\textsc{{{game}}} & ")
    assert ours.replace(" ", "") == scores.replace(" ", "")


def test_the_head_is_the_papers() -> None:
    lines = tables.to_latex(tables.score_table(tables.published(), 18)).splitlines()
    assert lines[0] == r"\begin{tabular}{@{}l|c|c|c|c|c||c|c@{}}\toprule"
    assert lines[1] == (
        r"\textbf{Environment} & DQN & Dueling DQN & IB-DQN(1) & IB-DQN($n$) & RDQ & IQN & "
        r"IB-IQN($n$) \\"
    )
    assert len(lines) == 3 + 57 + 2


def test_final_scores_are_means_of_three_evaluations_over_seeds() -> None:
    rows = [
        ("Pong", "dqn", seed, step, float(value))
        for seed, curve in enumerate(([9, 1, 2, 3], [9, 4, 5, 9], [9, 1]))
        for step, value in enumerate(curve)
    ]
    table = pl.DataFrame(rows, ["env", "algorithm", "seed", "step", "score"], orient="row")
    found, notes = tables.mean_scores(table)
    # (1+2+3)/3 = 2 and (4+5+9)/3 = 6; the third seed ended before the last three.
    assert found.to_dicts() == [{"env": "Pong", "algorithm": "dqn", "k": 0.0, "score": 4.0, "seeds": 2}]
    assert "1 of 3 runs lack evaluations" in notes[0]


def test_markdown_and_csv() -> None:
    table = tables.score_table(
        means(
            [
                ("b", "dqn", 0.0, 1.25),
                ("a", "dqn", 0.0, 3.0),
                ("a", "iqn", 0.0, 2.0),
                ("a", "ib-dqn", 4.0, 3.5),
                ("b", "ib-dqn", 4.0, None),
            ]
        )
    )
    assert tables.to_markdown(table).splitlines() == [
        "| environment | DQN | IB-DQN(4) | IQN |",
        "|---|---:|---:|---:|",
        "| a | 3.0 | **3.5** | **2.0** |",
        "| b | **1.2** | – | – |",
        "",
        "Bold: the highest, quantile networks among themselves.",
    ]
    equal: list[tuple[str, str, float, float | None]] = [
        ("a", "dqn", 0.0, 1.0),
        ("a", "ib-dqn", 4.0, 1.0),
        ("a", "rdq", 0.0, 0.5),
    ]
    assert tables.to_markdown(tables.score_table(means(equal))).splitlines()[2:] == ["| a | **1.0** | **1.0** | 0.5 |"]
    read = pl.read_csv(io.StringIO(tables.to_csv(table)))
    assert read.rows() == [("a", 3.0, 3.5, 2.0), ("b", 1.25, None, None)]  # all digits
    assert read.columns == ["environment", "DQN", "IB-DQN(4)", "IQN"]
    with pytest.raises(InvalidInput, match="no table"):
        tables.score_table(means([]))


def test_names_stay_text() -> None:
    evil = r"<script>|a_b\input{x}%&$#~^*"
    table = tables.score_table(means([(evil, evil, 0.0, 1.0)]))
    tex = tables.to_latex(table)
    assert r"<script>|a\_b\textbackslash{}input\{x\}\%\&\$\#\textasciitilde{}\textasciicircum{}*" in tex
    row = tables.to_markdown(table).splitlines()[2]
    assert "<" not in row
    assert row.count("|") - row.count(r"\|") == 3  # the bars of two cells
    read = pl.read_csv(io.StringIO(tables.to_csv(table)))
    assert read["environment"].to_list() == [evil]


def test_scores_beside_the_published_ones() -> None:
    own = means(
        [
            ("ALE/Pong-v5", "dqn", 0.0, 9.9),
            ("ALE/Pong-v5", "double-dqn", 0.0, 20.0),
            ("CartPole-v1", "dqn", 0.0, 500.0),
            ("MontezumaRevenge", "dqn", 0.0, 5.0),
        ]
    ).with_columns(seeds=pl.lit(3))
    beside = tables.beside_published(own, 18).to_dicts()
    assert [(row["game"], row["algorithm"]) for row in beside] == [
        ("MontezumaRevenge", "DQN"),
        ("Pong", "DQN"),
        ("Pong", "Double DQN"),
    ]
    montezuma, dqn, double = beside
    assert (dqn["score"], dqn["published"], dqn["seeds"]) == (9.9, 19.8, 3)
    assert dqn["percent"] == pytest.approx(-50.0)
    # Pong: random -20.7, human 14.6.
    assert dqn["human_normalized"] == pytest.approx((9.9 + 20.7) / (14.6 + 20.7))
    assert dqn["published_human_normalized"] == pytest.approx((19.8 + 20.7) / (14.6 + 20.7))
    assert double["published"] is None  # the paper did not run it
    assert montezuma["percent"] is None  # of 0
    assert "| Pong | Double DQN | 3 | 20 | – | – |" in tables.frame_to_markdown(tables.beside_published(own, 18))
    with pytest.raises(InvalidInput, match="no Atari game"):
        tables.beside_published(own.filter(pl.col("env") == "CartPole-v1"))
