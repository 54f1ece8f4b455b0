"""A training run as an object: its table, its records, and its trained agents."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from torch import Tensor

from valueshare.algorithm_info import algorithm_name, has_layer, other_name_at_zero
from valueshare.analysis.held_out import Metric, check_halves, winning_settings
from valueshare.analysis.run_values import by_last_score, without_diverged
from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient, is_n
from valueshare.population.networks import NetworkFactory
from valueshare.population.policy import Policy
from valueshare.runs.evaluation import EvaluationOptions, evaluate_run, fetch_evaluations
from valueshare.runs.plan import Plan
from valueshare.runs.policies import policy_step, population_of, read_policy, read_weights
from valueshare.runs.run_folder import is_finished, open_plan, read_records
from valueshare.runs.storage.copies import open_storage, reading_copies
from valueshare.runs.storage.locations import Location, resolve_location
from valueshare.runs.storage.remote import PLAN_FILES
from valueshare.runs.variants import label, shown_score, variant_scores
from valueshare.setting import as_float, as_int
from valueshare.text import LAST_SCORE, either, exact, pluralize

_log = logging.getLogger(__name__)

ROWS = 10  # scores in the repr of a run


@dataclass(eq=False, repr=False)
class Run:
    """A training run on disk or at a URL: finished or not."""

    folder: Location
    agents: pl.DataFrame  # the table
    records: pl.DataFrame  # one row per agent and evaluation
    finished: bool
    failures: Mapping[str, str] = field(default_factory=dict)  # why populations failed, by name
    remarks: tuple[str, ...] = ()  # policies of other steps than the last evaluation, a line each

    def __repr__(self) -> str:
        """The folder, the state, the last score of every variant, and the step of policies where it is another."""
        agents = pluralize(self.agents.height, "agent")
        state = "finished" if self.finished else "not finished"
        if self.failures:
            state += f", {pluralize(len(self.failures), 'population')} failed"
        variants = variant_scores(self.agents, self.records)
        if diverged := int(variants["diverged"].sum()):
            state += f", {pluralize(diverged, 'agent')} diverged"
        rows = variants.to_dicts()
        lines = [f"  {row['env']} {label(row)}: {shown_score(row['score'])}" for row in rows[:ROWS]]
        more = [f"  and {len(rows) - ROWS:,} more"] if len(rows) > ROWS else []
        head = f"Run({str(self.folder)!r}, {agents}, {state})"
        return "\n".join([f"{head}; {LAST_SCORE}:", *lines, *more, *self.remarks])

    def weights(self, agent: int) -> dict[str, Tensor]:
        """The state dictionary of one agent's network, as of the last checkpoint."""
        agent = as_int("agent", agent)
        with self._folder_with_weights(agent) as folder:
            return read_weights(folder, agent)[0]

    def agent(self, agent: int, *, network: NetworkFactory | None = None) -> Policy:
        """A trained agent as a policy, as of the last checkpoint; `network` makes the custom network, if any."""
        agent = as_int("agent", agent)
        with self._folder_with_weights(agent) as folder:
            return read_policy(folder, agent, network)

    def best(
        self,
        algorithm: str | None = None,
        *,
        k: Coefficient | None = None,
        env: str | None = None,
        network: NetworkFactory | None = None,
    ) -> Policy:
        """The agent with the highest score in its last evaluation, of all or of some, on one environment.

        k = "n" is the number of actions of the environment. Agents that diverged, or have no score there, are left out.
        The best of many agents is partly luck: its score in new episodes will be lower.
        """
        candidates = self.agents.join(self.records.drop_nulls("score"), on="agent", how="semi", maintain_order="left")
        if candidates.is_empty():
            raise InvalidInput("no agent of this run has a score yet: resume it first")
        envs = candidates["env"].unique(maintain_order=True).to_list()
        if env is None and len(envs) > 1:
            raise InvalidInput(f"scores of several environments do not compare: give env, {either(envs)}")
        candidates = _filter_or_refuse(candidates, "env", envs[0] if env is None else env)
        number = self._actions(candidates["env"][0]) if is_n(k) else k
        for column, value in _algorithm_and_k(candidates, algorithm, number).items():
            if value is not None:
                candidates = _filter_or_refuse(candidates, column, value, from_n=column == "k" and is_n(k))
        records = without_diverged(self.records.join(candidates, on="agent", how="semi"))
        if records.is_empty():
            raise InvalidInput("every agent to choose from diverged: train with a smaller `step_size` or `k`")
        ranked = by_last_score(records)
        if ranked.is_empty():
            raise InvalidInput(
                "no agent to choose from has a score in its last evaluation: choose by number, like agent(0)"
            )
        return self.agent(ranked["agent"][0], network=network)

    def best_settings(self, metric: Metric = "auc") -> pl.DataFrame:
        """The settings that win in each environment, chosen on half of the seeds and scored on the other half.

        See `valueshare.analysis.held_out.winning_settings`. What limits the choice, like few seeds, is logged as a
        warning.
        """
        winners = winning_settings(self.records.join(self.agents, on="agent"), metric)
        unfinished = [] if self.finished else ["this run is not finished: settings are compared by its scores so far"]
        for note in (*unfinished, *check_halves(winners)):
            _log.warning(note)
        return winners

    def evaluate(
        self,
        *,
        episodes: int = 100,
        seeds_from: int = 10_000,
        agent: int | Iterable[int] | None = None,
        epsilon: float | None = None,
        episode_limit: int | None = None,
        network: NetworkFactory | None = None,
        device: str = "auto",
        threads: int | None = None,
        progress: bool = True,
    ) -> pl.DataFrame:
        """Let trained agents play more episodes: one row per agent and episode, kept in `evaluations.parquet` too.

        Environment seeds are `seeds_from`, `seeds_from` + 1, ..., the same for all agents. They are not those of
        training. The weights are those of the last checkpoint. `epsilon` and `episode_limit` are those of the run's
        own evaluations unless given; `device` "auto" is that of the run if it is here, else the CPU.
        """
        options = EvaluationOptions(
            episodes=episodes,
            seeds_from=seeds_from,
            agent=agent,
            epsilon=epsilon,
            episode_limit=episode_limit,
            network=network,
            device=device,
            threads=threads,
            progress=progress,
        )
        return evaluate_run(self.folder, options).episodes

    @property
    def evaluations(self) -> pl.DataFrame:
        """All episodes of `evaluate` so far, one row each."""
        with open_storage(self.folder) as storage:
            return fetch_evaluations(storage, self.agents)

    def _actions(self, env: str) -> int:
        """The number of actions of an environment, as the run's configuration has it."""
        with open_storage(self.folder) as storage:
            storage.pull(lambda name: name in PLAN_FILES)
            known = open_plan(storage.folder).actions
        if env not in known:
            raise InvalidInput(f"`k = 'n'`: this run has no number of actions of {env} in config.json; write a number")
        return known[env]

    @contextmanager
    def _folder_with_weights(self, agent: int) -> Iterator[Path]:
        """A folder with the files from which one agent is read."""
        with open_storage(self.folder) as storage:
            storage.pull(lambda name: name in PLAN_FILES)
            storage.pull_weights(population_of(open_plan(storage.folder), agent, self.folder).name)
            yield storage.folder


def _filter_or_refuse(agents: pl.DataFrame, column: str, value: object, *, from_n: bool = False) -> pl.DataFrame:
    """The agents whose `column` is `value`, perhaps given as "n"; refused if there are none."""
    values = agents[column].unique(maintain_order=True).to_list()
    if value not in values:
        shown, *known = (exact(each) if isinstance(each, float) else str(each) for each in (value, *values))
        text = f"`k = 'n'`, the {shown} actions of {agents['env'][0]}" if from_n else f"`{column} = {shown}`"
        raise InvalidInput(f"{text}: write one of {', '.join(known)}")
    return agents.filter(pl.col(column) == value)


def _algorithm_and_k(agents: pl.DataFrame, algorithm: str | None, k: Coefficient | None) -> dict[str, Any]:
    """Both as in the table, where dqn may be ib-dqn with k = 0, or vice versa."""
    if isinstance(k, str):
        raise InvalidInput(f"`k = {k!r}`: write a number, or 'n'")
    wanted = {"k": None if k is None else as_float("k", k)}
    if algorithm is None:
        return wanted
    name = algorithm_name(algorithm)
    other, zero = other_name_at_zero(name), wanted["k"] == 0 or (k is None and not has_layer(name))
    at_zero = agents.filter(pl.col("k") == 0)["algorithm"]
    if zero and name not in at_zero and other in at_zero:
        return {"algorithm": other, "k": 0.0}
    algorithms = agents["algorithm"].unique(maintain_order=True).to_list()
    if name not in algorithms:
        plain = [other_name_at_zero(found) for found in at_zero.unique(maintain_order=True) if has_layer(found)]
        if name in plain:
            raise InvalidInput(f"{name} has no k = {wanted['k']:g} in this run: write {other}, or k = 0")
        raise InvalidInput(
            f"`algorithm = {algorithm!r}`: write one of {', '.join(dict.fromkeys([*algorithms, *plain]))}"
        )
    return {"algorithm": name, **wanted}


def open_run(folder: str | Path) -> Run:
    """The run in a folder or at a URL, with its records so far."""
    location = resolve_location(folder)
    with reading_copies([location]) as copies:
        (readable,) = copies.folders
        plan = open_plan(readable)
        finished = is_finished(readable, plan, copied=readable != location)
        records = read_records(readable)
        remarks = () if finished or readable != location else _policies_of_other_steps(readable, plan, records)
        return Run(location, plan.agents, records, finished, remarks=remarks)


def _policies_of_other_steps(folder: Path, plan: Plan, records: pl.DataFrame) -> tuple[str, ...]:
    """The steps of policies and of the last evaluation, where they differ: a checkpoint is damaged, or a later one."""
    remarks = []
    for spec in plan.populations.values():
        evaluated: Any = records.join(spec.agents, on="agent", how="semi")["step"].max()
        step = policy_step(folder, spec.name)
        if step is not None and evaluated is not None and step != evaluated:
            remarks.append(f"policies of {spec.label} are of step {step:,}, scores of step {evaluated:,}")
    return tuple(dict.fromkeys(remarks))
