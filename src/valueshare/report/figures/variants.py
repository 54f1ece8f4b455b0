"""Variants: the algorithms of a table with their k, in the paper's order, each with a label and a style."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from valueshare.analysis.learner_names import LearnerName
from valueshare.analysis.tidy import VARIANT
from valueshare.report.figures.style import SeriesStyle, distinct, paper_order, series_style
from valueshare.text import exact


class Variant(NamedTuple):
    """An algorithm with its k, and the style of its lines."""

    algorithm: str
    k: float
    style: SeriesStyle

    @property
    def name(self) -> LearnerName:
        return LearnerName.parse(self.algorithm)

    def selection(self) -> dict[str, object]:
        """The variant as a `Selection` of the analysis."""
        return {"algorithm": self.algorithm, "k": self.k}

    def rows(self, table: pl.DataFrame) -> pl.DataFrame:
        return table.filter((pl.col("algorithm") == self.algorithm) & (pl.col("k") == self.k))


def find_variants(table: pl.DataFrame, n: int | None = None) -> list[Variant]:
    """The algorithms of a table in the order of the paper's, each with a unique label and style."""
    variants = list[Variant]()
    for algorithm, k in sorted(table.select(VARIANT).unique().iter_rows(), key=lambda pair: paper_order(*pair)):
        style = series_style(algorithm, k, n)
        others = [other.style for other in variants]
        # DQN, and IB-DQN with k = 0, which is DQN; or two k that are the same number to six digits
        labels = (style.label, f"{style.label} ({algorithm})", f"{style.label} ({algorithm}, k = {exact(k)})")
        taken = {other.label for other in others}
        label = next((candidate for candidate in labels if candidate not in taken), labels[-1])
        variants.append(Variant(algorithm, k, distinct(style._replace(label=label), algorithm, others)))
    return variants


def baseline_variant(layered: Variant, variants: Sequence[Variant]) -> Variant | None:
    """The same algorithm without the layer, if it is among them: DQN, or else IB-DQN with k = 0."""
    if not layered.style.dashed:
        return None
    for algorithm in (str(layered.name.without_layer), layered.algorithm):
        for variant in variants:
            if variant.algorithm == algorithm and variant.k == 0:
                return variant
    return None
