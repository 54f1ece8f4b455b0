"""The Atari studies as data: scores on 57 games, sensitivity to k, RMSprop, and RDQ's beta.

A study is a few runs: algorithms with settings or a network of their own are a run each. The agents of a run are split
into populations that fit a GPU. The split is in the plan and does not depend on the machine: the same command resumes
the same folders on another one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from valueshare.algorithm_info import ALGORITHM_INFO, algorithm_name, without_layer
from valueshare.envs import atari_game, atari_protocol, environment_spec
from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient
from valueshare.experiments.atari_designs import CHANGES, EPSILON_STEPS, KINDS, PAPER_K, N, StudyDesign
from valueshare.experiments.atari_options import AtariOptions
from valueshare.experiments.scales import by_scale
from valueshare.experiments.study import OVERLAP, REPLACEMENT, Study, changed_settings, plan_of
from valueshare.learning.algorithms import algorithm_named
from valueshare.population.agents import agent_table, concat_agents
from valueshare.population.other_names import check_known
from valueshare.population.presets import Preset
from valueshare.population.settings import TrainingSettings
from valueshare.runs.plan import Plan, split
from valueshare.runs.planning import families
from valueshare.setting import as_count
from valueshare.text import pluralize

POPULATION_AGENTS = 16  # they fit one GPU with a replay of a million frames each


def atari_study(
    name: str,
    options: AtariOptions,
    *,
    algorithm: Sequence[str] = (),
    k: Sequence[Coefficient] = (),
    beta: Sequence[float] = (),
    population_agents: int = 0,
) -> Study:
    """A study by its name; options that are left out have the values of the scale.

    `population_agents` is the largest size of a population; 0: POPULATION_AGENTS.
    """
    kind = KINDS[name]
    design, paper = by_scale(kind.designs, options.scale), kind.designs["paper"]
    for option in _COUNTS:
        if (count := getattr(options, option)) is not None:
            as_count(option, count)
    algorithms = tuple(dict.fromkeys(map(algorithm_name, algorithm))) or design.algorithms
    for member in algorithms:
        check_known("algorithm", member, ALGORITHM_INFO)
    chosen = StudyDesign(
        games=tuple(dict.fromkeys(atari_game(game).name for game in options.env or design.games)),
        algorithms=algorithms,
        seeds=design.seeds if options.seeds is None else options.seeds,
        k=_coefficients(algorithms, k, design.k),
        beta=tuple(beta or design.beta),
    )
    runs, sentences = dict[str, Plan](), list[str]()
    for members in _run_apart(chosen.algorithms, kind.preset):
        preset = kind.preset(members[0])
        settings = _settings(preset.settings, options)
        unsplit = _plan(chosen._replace(algorithms=members), preset, settings, options)
        runs[members[0]] = split(unsplit, population_agents or POPULATION_AGENTS)
        ignored = ["replay_device"]  # the paper does not say where replay is kept
        if not any(algorithm_named(member).is_quantile for member in members):
            ignored += ["quantiles", "target_quantiles", "acting_quantiles"]
        sentences += changed_settings(preset.settings, settings, ignored)
    epsilon = EPSILON_STEPS.get(options.scale)
    if epsilon is not None:
        sentences.append(f"exploration falls within {epsilon:,} steps instead of 1,000,000")
    sentences += _counted(chosen, paper)
    sentences += [  # our guesses of values that the paper leaves open
        words for field, words in kind.guesses.items() if set(getattr(chosen, field)) == set(getattr(paper, field))
    ]
    return Study(name, options.scale, runs, (*dict.fromkeys(sentences), *_OF_THIS_IMPLEMENTATION))


def evaluation_steps(settings: TrainingSettings) -> int:
    """Timesteps that one agent evaluates for in a whole run, before its first step too."""
    return settings.evaluations * settings.eval_timesteps


def _coefficients(
    algorithms: Sequence[str], given_k: Sequence[Coefficient], study_k: Mapping[str, tuple[Coefficient, ...]]
) -> dict[str, tuple[Coefficient, ...]]:
    """The k of every algorithm: those given, else the study's, else n where it has any."""
    with_k = [name for name in algorithms if algorithm_named(name).uses_k]
    if given_k and not with_k:
        raise InvalidInput(f"{', '.join(algorithms)} have no k: leave `k` out")
    for name in with_k if 0 in given_k else ():
        reference = without_layer(name)
        if reference in algorithms:
            raise InvalidInput(
                f"`k = 0`: {name} with it is {reference}, which the study has already: leave 0 out of "
                f"`k`, or {reference} out of `algorithm`"
            )
    chosen = tuple(N if k == "N" else k for k in given_k)
    return {name: chosen or study_k.get(name, PAPER_K.get(name, (N,))) for name in with_k}


def _run_apart(algorithms: Sequence[str], preset: Callable[[str], Preset]) -> list[tuple[str, ...]]:
    """The algorithms that can be one run: the same settings, and one network and loss."""
    kinds: dict[tuple[Any, Preset], list[str]] = {}
    for name in algorithms:
        kinds.setdefault((algorithm_named(name).population_key, preset(name)), []).append(name)
    return [tuple(members) for members in kinds.values()]


def _settings(paper: TrainingSettings, options: AtariOptions) -> TrainingSettings:
    overrides = {
        name: getattr(options, name) for name in ("steps", "eval_interval", "eval_timesteps", "replay_capacity")
    }
    overrides["checkpoint_interval"] = options.eval_interval
    changes = CHANGES[options.scale] | {name: value for name, value in overrides.items() if value is not None}
    protocol = atari_protocol(options.atari_protocol)
    return replace(
        paper,
        **changes,
        atari_protocol=protocol.name,
        clip_rewards=protocol.clip_rewards,
        replay_device=options.replay_device,
        delayed_actor=options.delayed_actor,
        tf32=options.tf32,
    )


def _plan(design: StudyDesign, preset: Preset, settings: TrainingSettings, options: AtariOptions) -> Plan:
    """Every combination, game by game; k = n is the number of actions of the game.

    Games whose frames and actions are alike can share populations.
    """
    agent_settings = preset.agent_settings
    if options.scale in EPSILON_STEPS:
        agent_settings = replace(agent_settings, epsilon_steps=EPSILON_STEPS[options.scale])
    all_settings = [replace(agent_settings, beta=beta) for beta in design.beta] or [agent_settings]
    all_specs = (environment_spec(game, "ale", options.atari_protocol) for game in design.games)
    specs = {spec.name: spec for spec in all_specs}
    tables = []
    for game, spec in specs.items():
        for name in design.algorithms:
            ks = [float(spec.actions) if k == N else float(k) for k in design.k.get(name, (0.0,))]
            unique = list(dict.fromkeys(ks))
            tables.append(agent_table(game, name, seeds=range(design.seeds), k=unique, agent_settings=all_settings))
    return plan_of(
        concat_agents(tables),
        settings,
        "ale",
        device=options.device,
        compiled=options.compile,
        families=families(dict.fromkeys(specs, settings), specs),
        actions={game: spec.actions for game, spec in specs.items()},
    )


def _counted(chosen: StudyDesign, paper: StudyDesign) -> list[str]:
    """Algorithms, k, beta, games and seeds that are not those of the paper."""
    sentences = []
    dropped = [name for name in paper.algorithms if name not in chosen.algorithms]
    if dropped:
        sentences.append(f"without {', '.join(dropped)}")
    more = [name for name in chosen.algorithms if name not in paper.algorithms]
    if more:
        sentences.append(f"with {', '.join(more)}, which is not in the paper's study")
    for name, ks in chosen.k.items():
        paper_k = paper.k.get(name) if name in paper.algorithms else None
        if paper_k is not None and set(ks) != set(paper_k):
            sentences.append(f"{name} with k = {_listed(ks)} instead of {_listed(paper_k)}")
    if set(chosen.beta) != set(paper.beta):
        paper_beta = _listed(paper.beta) if paper.beta else "0.001"
        sentences.append(f"beta = {_listed(chosen.beta)} instead of {paper_beta}")
    if set(chosen.games) != set(paper.games):
        others = set(chosen.games) - set(paper.games)
        count = f"{pluralize(len(chosen.games), 'game')}, not all of them the paper's {len(paper.games)}"
        sentences.append(count if others else f"{len(chosen.games)} of {len(paper.games)} games")
    if chosen.seeds != paper.seeds:
        sentences.append(f"{pluralize(chosen.seeds, 'seed')} instead of {paper.seeds}")
    return sentences


_COUNTS = ("seeds", "steps", "eval_interval", "eval_timesteps", "replay_capacity")
_OF_THIS_IMPLEMENTATION = (
    "an episode under way ends as truncated at the end of a phase, which makes a run resumable",
    OVERLAP.format("games"),
    REPLACEMENT,
    "frames are converted to grayscale before the maximum of two is taken, not after",
    "action gaps are measured on one batch instead of four",
    "there is an evaluation before the first step too",
)


def _listed(values: Sequence[Coefficient]) -> str:
    return ", ".join(value if isinstance(value, str) else f"{value:g}" for value in values)
