"""One number per run, from its learning curve: the area under it, or how it ends."""

import polars as pl

from valueshare.analysis.scores import has_human_score
from valueshare.analysis.tidy import RUN_COLUMNS, Estimate, finite, group_label, require
from valueshare.errors import InvalidInput
from valueshare.text import shorten_list

LAST = 3  # evaluations in the paper's table of scores
SIMILAR_GAPS = 0.75  # shortest by longest: other programs evaluate at the end of an episode


def run_auc(table: pl.DataFrame, column: str = "score") -> Estimate:
    """The area under each run's curve: the mean of a column over all evaluations.

    Returns a row per run: the columns of `RUN_COLUMNS`, the value, and `points, missing`. The evaluations are the steps
    at which any run of the environment has a value. A run that lacks some has null: a mean over other points than those
    of the other runs is another quantity, and usually too high. The evaluation before training counts, as in the
    paper's LunarLander study, but not in Atari games, where the paper evaluates only after phases of training.
    """
    atari = [env for env in _envs_with_training(table) if has_human_score(env)]
    trained = (pl.col("step") > 0) | ~pl.col("env").is_in(atari)
    return _means(table.filter(trained), column, None)


def final_scores(table: pl.DataFrame, column: str = "score", *, last: int = LAST) -> Estimate:
    """The mean of the last evaluations of each run: of three, as in the paper's table.

    The last evaluations are those of the environment: a run that ended earlier has null. The evaluation before training
    is never one of them. Where an environment has fewer, the mean is of these, and a note says so.
    """
    if last < 1:
        raise InvalidInput(f"`last = {last}`: write a number >= 1")
    trained = (pl.col("step") > 0) | ~pl.col("env").is_in(_envs_with_training(table))
    values, notes = _means(table.filter(trained), column, last)
    points = values.select("env", pl.col("points") + pl.col("missing")).unique().filter(pl.col("points") < last)
    few = [f"{env} {count}" for env, count in points.sort("env").iter_rows() if count]
    short = f"final scores are means of fewer than {last} evaluations, as there are no more: {shorten_list(few)}"
    return Estimate(values, (*([short] if few else []), *notes))


def at_shared_steps(table: pl.DataFrame) -> pl.DataFrame:
    """The rows at the steps at which every run was evaluated that got so far, environment by environment.

    Runs with other evaluation intervals are comparable there.
    """
    run_columns = [name for name in RUN_COLUMNS if name in table.columns]
    ends = table.group_by(run_columns).agg(last=pl.col("step").max()).select("env", "last")
    here = table.group_by("env", "step").agg(present=pl.len())
    expected = here.join(ends, on="env").filter(pl.col("last") >= pl.col("step"))
    expected = expected.group_by("env", "step", "present").agg(expected=pl.len())
    shared = expected.filter(pl.col("present") == pl.col("expected"))
    return table.join(shared, on=["env", "step"], how="semi", maintain_order="left")


def uneven_evaluations(table: pl.DataFrame) -> list[str]:
    """A note where gaps between a run's evaluations differ much, so that the AUC weighs parts of training unequally."""
    run_columns = [name for name in RUN_COLUMNS if name in table.columns]
    gap = pl.col("step").sort().diff()
    gaps = table.group_by(run_columns).agg(shortest=gap.min(), longest=gap.max())
    uneven = gaps.filter(pl.col("shortest") < SIMILAR_GAPS * pl.col("longest"))
    where = shorten_list(uneven["env"].unique().sort().to_list())
    return [f"{where}: evaluations are not evenly spaced, and AUC counts each of them equally"] if where else []


def by_last_score(table: pl.DataFrame) -> pl.DataFrame:
    """The last row of each agent, the best agent first; of equals, the one with the lower number.

    An agent without a score in its last evaluation is left out: an older one is of other weights.
    """
    last = table.sort("step").group_by("agent").last().drop_nulls("score")
    return last.sort("score", "agent", descending=[True, False])


def diverged(table: pl.DataFrame) -> pl.Expr:
    """Whether the agent of a row had diverged."""
    return pl.col("diverged_at").is_not_null() if "diverged_at" in table.columns else pl.lit(False)


def without_diverged(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of agents that did not diverge, not even later: the scores of a frozen agent say nothing."""
    return table.filter(~diverged(table).any().over("agent"))


def with_divergence(values: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Values of runs, as `run_auc` returns them, with a column `diverged`: whether the run of the table did."""
    run_columns = [name for name in RUN_COLUMNS if name in values.columns]
    ends = table.group_by(run_columns).agg(diverged=diverged(table).any())
    return values.join(ends, on=run_columns, nulls_equal=True, maintain_order="left")


def _envs_with_training(table: pl.DataFrame) -> list[str]:
    """Environments with more than an evaluation before training."""
    require(table, "env", "step")
    return table.filter(pl.col("step") > 0)["env"].unique().to_list()


def _means(table: pl.DataFrame, column: str, last: int | None) -> Estimate:
    require(table, "env", "seed", "step", column)
    run_columns = [name for name in RUN_COLUMNS if name in table.columns]
    if table.select(*run_columns, "step").is_duplicated().any():
        raise InvalidInput("the table holds a run's evaluation twice: give each run once")
    rows = finite(table, column)
    steps = rows.drop_nulls(column).select("env", "step").unique().sort("env", "step")
    if last is not None:
        steps = steps.group_by("env", maintain_order=True).tail(last)
    wanted = steps.group_by("env").agg(pl.len().cast(pl.Int64).alias("wanted"))
    counted = pl.col(column).filter("counts")
    result = (
        rows.join(steps.with_columns(counts=pl.lit(True)), on=["env", "step"], how="left")
        .sort("step")
        .group_by(run_columns)
        .agg(counted.mean(), counted.count().cast(pl.Int64).alias("points"))
        .join(wanted, on="env", how="left")
        .with_columns(missing=pl.col("wanted").fill_null(0) - pl.col("points"))
        .with_columns(pl.when(pl.col("missing") == 0).then(column).alias(column))
        .select(*run_columns, column, "points", "missing")
        .sort(run_columns)
    )
    partial = result.filter(pl.col("missing") > 0)
    groups = [name for name in ("algorithm", "k", "env") if name in result.columns]
    places = [
        f"{group_label(dict(zip(groups, who, strict=True)))} {many:,}"
        for *who, many in partial.group_by(groups).len().sort(groups).iter_rows()
    ]
    if not places:
        return Estimate(result, ())
    lack = f"{partial.height:,} of {result.height:,} runs lack evaluations that others have there"
    return Estimate(result, (f"{lack}, and have no value: {shorten_list(places)}",))
