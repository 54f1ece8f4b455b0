"""Variants: unique labels and looks."""

import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb

from valueshare.report.figures.style import series_style
from valueshare.report.figures.variants import find_variants


def test_ib_dqn_with_k_0_is_called_dqn_and_labels_differ() -> None:
    rows = [{"algorithm": "ib-dqn", "k": k} for k in (0.0, 4.0)]
    assert [v.style.label for v in find_variants(pl.DataFrame(rows))] == ["DQN", "IB-DQN(4)"]
    both = [{"algorithm": "dqn", "k": 0.0}, *rows]
    labels = [v.style.label for v in find_variants(pl.DataFrame(both))]
    assert labels == ["DQN", "DQN (ib-dqn)", "IB-DQN(4)"]


def test_an_imported_dqn_with_several_k_keeps_all_of_them() -> None:
    ks = [0.0, 1.0, 2.0, 4.0, 4.0000001, 4.0000002]
    variants = find_variants(pl.DataFrame([{"algorithm": "dqn", "k": k} for k in ks]))
    assert [variant.k for variant in variants] == ks
    assert [variant.style.label for variant in variants] == [
        *("DQN", "DQN(1)", "DQN(2)", "DQN(4)", "DQN(4) (dqn)", "DQN(4) (dqn, k = 4.0000002)")
    ]


def drawn(algorithms: list[tuple[str, float]]) -> list[tuple[str, object]]:
    """Colour and line of each, in a figure of all of them."""
    table = pl.DataFrame(algorithms, ["algorithm", "k"], orient="row")
    return [(variant.style.colour, variant.style.line) for variant in find_variants(table)]


@pytest.mark.parametrize(
    "algorithms",
    [
        [("dqn", 0.0), ("ib-dqn", 0.0), ("ib-dqn", 4.0)],
        [(f"ib-dqn step_size={size}", k) for size in ("0.001", "0.0003", "0.0001") for k in (0.0, 1.0, 4.0)],
        [("ib-dqn", float(k)) for k in (0, 1, 2, 3, 4, 5, 6, 8, 10)],
        [("ib-dqn", 1.0), ("ib-double-dqn", 1.0), ("ib-iqn", 1.0), ("dqn", 0.0), ("PPO", 0.0), ("SAC", 0.0)],
    ],
)
def test_no_two_algorithms_of_a_figure_look_alike(algorithms: list[tuple[str, float]]) -> None:
    found = drawn(algorithms)
    for i, (colour, line) in enumerate(found):
        for other, other_line in found[:i]:
            apart = np.abs(np.subtract(to_rgb(colour), to_rgb(other))).max()
            assert line != other_line or apart > 0.15


def test_what_looks_like_no_other_keeps_its_look() -> None:
    paper = [("dqn", 0.0), ("dueling-dqn", 0.0), ("ib-dqn", 1.0), ("ib-dqn", 18.0), ("rdq", 0.0), ("iqn", 0.0)]
    assert drawn(paper) == [(own.colour, own.line) for own in (series_style(*one) for one in paper)]
