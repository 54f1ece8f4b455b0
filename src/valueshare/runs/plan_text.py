"""Plans as lines of text: a summary, and every setting as options of the command line."""

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from valueshare.algorithm_info import setting_readers, without_layer
from valueshare.envs.atari_games import atari_game, is_atari
from valueshare.envs.backends import BACKENDS
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.population.presets import preset_text
from valueshare.population.settings import OPTIMIZER_SETTINGS, PER_AGENT, TrainingSettings
from valueshare.runs.plan import Plan
from valueshare.text import option_words, pluralize, ranges


def plan_summary(plan: Plan, workers: int = 1) -> list[str]:
    """The agents, populations and steps of a plan, in a few lines; `workers` run it at once."""
    specs = plan.unsplit_populations.values()
    lines = []
    for label in dict.fromkeys(spec.label for spec in specs):
        same_label = [spec for spec in specs if spec.label == label]
        agents = pluralize(sum(spec.agents.height for spec in same_label), "agent")
        count = pluralize(len(same_label), "population")
        chunks = sum(plan.chunks.get(spec.name, 1) for spec in same_label)
        if chunks > len(same_label):
            count += f", split over {workers} workers" if chunks == workers else f", split into {chunks}"
        steps = pluralize(same_label[0].settings.steps, "step")
        lines.append(f"{label}: {agents} in {count}, {steps} each")
        if same_label[0].settings.never_learns:
            lines.append(
                f"note: {label}: no updates will run: the first is due after step "
                f"{same_label[0].settings.first_update:,}, by --learning-starts and --update-interval"
            )
    agents = pluralize(plan.agents.height, "agent")
    in_all = pluralize(sum(spec.agent_steps for spec in specs), "agent-step")
    return [*lines, *_notes_on_k(plan), f"{agents}, {in_all} in all"]


def about_settings(plan: Plan, env: str | Sequence[str]) -> list[str]:
    """The presets of a plan's settings, with notes on games given by Gymnasium's ids and on rising epsilon."""
    presets = ", ".join(dict.fromkeys(map(preset_text, plan.settings)))
    names: list[str] = [env] if isinstance(env, str) else list(env)
    ids = [name for name in names if is_atari(name) and "-v" in name]
    games = {name: atari_game(name) for name in ids if BACKENDS[plan.backends.get(name, "ale")].has_protocols}
    notes = [
        f"note: {name} is {game.name} by the protocol {plan.settings[game.env_id].atari_protocol} (docs/atari.md), "
        "not Gymnasium's defaults; change with --atari-protocol"
        for name, game in games.items()
    ]
    epsilon_rises = (pl.col("epsilon_end") > pl.col("epsilon_start")) & (pl.col("epsilon_steps") > 0)
    if plan.agents.select(epsilon_rises.any()).item():
        notes.append("note: --epsilon-end is above --epsilon-start: epsilon rises, so agents explore more and more")
    return [f"settings: {presets}", *notes]


def plan_listing(plan: Plan, workers: int = 1) -> list[str]:
    """A plan with every setting that applies, as options of the command line.

    Options that all environments have in common come first, then those in which some differ.
    """
    options = {env: _options(plan, env) for env in plan.settings}
    first = next(iter(options.values()))
    shared = [option for option in first if all(option in env_options for env_options in options.values())]
    blocks = {tuple(shared): list(options)}
    for env, env_options in options.items():
        blocks.setdefault(tuple(option for option in env_options if option not in shared), []).append(env)
    lines = plan_summary(plan, workers)
    for block, envs in blocks.items():
        if block:
            named = ", ".join(f"{env} ({plan.backends[env]})" for env in envs)
            lines += ["", named, *(f"  {option}" for option in block)]
    return lines


def _options(plan: Plan, env: str) -> list[str]:
    """The settings of an environment that apply, as options of the command line."""
    settings, agents = plan.settings[env], plan.agents.filter(pl.col("env") == env)
    names = ("algorithm", "k", *PER_AGENT)
    values: dict[str, Any] = {name: agents[name].unique(maintain_order=True).to_list() for name in names}
    seeds = agents["seed"].unique().sort().to_list()
    # A shard, or seeds given from Python, may be rows that --seeds and --first-seed cannot describe.
    complete = agents.height == len(seeds) * agents.drop("agent", "seed").unique().height
    described_by_options = complete and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    if described_by_options:
        values |= {"seeds": len(seeds), "first_seed": seeds[0]}
    values |= settings.to_json()
    unused = _unused_settings(settings, agents["algorithm"].unique(), plan.device)
    options = [
        " ".join(option_words(name, value))
        for name, value in values.items()
        if name not in unused and value is not None
    ]
    if not described_by_options:
        options.append(f"{agents.height} of these agents, with seeds {ranges(agents['seed'])}")
    return options


def _unused_settings(settings: TrainingSettings, algorithms: Iterable[str], device: str) -> set[str]:
    """The settings that a run with these settings and algorithms does not read."""
    used = set(algorithms)
    unused = {
        **{name: not used & set(readers) for name, readers in setting_readers().items()},
        "loss": all(ALGORITHMS[name].is_quantile for name in used),  # theirs is the quantile Huber loss
        **{name: settings.optimizer != reader for name, reader in OPTIMIZER_SETTINGS.items()},
        "eval_episodes": settings.eval_episodes == 0,
        "eval_timesteps": settings.eval_timesteps == 0,
        "tf32": device == "cpu",
    }
    return {name for name, is_unused in unused.items() if is_unused}


def _notes_on_k(plan: Plan) -> list[str]:
    """Notes on algorithms that are left out at k = 0, and on those whose k are all 0, which share no value.

    The latter not of a shard, as the rest may have others.
    """
    hint = "; to share value across actions, give a k above 0"
    left_out = [
        f"note: {name} with k = 0 is {without_layer(name)}, which is trained already: left out"
        + ("" if plan.shard or name in plan.agents["algorithm"] else hint)
        for name in plan.same_at_zero
    ]
    if plan.shard is not None:
        return left_out
    largest = plan.agents.group_by("algorithm", maintain_order=True).agg(pl.col("k").max())
    return left_out + [
        f"note: {name} with k = 0 is {without_layer(name)}: to share value across actions, give a k above 0"
        for name, k in largest.iter_rows()
        if k == 0 and ALGORITHMS[name].uses_k
    ]


def schedule_notes(plan: Plan) -> list[str]:
    """A note where the step size of an extended run is 0 from its old end on."""
    ended = [
        env
        for env, settings in plan.settings.items()
        if settings.step_size_schedule == "linear" and (settings.step_size_steps or 0) <= plan.extended_from[env][-1]
    ]
    return [f"note: the step size of {env} has fallen linearly to 0, so its agents learn nothing new" for env in ended]
