"""What a LunarLander run leaves behind: figures, summary, scores and a page, from its records.

Works on any folder with `agents.parquet` and `records/*.parquet`, finished or not, with checkpoints
or without; `config.json` and `provenance.json` are told of where they are there.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from valueshare.analysis.aggregate import agent_means, auc, mean_intervals
from valueshare.analysis.importers.results import Results
from valueshare.errors import InvalidInput
from valueshare.files import write_json, write_whole
from valueshare.records import RECORDS, read_tables, write_table
from valueshare.report.data import Study, study_of
from valueshare.report.figures import curves
from valueshare.report.figures.style import save
from valueshare.report.page import elements
from valueshare.report.page.results import SCRIPTS, panel_data, panel_section
from valueshare.result_files import OWN_LIMIT, SizeLimit, read_parquet
from valueshare.text import how_many

ENV, ALGORITHM = "LunarLander-v3", "ib-dqn"
SMALL_K, LARGE_K = (1.0, 32.0), 4_096.0  # where the paper sees a gain, and a collapse
READING = (
    "AUC is the mean of an agent's evaluation scores over training, the one before training too.",
    (
        "Intervals are 95 % percentile bootstrap intervals over seeds of the mean. 'Above' and "
        "'below' mean that two intervals do not overlap."
    ),
    (
        "All k share one step size, as in the paper: smaller step sizes should suit larger k, so "
        "this shows k at a fixed step size and not k at its best."
    ),
    (
        "Overestimation is the action-value minus the discounted return that followed, on the "
        "scale of the training rewards, over finished evaluation episodes after training began."
    ),
    (
        "An agent that diverged is frozen and goes on being evaluated: its scores count, because "
        "leaving them out would flatter the k that broke it."
    ),
)


class Tables(NamedTuple):
    """Everything that is shown, as tables of means and intervals."""

    auc: pl.DataFrame  # by k
    overestimation: pl.DataFrame  # by k
    relative_action_gap: pl.DataFrame  # by k
    curves: pl.DataFrame  # by k and step
    scores: pl.DataFrame  # a row per agent and evaluation
    diverged: pl.DataFrame  # by k: how many


def write_lunarlander_report(run_folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Write figures/, summary.json, scores.parquet and report.html; answers the summary."""
    agents, records = read_run(run_folder)
    config, origin = (_json(run_folder / f"{name}.json") for name in ("config", "provenance"))
    tables = tabulate(agents, records)
    summary = summarise(tables, _deviations(agents, records, config))
    folder = run_folder if out is None else out
    drawings = folder / "figures"
    drawn = {
        "sensitivity": curves.sensitivity(tables.auc, tables.curves),
        "auc": curves.auc_against_k(tables.auc),
        "learning-curves": curves.learning_curves(tables.curves),
        "overestimation": curves.overestimation_against_k(tables.overestimation),
        "relative-action-gap": curves.relative_action_gap_against_k(tables.relative_action_gap),
    }
    for name, figure in drawn.items():
        save(figure, drawings, name)
    write_table(folder / "scores.parquet", tables.scores)
    write_json(folder / "summary.json", summary)
    html = _page(tables, summary, drawings, config, origin, _study(agents, records))
    write_whole(folder / "report.html", [html.encode()])
    return summary


def read_run(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table of agents and the records of all finished phases of a run folder."""
    if not (folder / "agents.parquet").is_file():
        raise InvalidInput(f"{folder} has no agents.parquet: give the folder of a training run")
    tables = read_tables(folder)
    if not tables:
        raise InvalidInput(f"{folder / RECORDS} holds no records: train first")
    agents = read_parquet(folder / "agents.parquet", SizeLimit(OWN_LIMIT))
    records = pl.concat(tables).sort("agent", "step")
    strangers = records.join(agents, on="agent", how="anti").height
    if strangers:
        raise InvalidInput(f"{folder}: {strangers} records are of agents not in agents.parquet")
    return agents, records


def tabulate(agents: pl.DataFrame, records: pl.DataFrame) -> Tables:
    """Means over training of each agent, then means and intervals over seeds for each k.

    Agents without any record count as left out, so a run under way shows what it lacks.
    """
    own = agents.select("agent", "k", "seed", env=pl.lit(ENV), algorithm=pl.lit(ALGORITHM))
    joined = own.join(records, on="agent", how="inner", maintain_order="left")
    trained = records.filter(pl.col("step") > 0)

    def by_k(values: pl.DataFrame) -> pl.DataFrame:
        return mean_intervals(own.join(values, on="agent", how="left"), ["k"])

    broken = joined.group_by("agent", "k").agg(pl.col("diverged_at").is_not_null().any())
    return Tables(
        auc=by_k(auc(records)),
        overestimation=by_k(agent_means(trained, "overestimation")),
        relative_action_gap=by_k(agent_means(trained, "relative_action_gap")),
        curves=mean_intervals(joined, ["k", "step"], "score"),
        scores=joined.select(
            *("env", "algorithm"),
            pl.col("agent", "seed", "step", "episodes").cast(pl.Int32),
            pl.col("k", "score", "overestimation", "relative_action_gap").cast(pl.Float32),
            pl.col("diverged_at").cast(pl.Int32),
        ),
        diverged=broken.group_by("k").agg(pl.col("diverged_at").sum().alias("diverged")).sort("k"),
    )


def summarise(tables: Tables, deviations: tuple[str, ...] = ()) -> dict[str, Any]:
    """The numbers and the verdict, as plain JSON."""
    above, below = compared(tables.auc)
    ks = tables.auc["k"].to_list()
    small = [k for k in ks if SMALL_K[0] <= k <= SMALL_K[1]]
    large = [k for k in ks if k >= LARGE_K]
    without = sum(tables.auc["left_out"].to_list())
    left_out = {
        "agents": sum(tables.auc["agents"].to_list()) + without,
        "agents_without_auc": without,
        "agents_diverged": sum(tables.diverged["diverged"].to_list()),
        "evaluations": tables.scores.height,
        "evaluations_without_finished_episode": tables.scores["score"].null_count(),
    }
    return {
        "verdict": [*_verdict(tables.auc, above, below, small, large), _left_out(left_out)],
        "k_1_to_32_above_plain": [k for k in small if k in above],
        "k_1_to_32_not_above_plain": [k for k in small if k not in above],
        "k_from_4096_below_plain": [k for k in large if k in below],
        "k_from_4096_not_below_plain": [k for k in large if k not in below],
        "left_out": left_out,
        "diverged_by_k": tables.diverged.to_dicts(),
        "steps": tables.curves["step"].max(),
        "evaluation_points": tables.curves["step"].n_unique(),
        "auc": tables.auc.to_dicts(),
        "overestimation": tables.overestimation.to_dicts(),
        "relative_action_gap": tables.relative_action_gap.to_dicts(),
        "curves": tables.curves.to_dicts(),
        "deviations": list(deviations),
        "notes": list(READING),
    }


def compared(auc: pl.DataFrame) -> tuple[list[float], list[float]]:
    """The k whose interval lies above that of k = 0, and those below it."""
    plain = auc.filter((pl.col("k") == 0) & pl.col("ci95_low").is_not_null())
    if plain.is_empty():
        return [], []
    others = auc.filter(pl.col("k") > 0)
    above = others.filter(pl.col("ci95_low") > plain["ci95_high"][0])
    below = others.filter(pl.col("ci95_high") < plain["ci95_low"][0])
    return above["k"].to_list(), below["k"].to_list()


def _verdict(
    auc: pl.DataFrame,
    above: list[float],
    below: list[float],
    small: list[float],
    large: list[float],
) -> list[str]:
    rows = {row["k"]: row for row in auc.to_dicts()}
    if rows.get(0.0, {}).get("ci95_low") is None:
        return ["There is no interval for k = 0, so nothing can be compared with it."]
    said = [f"k = 0 (DQN) has an AUC of {_with_interval(rows[0.0])}."]
    for name, ks, found, word in (
        ("k from 1 to 32", small, [k for k in small if k in above], "above"),
        ("k from 4,096", large, [k for k in large if k in below], "below"),
    ):
        if not ks:
            said.append(f"No {name} was run.")
        elif not found:
            said.append(f"Of {name}, none of {_joined(ks)} is {word} k = 0.")
        else:
            pick = (max if word == "above" else min)(found, key=lambda k: rows[k]["mean"])
            extreme = "best" if word == "above" else "worst"
            said.append(
                f"Of {name}, {len(found)} of {len(ks)} are {word} k = 0 ({_joined(found)}); "
                f"the {extreme} is k = {pick:g} with {_with_interval(rows[pick])}."
            )
    return said


def _left_out(counts: dict[str, int]) -> str:
    return (
        f"{counts['agents_without_auc']:,} of {counts['agents']:,} agents have no AUC (a missing "
        f"evaluation) and are left out; {counts['evaluations_without_finished_episode']:,} of "
        f"{counts['evaluations']:,} evaluations finished no episode; "
        f"{how_many(counts['agents_diverged'], 'agent')} diverged (frozen, counted all the same)."
    )


def _deviations(
    agents: pl.DataFrame, records: pl.DataFrame, config: dict[str, Any]
) -> tuple[str, ...]:
    from valueshare.experiments.lunarlander import deviations
    from valueshare.population.settings import TrainingSettings

    if ENV not in config.get("settings", {}):
        return ()
    settings = TrainingSettings.from_json(config["settings"][ENV])
    last = int(records["step"].to_numpy().max())
    unfinished = (f"the records end at step {last:,} of {settings.total_steps:,}",)
    return (unfinished if last < settings.total_steps else ()) + deviations(agents, settings)


def _study(agents: pl.DataFrame, records: pl.DataFrame) -> Study:
    """The same records as the interactive curves want them."""
    own = agents.select("agent", "k", "seed", env=pl.lit(ENV), algorithm=pl.lit(ALGORITHM))
    return study_of(Results(own.join(records, on="agent"), (), ()))


def _page(
    tables: Tables,
    summary: dict[str, Any],
    drawings: Path,
    config: dict[str, Any],
    origin: dict[str, Any],
    study: Study,
) -> str:
    agents, steps = summary["left_out"]["agents"], summary["steps"]
    headings = ("k", "mean", "low", "high", "agents", "left out")
    shown = (
        ("sensitivity", "AUC against k, and learning curves. Shaded: 95 % intervals over seeds."),
        ("overestimation", "Overestimation against k, on the scale of the training rewards."),
        ("relative-action-gap", "Relative action gap against k."),
    )
    settings = dict(next(iter(config.get("settings", {}).values()), {}))
    about = {
        key: origin[key]
        for key in ("valueshare", "commit", "machine", "libraries")
        if key in origin
    }
    sections = [
        elements.section("The result", elements.bullets(summary["verdict"]), name="result"),
        panel_section(),
        *(elements.figure(drawings / f"{name}.svg", caption) for name, caption in shown),
        elements.section("How to read it", elements.bullets(READING)),
        *(
            elements.section(heading, elements.table(headings, table.iter_rows(), name=name))
            for heading, name, table in (
                ("AUC", "auc", tables.auc),
                ("Overestimation", "overestimation", tables.overestimation),
                ("Relative action gap", "relative-action-gap", tables.relative_action_gap),
            )
        ),
        elements.section(
            "Diverged agents", elements.table(("k", "agents"), tables.diverged.iter_rows())
        ),
        elements.section(
            "How it was made",
            elements.code(str(origin.get("command", "unknown"))),
            elements.paragraph("Deviations from the paper:"),
            elements.bullets(summary["deviations"] or ["unknown: the folder has no config.json"]),
            elements.settings_table(settings | about),
            name="made",
        ),
    ]
    lead = (
        f"{how_many(agents, 'agent')}, {how_many(steps, 'step')} each: IB-DQN with "
        f"{how_many(len(tables.auc), 'value')} of k."
    )
    return elements.page(
        "LunarLander-v3: sensitivity to k",
        lead,
        sections,
        scripts=SCRIPTS,
        data=panel_data(study),
        links={"result": "The result", "curves": "Curves", "made": "How it was made"},
    )


def _with_interval(row: dict[str, Any]) -> str:
    return f"{row['mean']:.1f} [{row['ci95_low']:.1f}, {row['ci95_high']:.1f}]"


def _joined(ks: list[float]) -> str:
    return ", ".join(f"{k:g}" for k in ks)


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is no such file."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise InvalidInput(f"{path} is no JSON: restore it, or remove it") from error
    return content if isinstance(content, dict) else {}
