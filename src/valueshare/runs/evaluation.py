"""Evaluating the agents of a run after training, in episodes whose environment seeds the caller names.

The episodes are kept in `evaluations.parquet` of the run folder, one row each.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch

from valueshare.envs import announce_imports, environment_spec
from valueshare.errors import InvalidInput, one_line
from valueshare.files import reason, remove_temporary_files
from valueshare.learning.randomness import stream_keys
from valueshare.population.agents import as_list
from valueshare.population.devices import checked_device, training_on
from valueshare.population.engine import evaluation_environments, leave_out_failing_kernels, make_evaluator
from valueshare.population.evaluate import check_episode_options, most_steps, play_seeds
from valueshare.population.networks import NetworkFactory, load_weights
from valueshare.population.spec import PopulationSpec
from valueshare.population.state import Population, State, initial_state, make_population
from valueshare.progress_bar import shown_progress
from valueshare.records import EVALUATIONS, write_table
from valueshare.result_files import TRUSTED_LIMIT, SizeLimit, Unreadable, read_parquet
from valueshare.runs.directory import refuse_read_only
from valueshare.runs.locks import EVALUATIONS_LOCK, locked
from valueshare.runs.plan import AUTO, Plan
from valueshare.runs.policies import check_network_factory, read_newest, stored_weights, unknown_agent
from valueshare.runs.run_folder import check_links, open_plan
from valueshare.runs.storage.copies import open_storage
from valueshare.runs.storage.locations import Location
from valueshare.runs.storage.remote import PLAN_FILES, RunStorage
from valueshare.setting import MAX_COUNT, as_count, as_int, refuse_repeated
from valueshare.text import pluralize, resume_command

MAX_EPISODES = 1_000_000  # per agent
AT_ONCE = 10  # environments per agent, if the run's own evaluations have no more
SCHEMA = pl.Schema(
    {
        "agent": pl.Int64(),
        "step": pl.Int64(),  # for which it has learned
        "seed": pl.Int64(),  # of the environment
        "epsilon": pl.Float64(),
        "episode_limit": pl.Int64(),
        "score": pl.Float64(),  # return, undiscounted and unscaled
        "overestimation": pl.Float64(),  # null where action-values are not finite
    }
)
UPLOAD_SECONDS = 2.0  # until a file that is being uploaded is read again
KEY = ("agent", "step", "seed", "epsilon", "episode_limit")  # identifies an episode


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Which episodes are played, by which agents, and how."""

    episodes: int = 100  # per agent
    seeds_from: int = 10_000  # the first environment seed
    agent: int | Iterable[int] | None = None  # their numbers; None: all
    epsilon: float | None = None  # None: that of the run's evaluations
    episode_limit: int | None = None  # None: that of the run's evaluations, or the environment's own
    network: NetworkFactory | None = None  # the function of a custom network, if the run has one
    device: str = AUTO  # that of the run, if it is here
    threads: int | None = None  # for the environments; None: one per core
    progress: bool = True
    on_step: Callable[[], object] = lambda: None  # an exception from it ends the evaluation, and nothing is written


class Evaluated(NamedTuple):
    """The episodes of an evaluation after training."""

    agents: pl.DataFrame  # the table of the run
    episodes: pl.DataFrame  # one row each


def evaluate_run(location: Location, options: EvaluationOptions) -> Evaluated:
    """Play, with the weights of the last checkpoint; the episodes are returned, and kept with the run.

    Episodes that are there already, of the same agents, seeds and options, are replaced. A folder has one evaluation at
    a time. URLs have no locks: the file is read again after the last episode, so that episodes of another
    evaluation are lost only if both upload it at the same moment.
    """
    with open_storage(location) as storage:
        storage.pull(lambda name: name in PLAN_FILES)
        plan = open_plan(storage.folder)
        check_links(storage.folder)
        if not storage.is_remote:
            refuse_read_only(storage.folder)
        with only_writer(storage.folder):
            chosen = _chosen_agents(storage.folder, plan, options.agent)
            fetch_evaluations(storage, plan.agents)  # a damaged file is refused before anything is played
            for spec in plan.populations.values():
                if not spec.agents.join(chosen, on="agent", how="semi").is_empty():
                    storage.pull_weights(spec.name)
            played = _play(storage, plan, chosen, options)
            add_episodes(storage.folder, fetch_evaluations(storage, plan.agents), played)
            storage.push(lambda name: name == EVALUATIONS)
        return Evaluated(plan.agents, played)


def _play(storage: RunStorage, plan: Plan, chosen: pl.DataFrame, options: EvaluationOptions) -> pl.DataFrame:
    """The episodes of the chosen agents, one row each."""
    folder = storage.folder
    # Of a finished run at a URL, `resume` reads the manifests alone.
    remedy = "" if storage.is_remote else f"{resume_command(folder)} makes it again"
    episodes, first = as_count("episodes", options.episodes), as_count("seeds_from", options.seeds_from, 0)
    if episodes > MAX_EPISODES:
        raise InvalidInput(f"`episodes = {episodes:,}`: write a number <= {MAX_EPISODES:,}")
    if first + episodes > MAX_COUNT:
        most = f"{MAX_COUNT - episodes:,}, with {pluralize(episodes, 'episode')}"
        raise InvalidInput(f"`seeds_from = {first}`: write a number <= {most}")
    check_episode_options(options.epsilon, options.episode_limit)
    check_network_factory(folder, plan, options.network)
    if options.threads is not None:
        as_count("threads", options.threads)
    device = _device(plan, options.device)
    announce_imports(chosen["env"])
    playing = []
    for spec in plan.populations.values():
        rows = spec.agents.with_row_index("row").join(chosen, on="agent", how="semi", maintain_order="left")
        if not rows.is_empty():
            population = _population(rows.drop("row"), spec, options, device)
            playing.append(_ChosenAgents(spec.name, rows["row"].to_list(), population))
            # Refused before anything is played; then what is skipped is named once.
            read_newest(folder, spec.name, rows["agent"][0], lambda file: file, remedy=remedy)
    tables, done = [], 0
    with shown_progress(chosen.height * episodes, options.progress, doing="evaluating", unit="episodes") as advance:

        def on_step(before: int, count: int) -> None:
            nonlocal done
            options.on_step()
            advance(before + count - done)
            done = before + count

        for agents in playing:
            count = partial(on_step, done)
            tables.append(_play_population(folder, agents, range(first, first + episodes), options, count))
            count(agents.population.size * episodes)
    return pl.concat(tables).sort("agent", "seed")


class _ChosenAgents(NamedTuple):
    """The chosen agents of one population."""

    name: str
    rows: list[int]  # of the whole population
    population: Population


def _population(
    agents: pl.DataFrame, spec: PopulationSpec, options: EvaluationOptions, device: torch.device
) -> Population:
    """Some agents of a population, with one episode per environment, and room for no replay."""
    settings = spec.settings
    at_once = max(AT_ONCE, settings.eval_envs)
    settings = replace(
        settings,
        steps=1,
        replay_device=None,
        eval_episodes=at_once,
        eval_timesteps=0,
        eval_envs=at_once,
        eval_epsilon=settings.eval_epsilon if options.epsilon is None else options.epsilon,
    )
    envs = agents["env"].unique(maintain_order=True)
    specs = [environment_spec(env, spec.backend, settings.atari_protocol) for env in envs]
    most_steps(settings, specs[0], options.episode_limit)  # or refuse
    if options.episode_limit is not None:
        settings = replace(settings, eval_episode_limit=options.episode_limit)
    population = make_population(agents, settings, specs, device, options.network)
    # Separate random streams: exploration and quantiles are not those of the evaluations while training.
    names = ("evaluation", "evaluation_action", "evaluation_quantiles")
    keys = {name: stream_keys(population.seeds, f"after-training/{name}", device) for name in names}
    return replace(population, keys=population.keys._replace(**keys))


def _trained_state(chosen: _ChosenAgents, file: Path) -> tuple[State, int]:
    """The state of the chosen agents with the weights in a file, and its step."""
    state = initial_state(chosen.population)
    leave_out_failing_kernels(chosen.population, state)
    tensors = {**state.online.parameters, **state.online.buffers}
    stored, step = stored_weights(file, chosen.rows)
    load_weights(tensors, stored, f"in {file.name}")
    return state, step


def _play_population(
    folder: Path, chosen: _ChosenAgents, seeds: range, options: EvaluationOptions, on_step: Callable[[int], object]
) -> pl.DataFrame:
    population = chosen.population
    with ExitStack() as stack:
        own_network = options.network is not None
        stack.enter_context(training_on(population.device, tf32=population.settings.tf32, own_network=own_network))
        agent = population.agents["agent"][0]
        state, step = read_newest(folder, chosen.name, agent, partial(_trained_state, chosen), warn=False)
        environments = evaluation_environments(population, options.threads)
        stack.callback(environments.close)
        limit = environments.spec.episode_limit
        evaluator = make_evaluator(population, state, environments, compiled=False)
        score, overestimation = play_seeds(population, evaluator, seeds, on_step)
    count, agents = len(seeds), population.agents["agent"].to_numpy()
    columns = {
        "agent": np.repeat(agents, count),
        "step": np.full(score.size, step),
        "seed": np.tile(np.asarray(seeds), population.size),
        "epsilon": np.full(score.size, population.settings.eval_epsilon),
        "episode_limit": np.full(score.size, limit),
        "score": score.reshape(-1),
        "overestimation": np.where(np.isfinite(overestimation), overestimation, np.nan).reshape(-1),
    }
    return pl.DataFrame(columns, schema=SCHEMA).with_columns(pl.col("overestimation").fill_nan(None))


def _chosen_agents(folder: Path, plan: Plan, agents: int | Iterable[int] | None) -> pl.DataFrame:
    if agents is None:
        return plan.agents
    wanted = [as_int("agent", agent) for agent in as_list(agents)]
    refuse_repeated("agent", wanted)
    if unknown := sorted({*wanted} - {*plan.agents["agent"]}):
        raise unknown_agent(plan, unknown[0], folder)
    if not wanted:
        raise InvalidInput("no agents are given: write at least one number, or leave `agent` out for all")
    return plan.agents.filter(pl.col("agent").is_in(sorted(wanted)))


def _device(plan: Plan, device: str) -> torch.device:
    if device != AUTO:
        return checked_device(device)
    try:
        return checked_device(plan.device)
    except InvalidInput:  # the run was trained on another machine
        return torch.device("cpu")


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of the file; a run that is being trained may be evaluated meanwhile."""
    with locked(folder / EVALUATIONS_LOCK, f"{folder} is being evaluated by another process: wait for it to finish"):
        remove_temporary_files(folder, re.compile(re.escape(EVALUATIONS)))
        yield


def read_evaluations(folder: Path, agents: pl.DataFrame) -> pl.DataFrame:
    """All episodes that were played after training, maybe none. `agents` is the run's table."""
    path = folder / EVALUATIONS
    try:
        table = read_parquet(path, SizeLimit(TRUSTED_LIMIT))
    except FileNotFoundError:
        return SCHEMA.to_frame()
    except (OSError, pl.exceptions.PolarsError, Unreadable) as error:
        why = reason(error) if isinstance(error, OSError) else one_line(error)
        raise _damaged(path, why.removeprefix(f"{path} cannot be read: ")) from error
    if table.schema != SCHEMA:
        raise _damaged(path, "it has other columns than it should")
    required = [name for name in SCHEMA if name != "overestimation"]
    if table.select(required).null_count().sum_horizontal().item():
        raise _damaged(path, "values are missing")
    numbers = pl.col("score", "overestimation")
    if not table.select(pl.all_horizontal(numbers.is_finite().fill_null(True)).all()).item():
        raise _damaged(path, "a score is not finite")
    ranges = (
        pl.col("agent").is_in(agents["agent"].to_list()),
        pl.col("step") >= 0,
        pl.col("seed") >= 0,
        pl.col("episode_limit") >= 1,
        pl.col("epsilon").is_between(0, 1),
    )
    if not table.select(pl.all_horizontal(ranges).all()).item() or table.select(KEY).is_duplicated().any():
        raise _damaged(path, "an episode cannot be of this run, or occurs twice")
    return table


def fetch_evaluations(storage: RunStorage, agents: pl.DataFrame) -> pl.DataFrame:
    """All episodes of a run that may be at a URL, maybe none.

    Not every store replaces a file in one step: one that is damaged may be in the middle of an upload, and is fetched
    once more.
    """
    if storage.is_remote:
        storage.store.get(EVALUATIONS, storage.folder / EVALUATIONS)
        with suppress(InvalidInput):
            return read_evaluations(storage.folder, agents)
        time.sleep(UPLOAD_SECONDS)
        storage.store.get(EVALUATIONS, storage.folder / EVALUATIONS)
    return read_evaluations(storage.folder, agents)


def add_episodes(folder: Path, before: pl.DataFrame, played: pl.DataFrame) -> None:
    """Write the file with new episodes; they replace those of the same agents, seeds and options."""
    table = pl.concat([before.join(played, on=KEY, how="anti"), played])
    write_table(folder / EVALUATIONS, table.sort("agent", "step", "seed"))


def _damaged(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{path} is damaged ({why}): delete it, and evaluate again")
