"""Made-up results for tests: in the shape of the paper's Atari study, or a few scores.

No agent was trained: every row says so in its column `source`. The curves rise to the published
scores, so that figures of them look like figures; they are evidence of nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from valueshare.analysis.importers.results import Results
from valueshare.analysis.scores import atari_baselines
from valueshare.errors import InvalidInput
from valueshare.files import write_json
from valueshare.report.data import SYNTHETIC as SOURCE
from valueshare.report.data import ReportData, report_data
from valueshare.report.tables import published

PHASE = 250_000  # timesteps
ALGORITHMS = (  # algorithm, k, speed of learning, overestimation, action gap
    ("dqn", 0.0, 1.0, 1.0, 1.0),
    ("dueling-dqn", 0.0, 1.05, 1.1, 1.1),
    ("ib-dqn", 1.0, 1.2, 0.7, 1.3),
    ("ib-dqn", 18.0, 1.7, 0.2, 2.2),
    ("rdq", 0.0, 1.8, 0.3, 1.8),
    ("iqn", 0.0, 1.1, 0.6, 1.4),
    ("ib-iqn", 18.0, 1.6, 0.15, 2.4),
)


def synthetic_results(games: int = 57, seeds: int = 5, points: int = 200, seed: int = 0) -> pl.DataFrame:
    """A tidy table of made-up results: games x 7 algorithms x seeds x evaluation points.

    The same arguments give the same table.
    """
    known = atari_baselines()
    if not (1 <= games <= known.height and seeds >= 1 and points >= 1):
        raise InvalidInput(
            f"games = {games}, seeds = {seeds}, points = {points}: write numbers >= 1, and at most {known.height} games"
        )
    known = known.head(games)
    rng = np.random.default_rng(seed)
    shape = (games, len(ALGORITHMS), seeds, points)
    speed, over, gap = np.array([row[2:] for row in ALGORITHMS]).T[:, None, :, None, None]
    time = np.arange(1, points + 1) / points  # [T], of 50M timesteps
    random = known["random"].to_numpy()[:, None, None, None]
    end = _final(known)[:, :, None, None]

    def of_game(spread: float) -> np.ndarray:
        return np.exp(spread * rng.standard_normal((games, 1, 1, 1)))

    def of_pair(spread: float) -> np.ndarray:
        return np.exp(spread * rng.standard_normal(shape[:2]))[..., None, None]

    def of_seed(spread: float) -> np.ndarray:
        return np.exp(spread * rng.standard_normal(shape[:3]))[..., None]

    pace = 4 * speed * of_game(0.5) * of_seed(0.15)
    risen = (1 - np.exp(-pace * time)) / (1 - np.exp(-pace))
    noise = 1 + 0.06 * rng.standard_normal(shape)
    score = random + (end - random) * risen * of_seed(0.08) * noise
    overestimation = (
        5 * of_game(1.0) * (over * of_pair(0.3) * of_seed(0.25) * time**0.5 - 0.15 + 0.04 * rng.standard_normal(shape))
    )
    relative_gap = 0.003 * of_game(0.6) * gap * of_pair(0.3) * of_seed(0.2)
    relative_gap = relative_gap * np.exp(0.05 * rng.standard_normal(shape))
    size = int(np.prod(shape))
    index = np.indices(shape).reshape(4, size)
    names = np.array(known["game"].to_list())
    algorithms = np.array([row[0] for row in ALGORITHMS])
    ks = np.array([row[1] for row in ALGORITHMS])
    return pl.DataFrame(
        {
            "env": names[index[0]],
            "algorithm": algorithms[index[1]],
            "k": ks[index[1]],
            "seed": index[2].astype(np.int64),
            "step": PHASE * (index[3] + 1).astype(np.int64) * (200 // points or 1),
            "score": score.reshape(size),
            "overestimation": overestimation.reshape(size),
            "relative_action_gap": relative_gap.reshape(size),
        }
    ).with_columns(source=pl.lit(SOURCE))


def write_synthetic_run(folder: Path, table: pl.DataFrame) -> Path:
    """Write made-up results as a run folder without settings, whose provenance says what they are."""
    who = ("env", "algorithm", "k", "seed")
    agents = table.select(who).unique(maintain_order=True).with_row_index("agent")
    agents = agents.with_columns(pl.col("agent").cast(pl.Int64))
    records = agents.join(table, on=who, maintain_order="left").drop(*who, "source")
    (folder / "records").mkdir(parents=True)
    agents.write_parquet(folder / "agents.parquet")
    records.write_parquet(folder / "records" / "synthetic.parquet")
    write_json(folder / "provenance.json", {"command": "none: no agent was trained", SOURCE: True})
    return folder


def _final(games: pl.DataFrame) -> np.ndarray:
    """The published scores. Shape: [games, algorithms]."""
    columns = []
    for algorithm, k, *_ in ALGORITHMS:
        own = published().filter((pl.col("algorithm") == algorithm) & (pl.col("k") == k))
        columns.append(games.join(own, on="game", maintain_order="left")["score"].to_numpy())
    return np.stack(columns, axis=1)


RESAMPLES = 200
Scores = Mapping[tuple[str, str, float, int], Sequence[float | None]]


def tidy(scores: Scores) -> Results:
    """Results from (env, algorithm, k, seed) -> scores at steps 0, 10, 20, ..."""
    rows = [
        {"env": env, "algorithm": algorithm, "k": k, "seed": seed, "step": 10 * i, "score": score}
        for (env, algorithm, k, seed), own in scores.items()
        for i, score in enumerate(own)
    ]
    return Results(pl.DataFrame(rows, infer_schema_length=None), (), ())


def data_of(scores: Scores) -> ReportData:
    return report_data(tidy(scores), RESAMPLES)


# Two seeds each: AUC of DQN 1 and 3, of IB-DQN(4) 11 and 13.
TWO: Scores = {
    ("Here", "dqn", 0.0, 0): [0.0, 2.0],
    ("Here", "dqn", 0.0, 1): [2.0, 4.0],
    ("Here", "ib-dqn", 4.0, 0): [10.0, 12.0],
    ("Here", "ib-dqn", 4.0, 1): [12.0, 14.0],
}
# A third each, 2 and 12: as many as an interval needs.
THREE: Scores = {**TWO, ("Here", "dqn", 0.0, 2): [1.0, 3.0], ("Here", "ib-dqn", 4.0, 2): [11.0, 13.0]}
