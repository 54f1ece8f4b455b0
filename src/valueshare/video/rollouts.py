"""Episodes of a trained agent, step by step, with the values of its network in every state."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from valueshare.learning.algorithms import Algorithm
from valueshare.learning.randomness import integers, stream_key, stream_keys, uniform
from valueshare.population.act import acting_taus, epsilon_greedy, stack_frames
from valueshare.population.evaluate import most_steps
from valueshare.population.networks import network_inputs
from valueshare.population.policy import Policy
from valueshare.population.state import torch_dtype
from valueshare.video.rendering import Frame, RenderedEnv

Floats = NDArray[np.float64]
BAND = (0.1, 0.9)  # of the return's distribution, where the network has one


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


def values_of(algorithm: Algorithm, outputs: Tensor, k: float) -> Values:
    """A network's outputs in one state as q = b + z: the value that all actions share, and each residual."""
    outputs = outputs.double()
    q, z = algorithm.q_values(outputs), algorithm.z_values(outputs, torch.tensor(k, dtype=torch.float64))
    band = np.quantile(outputs.numpy(), BAND, axis=0) if algorithm.is_quantile else None  # [2, A]
    return Values(q.numpy(), float((q - z).mean()), z.numpy(), band)


def rollout(
    policy: Policy, env: RenderedEnv, *, episodes: int, seed: int, epsilon: float, episode_limit: int | None
) -> Iterator[RolloutStep]:
    """Every step of some episodes; all randomness is a function of `seed`.

    `episode_limit` is the most steps of an episode; None: that of the run's evaluations, or the environment's own.
    """
    population = policy.population
    limit = most_steps(population.settings, population.env, episode_limit)
    is_own = episode_limit is None or limit == population.env.episode_limit
    algorithm, spec = population.algorithm, population.env
    explore, choose, quantiles = (stream_keys([seed], f"play-{name}") for name in ("explore", "action", "quantiles"))
    for episode in range(episodes):
        frame = env.reset(stream_key(seed, f"play-environment/{episode}"))
        score, ending = 0.0, None
        stack = torch.zeros(spec.network_shape, dtype=torch_dtype(spec.observation_dtype))
        for step in range(limit):
            counter = torch.tensor((episode << 31) + step)
            state = torch.from_numpy(frame.observation.copy())
            if spec.stack:
                stack = state = stack_frames(stack, state, torch.tensor(step == 0))
            tau = acting_taus(quantiles, counter, 1, population.quantile_counts)
            outputs = policy.network(*network_inputs(state[None], None if tau is None else tau[0]))[0]
            q = algorithm.q_values(outputs)
            draw, choice = uniform(explore, counter, 1), integers(choose, counter, 1, spec.actions)
            action = int(epsilon_greedy(q[None], draw[0] < epsilon, choice[0]))
            values = values_of(algorithm, outputs, policy.k)
            greedy = int(q.argmax())
            taken = RolloutStep(episode + 1, step, score, values, action, greedy, frame.observation, frame.image)
            yield taken
            frame = env.step(action)
            score += frame.reward
            if frame.terminated:
                ending = "terminated"
            elif frame.truncated or (step + 1 == limit and is_own):
                ending = "time limit"
            elif step + 1 == limit:
                ending = "cut off"
            if ending is not None:
                last = taken._replace(observation=frame.observation, image=frame.image)
                yield last._replace(step=step + 1, score=score, ending=ending)
                break
