"""The runs of a report: agents, settings, machine, libraries, and the command to repeat them."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from valueshare.algorithm_info import algorithm_label
from valueshare.analysis.importers.results import Results, Source
from valueshare.analysis.intervals import mean_intervals
from valueshare.analysis.learner_names import LearnerName
from valueshare.analysis.run_values import diverged, final_scores, run_auc
from valueshare.analysis.tidy import AGENT_SETTINGS, CI95
from valueshare.report.data import ReportData
from valueshare.report.figures.series import game, seed_count
from valueshare.report.interval import Interval
from valueshare.report.numbers import finite_floats
from valueshare.report.page import elements
from valueshare.report.page.elements import Cell
from valueshare.report.page.tables import interval_cell
from valueshare.report.tables import FINAL
from valueshare.runs.provenance import DEVIATIONS
from valueshare.text import format_steps, pluralize

ORIGIN = ("valueshare", "commit", "python", "machine", "libraries", "started", "finished")
SOURCES = {"run": "a run folder", "table": "a tidy table", "pfrl": "PFRL", "stable-baselines3": "Stable-Baselines3"}
AGENT_COLUMNS = ("environment", "algorithm", "k", "seeds", "last step", "AUC", "final score", "diverged")


def title(data: ReportData) -> str:
    envs, names = data.envs, _algorithms(data)
    kind = "Atari games" if data.is_atari else "MinAtar games" if data.is_minatar else "environments"
    where = game(envs[0]) if len(envs) == 1 else f"{len(envs)} {kind}"
    learners = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    learners = learners if len(names) <= 3 else f"{len(_learners(data))} algorithms"
    swept = f" with {len(data.ks)} values of k" if len(data.ks) > 2 and len(names) == 1 else ""
    return f"{where}: {learners}{swept}"


def subtitle(data: ReportData) -> str:
    """1,995 agents: 57 environments, 7 algorithms, 5 seeds each; 50M timesteps, 200 evaluations."""
    table = data.main
    runs = table.select("env", "algorithm", "k", "seed").n_unique()
    points = table.group_by("env").agg(pl.col("step").n_unique())["step"].to_list()
    learners = len(_learners(data))
    is_sweep = len(_algorithms(data)) == 1 and learners > 1
    is_swept = any(v.name.settings for v in data.variants)
    parts = [
        pluralize(len(data.envs), "environment"),
        f"{learners} values of k" if is_sweep else pluralize(learners, "algorithm"),
        *([pluralize(len(data.runs), "run")] if data.names_include_run else []),
        *([f"{len(data.variants)} combinations of settings"] if is_swept else []),
        seed_count(table),
    ]
    return (
        f"{pluralize(runs, 'agent')}: {', '.join(parts)} each; "
        f"up to {format_steps(int(table['step'].to_numpy().max()))} timesteps, {pluralize(max(points), 'evaluation')}."
    )


def deviations(results: Results) -> list[str]:
    """Deviations from published settings, as the runs of a study have recorded them."""
    origins = (source.provenance or {} for source in results.sources)
    return list(dict.fromkeys(deviation for origin in origins for deviation in origin.get(DEVIATIONS, ())))


def about_parts(data: ReportData, names: Mapping[str, str]) -> list[str]:
    """The section on the runs and agents; `names` are short names of the sources."""
    parts = []
    if sentences := deviations(data.results):
        parts += [elements.paragraph("Deviations from the published settings:"), elements.bullets(sentences)]
    for source in data.results.sources:
        parts += _source(source, names[source.path])
    rows, caption = _by_algorithm(data), "The agents"
    table = elements.table(AGENT_COLUMNS, rows, name="groups", caption=caption, tall=True)
    every = elements.details("Every agent", name="every-agent", rows="agent-rows")
    reading = elements.paragraph(f"AUC: the mean of all evaluations. {FINAL}", "small")
    return [*parts, "<h3>The agents</h3>", reading, table, every]


def agent_rows(data: ReportData) -> dict[str, Any]:
    """A row per agent, for the table that opens on a click."""
    table = data.main.with_columns(k="k_number")
    varied = [name for name in AGENT_SETTINGS if name in table.columns and table[name].n_unique() > 1]
    run = ["env", "algorithm", "k", "seed"]
    ended = table.group_by(run).agg(
        *(pl.col(name).first() for name in varied),
        pl.col("step").max().alias("last step"),
        diverged(table).any().alias("diverged"),
    )
    auc, final = (
        make(table).table.select(*run, pl.col("score").alias(name))
        for make, name in ((run_auc, "AUC"), (final_scores, "final score"))
    )
    rows = ended.join(auc, on=run, how="left").join(final, on=run, how="left").sort(run)
    # k has its own column; ib-dqn with k = 0 is called DQN, as everywhere.
    labels_at_zero = {v.algorithm: v.style.label for v in data.variants if v.k == 0}
    variants = rows.select("algorithm", "k").iter_rows()
    names = [LearnerName.parse(name).label(None) if k else labels_at_zero[name] for name, k in variants]
    rows = rows.with_columns(
        pl.col("env").map_elements(game, return_dtype=pl.String),
        pl.Series("algorithm", names),
        pl.col("AUC", "final score").round_sig_figs(5),
        diverged=pl.when("diverged").then(pl.lit("yes")).otherwise(pl.lit("")),
    ).rename({"env": "environment"})
    if not (rows["diverged"] == "yes").any():
        rows = rows.drop("diverged")
    columns = [name.replace("_", " ") for name in rows.columns]
    return {"columns": columns, "rows": [list(row) for row in finite_floats(rows).iter_rows()]}


def _by_algorithm(data: ReportData) -> list[list[Any]]:
    """A row per environment and algorithm, with means over seeds and their intervals."""
    by, table = ["env", "algorithm", "k"], data.main
    seed = pl.col("seed")
    counts = {
        "seeds": seed.n_unique(),
        "k_number": pl.col("k_number").first(),
        "last": pl.col("step").max(),
        "diverged": seed.filter(diverged(table)).n_unique(),
    }
    rows = table.group_by(by).agg(**counts)
    mean = ("mean", *CI95)
    for make, name in ((run_auc, "auc"), (final_scores, "final")):
        means = mean_intervals(make(table).table, by, "score", resamples=data.resamples)
        rows = rows.join(means.select(*by, pl.struct(mean).alias(name)), on=by)
    known = {tuple(row[name] for name in by): row for row in rows.to_dicts()}
    return [
        [
            Cell("", game(env)),
            v.style.label,
            Cell(f"{row['k_number']:g}", row["k_number"]),
            row["seeds"],
            row["last"],
            *(interval_cell(Interval.of(row[name], mean), sign=False) for name in ("auc", "final")),
            row["diverged"],
        ]
        for env in data.envs
        for v in data.variants
        if (row := known.get((env, v.algorithm, v.k))) is not None
    ]


def _source(source: Source, name: str) -> list[str]:
    """One source: the command, the settings, the machine."""
    origin = source.provenance or {}
    text = f"{name}: {SOURCES.get(source.kind, source.kind)}, {pluralize(source.runs, 'agent')}."
    parts = [elements.paragraph(text)]
    if isinstance(origin.get("command"), str):
        commands = [origin["command"], *_extensions(origin)]
        parts += [elements.paragraph("To run it again:"), *map(elements.command, commands)]
    for envs, settings in _alike(source.settings):
        where = game(envs[0]) if len(envs) == 1 else f"{len(envs)} environments"
        parts.append(elements.details(f"Settings of {where}", elements.settings_table(settings)))
    known = {name: origin[name] for name in ORIGIN if name in origin}
    if known:
        parts.append(elements.details("Where it was run", elements.settings_table(known)))
    return parts


def _extensions(origin: Mapping[str, Any]) -> list[str]:
    """The commands that made the run longer; RUN stands for its folder, whose name is not stored."""
    entries = origin.get("extended")
    commands = (
        [entry.get("command") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    return [text.replace("extend", "extend RUN", 1) for text in commands if isinstance(text, str)]


def _alike(settings: Mapping[str, dict[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """Environments with equal settings together."""
    equal: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for env, env_settings in settings.items():
        equal.setdefault(json.dumps(env_settings, sort_keys=True), ([], env_settings))[0].append(env)
    return list(equal.values())


def _learners(data: ReportData) -> set[tuple[str, float]]:
    """Algorithms with their k, whatever other settings and runs they have."""
    return {(variant.name.algorithm, variant.k) for variant in data.variants}


def _algorithms(data: ReportData) -> list[str]:
    return list(dict.fromkeys(algorithm_label(v.name.algorithm, None) for v in data.variants))
