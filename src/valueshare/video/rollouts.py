"""Episodes of a trained agent, step by step, with the values of its network in every state."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from valueshare.envs import announced_imports, environment_spec
from valueshare.errors import InvalidInput
from valueshare.expansion import contract, implicit_baseline
from valueshare.learning.randomness import integers, stream_key, stream_keys, uniform
from valueshare.population.act import acting_taus, epsilon_greedy, stack_frames
from valueshare.population.checkpoints.files import CheckpointPaths
from valueshare.population.checkpoints.loading import newest_state
from valueshare.population.networks import NetworkFactory, Weights
from valueshare.population.state import Population, make_population, torch_dtype
from valueshare.runs.run_folder import open_plan, read_weights
from valueshare.video.rendering import Frame, RenderedEnv

Floats = NDArray[np.float64]
BAND = (0.1, 0.9)  # of the return's distribution, where the network has one


class Agent(NamedTuple):
    """One agent of a run, as it was after its last finished phase."""

    number: int
    name: str  # of its algorithm
    k: float
    steps: int  # that it has learned for
    population: Population  # of this agent alone
    weights: Weights


class Values(NamedTuple):
    """The values of one state: q = b + z."""

    q: Floats  # [A]
    baseline: float  # b
    residuals: Floats  # [A]  z
    band: Floats | None = None  # [2, A]  quantiles BAND of the return, of quantile networks


class RolloutStep(NamedTuple):
    """A state, and the action in it.

    The last step of an episode has an `ending` and no action of its own: its state is the episode's last, its values
    and action are those of the step before.
    """

    episode: int  # from 1
    step: int  # steps before it
    score: float  # rewards before it, as they are
    values: Values
    action: int
    greedy: int  # the best action; not `action` where the agent explores
    observation: NDArray[Any]
    image: Frame | None
    ending: str | None = None


def load_agent(
    folder: Path, agent: int, network: NetworkFactory | None = None, say: Callable[[str], object] = lambda line: None
) -> Agent:
    """An agent of the run in a folder; `network` is the run's own factory, if it has one.

    `say` gets a line before a module that the run names is imported.
    """
    plan = open_plan(folder)
    part = next((part for part in plan.populations.values() if agent in part.agents["agent"]), None)
    if part is None:
        numbers = plan.agents["agent"].to_list()
        raise InvalidInput(
            f"there is no agent {agent} in {folder}: its agents are {min(numbers)} to "
            f"{max(numbers)}, see agents.parquet there"
        )
    if (plan.network is None) != (network is None):
        raise InvalidInput(
            f"the run in {folder} has no network of its own: leave network out"
            if plan.network is None
            else f"the run in {folder} has a network of its own, {plan.network}: play it from "
            "Python, valueshare.video.record.play(..., network=...)"
        )
    tensors = read_weights(folder, agent)
    table = part.agents.filter(part.agents["agent"] == agent)
    row = table.row(0, named=True)
    for line in announced_imports([row["env"]]):
        say(line)
    spec = environment_spec(row["env"], part.backend, part.settings.atari_protocol)
    population = make_population(table, part.settings, spec, torch.device("cpu"), network)
    parameters, buffers = dict(population.network.named_parameters()), dict(population.network.named_buffers())
    if parameters.keys() | buffers.keys() != tensors.keys():
        raise InvalidInput(f"the weights in {folder} are of another network than the one given")
    weights = Weights(*({name: tensors[name].unsqueeze(0) for name in names} for names in (parameters, buffers)))
    state = newest_state(CheckpointPaths(folder, part.name))
    assert state is not None  # the weights are from there
    with safe_open(state, "pt") as stored:
        steps = int(stored.get_tensor("step"))
    return Agent(agent, row["algorithm"], row["k"], steps, population, weights)


def values_of(architecture: str, outputs: NDArray[Any], k: float) -> Values:
    """A network's outputs as q = b + z: the value that all actions share, and each residual.

    Plain networks: z is the input of the mean-expansion layer and b = k·mean(z) (Equation 5), 0 for k = 0; both follow
    from q. Quantile networks: the same of the means over quantiles, which the layer, being linear, commutes with.
    Dueling: the residual stream is centred, so the baseline stream is mean(q). RDQ: the outputs are z and b. Shapes:
    [A], [A+1] or [N, A].
    """
    outputs = outputs.astype(np.float64)
    if architecture == "baseline-residual":
        z, b = outputs[:-1], float(outputs[-1])
        return Values(z + b, b, z)
    if architecture == "dueling":
        b = float(outputs.mean())
        return Values(outputs, b, outputs - b)
    band = None
    if architecture == "quantile":
        band = np.quantile(outputs, BAND, axis=0)  # [2, A]
        outputs = outputs.mean(0)
    return Values(outputs, float(implicit_baseline(outputs, k)), contract(outputs, k), band)


@torch.no_grad()
def network_outputs(agent: Agent, observation: Tensor, tau: Tensor | None) -> Tensor:
    """The outputs of an agent's network in one state. Shapes: [...], tau [1, 1, K] -> [...]."""
    batch = observation[None, None]  # [P, B, ...] with P = B = 1
    return agent.population.forward(agent.weights, batch, tau)[0, 0]


def rollout(
    agent: Agent, env: RenderedEnv, *, episodes: int, seed: int, epsilon: float, max_steps: int | None
) -> Iterator[RolloutStep]:
    """Every step of some episodes; all randomness is a function of `seed`.

    `max_steps` cuts episodes short; None: only the environment's own limit does, or that of the run's evaluations.
    """
    limit, of_environment = step_limit(agent, max_steps)
    population = agent.population
    algorithm, spec = population.algorithm, population.env
    explore, choose, quantiles = (stream_keys([seed], f"play-{name}") for name in ("explore", "action", "quantiles"))
    for episode in range(episodes):
        now = env.reset(stream_key(seed, f"play-environment/{episode}"))
        score, ending = 0.0, None
        stack = torch.zeros(spec.network_shape, dtype=torch_dtype(spec.observation_dtype))
        for step in range(limit):
            counter = torch.tensor((episode << 31) + step)
            state = torch.from_numpy(now.observation.copy())
            if spec.stack:
                stack = state = stack_frames(stack, state, torch.tensor(step == 0))
            tau = acting_taus(quantiles, counter, 1, algorithm.quantile_counts)
            outputs = network_outputs(agent, state, tau)
            q = algorithm.q_values(outputs)
            draw, choice = uniform(explore, counter, 1), integers(choose, counter, 1, spec.actions)
            action = int(epsilon_greedy(q[None], epsilon, draw[0], choice[0]))
            values = values_of(algorithm.architecture, outputs.numpy(), agent.k)
            greedy = int(q.argmax())
            taken = RolloutStep(episode + 1, step, score, values, action, greedy, now.observation, now.image)
            yield taken
            now = env.step(action)
            score += now.reward
            if now.terminated:
                ending = "game over"
            elif now.truncated or (step + 1 == limit and of_environment):
                ending = "time limit"
            elif step + 1 == limit:
                ending = "cut off"
            if ending is not None:
                last = taken._replace(observation=now.observation, image=now.image)
                yield last._replace(step=step + 1, score=score, ending=ending)
                break


def step_limit(agent: Agent, max_steps: int | None) -> tuple[int, bool]:
    """The most steps of an episode, and whether that is the environment's own limit."""
    population = agent.population
    limit = population.settings.eval_episode_limit or population.env.episode_limit
    if max_steps is not None and max_steps < 1:
        raise InvalidInput(f"max_steps = {max_steps}: write at least 1, or leave it out")
    if limit is None and max_steps is None:
        raise InvalidInput(f"{population.env.name} has no episode limit, so an episode may never end: give --max-steps")
    if limit is None or (max_steps is not None and max_steps < limit):
        assert max_steps is not None
        return max_steps, False
    return limit, True
