"""Statistics of records: tidy tables in, tidy tables out.

>>> from valueshare.analysis import iqm
>>> iqm([0.0, 1.0, 2.0, 30.0])  # a quarter of the values is dropped at either end
1.5
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from valueshare.analysis.comparison import (
        game_differences,
        performance_profile,
        probability_of_improvement,
        shared_evaluations,
    )
    from valueshare.analysis.efficiency import sample_efficiency, sample_efficiency_interval
    from valueshare.analysis.importers.results import Results, read_results
    from valueshare.analysis.intervals import bootstrap_interval, difference_interval, iqm_curves
    from valueshare.analysis.run_values import final_scores, run_auc
    from valueshare.analysis.scales import human_normalized
    from valueshare.analysis.scores import atari_baselines, paper_scores
    from valueshare.analysis.statistics import iqm, optimality_gap
    from valueshare.analysis.tidy import Estimate

__all__ = [
    "iqm",
    "optimality_gap",
    "human_normalized",
    "atari_baselines",
    "paper_scores",
    "run_auc",
    "final_scores",
    "bootstrap_interval",
    "iqm_curves",
    "difference_interval",
    "probability_of_improvement",
    "performance_profile",
    "game_differences",
    "sample_efficiency",
    "sample_efficiency_interval",
    "shared_evaluations",
    "read_results",
    "Results",
    "Estimate",
]

# Imported on first use: without intervals, Numba is not needed.
_HOMES = {
    "comparison": ("probability_of_improvement", "performance_profile", "game_differences", "shared_evaluations"),
    "efficiency": ("sample_efficiency", "sample_efficiency_interval"),
    "importers.results": ("read_results", "Results"),
    "intervals": ("bootstrap_interval", "difference_interval", "iqm_curves"),
    "run_values": ("final_scores", "run_auc"),
    "scales": ("human_normalized",),
    "scores": ("atari_baselines", "paper_scores"),
    "statistics": ("iqm", "optimality_gap"),
    "tidy": ("Estimate",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"valueshare.analysis.{home}"), name)
    raise AttributeError(f"module 'valueshare.analysis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
