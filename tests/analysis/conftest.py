"""Tables of results that several tests use."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
import pytest

Scores = Mapping[tuple[str, str], Sequence[float | None]]  # (algorithm, env) -> scores by seed
Tidy = Callable[..., pl.DataFrame]


@pytest.fixture
def tidy() -> Tidy:
    def table(scores: Scores, step: int = 100, k: float = 0.0) -> pl.DataFrame:
        rows = [
            {"env": env, "algorithm": algorithm, "k": k, "seed": seed, "step": step, "score": score}
            for (algorithm, env), own in scores.items()
            for seed, score in enumerate(own)
        ]
        return pl.DataFrame(rows, schema_overrides={"score": pl.Float64})

    return table


@pytest.fixture(scope="session")
def two_algorithms() -> pl.DataFrame:
    """Two algorithms, 11 games, 5 seeds, 3 evaluations; scores skewed as Atari's are."""
    rng = np.random.default_rng(7)
    rows = []
    for game in range(11):
        level = rng.gamma(0.7, 2.0)
        for algorithm, gain in (("dqn", 1.0), ("ib-dqn", 1.4)):
            for seed in range(5):
                for step in (10, 20, 30):
                    score = level * gain * step / 30 * np.exp(0.4 * rng.standard_normal())
                    rows.append((f"Game{game:02d}", algorithm, 0.0, seed, step, score))
    return pl.DataFrame(rows, schema=["env", "algorithm", "k", "seed", "step", "score"], orient="row")
