"""Plain agent: one environment, a list as replay, and an ordinary Python loop.

An independent reference for eight value-based agents, written for reading, not for speed: the
population engine must take the same actions and reach the same weights, event by event. It shares
nothing with the engine but its keyed random numbers. All computation is in float64. `Deviations`
names the points at which the engine's order of events differs from the paper's.

Shapes: B batch, A actions, O observation, H features, N online quantiles, M target quantiles (N').
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from valueshare.learning.randomness import integers, stream_key, uniform

EXPANDED = ("ib-dqn", "ib-double-dqn", "ib-iqn")  # with the mean expansion
ALGORITHMS = ("dqn", "double-dqn", "dueling-dqn", "rdq", "iqn", *EXPANDED)
Observations = npt.NDArray[np.float32]
Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # the fields of a transition, each [B, ...]


@dataclass(frozen=True)
class Settings:
    """Hyperparameters; the defaults are the paper's for LunarLander, and for IQN's quantiles."""

    hidden: tuple[int, int] = (256, 256)
    batch_size: int = 128
    replay_capacity: int = 500_000
    learning_starts: int = 1_000
    update_interval: int = 1
    gradient_steps: int = 1
    target_update_interval: int = 100
    step_size: float = 1e-3
    step_size_steps: int | None = None  # it falls linearly to 0 over so many steps; None: never
    adam_epsilon: float = 3.125e-4
    discount: float = 0.99
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000
    loss: Literal["squared", "huber"] = "squared"  # half the square, or Huber with delta 1
    reduction: Literal["mean", "sum"] = "mean"  # over the batch
    observation_scale: float = 1.0
    reward_scale: float = 1.0
    clip_rewards: bool = False  # to their sign, before the scale
    beta: float = 0.001  # RDQ's penalty
    kappa: float = 1.0  # IQN's Huber threshold
    online_quantiles: int = 64  # N
    target_quantiles: int = 64  # N'
    acting_quantiles: int = 32  # K


@dataclass(frozen=True)
class Deviations:
    """Differences from the paper's order of events; with the defaults there are none."""

    update_after_next_action: bool = False  # the copy and update of step t wait for action t + 1
    checkpoint_interval: int | None = None  # truncate the episode every so many steps, reset with a seed
    delayed_actor_weights: bool = False  # act with the weights from before the latest update
    sample_with_replacement: bool = False  # within a batch


PAPER = Deviations()


class Transition(NamedTuple):
    obs: Observations
    action: int
    reward: float  # clipped and scaled
    discount: float  # 0 at termination; a truncated episode bootstraps
    next_obs: Observations


def huber(error: Tensor, delta: float) -> Tensor:
    size = error.abs()
    return torch.where(size <= delta, 0.5 * error**2, delta * (size - 0.5 * delta))


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Network(nn.Module):
    """Q-network of every algorithm. Layers are created in the order of `PlainAgent.load`."""

    def __init__(self, algorithm: str, obs_size: int, n: int, h: tuple[int, int], k: float) -> None:
        super().__init__()
        self.algorithm, self.k = algorithm, k
        self.torso = nn.Sequential(nn.Linear(obs_size, h[0]), nn.ReLU())
        self.embedding = nn.Linear(64, h[0]) if "iqn" in algorithm else None
        self.baseline = mlp(*h, 1) if algorithm in ("dueling-dqn", "rdq") else None
        self.residual = mlp(*h, n)

    def streams(self, obs: Tensor, tau: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Baseline [B, 1] or [B, N, 1] and the other outputs, [B, A] or [B, N, A]."""
        features = self.torso(obs)  # [B, H]
        if self.embedding is not None and tau is not None:
            i = torch.arange(1, 65, dtype=tau.dtype)
            cosines = torch.cos(math.pi * i * tau.unsqueeze(-1))  # [B, N, 64]
            features = features.unsqueeze(1) * torch.relu(self.embedding(cosines))  # [B, N, H]
        z = self.residual(features)
        if self.algorithm == "dueling-dqn":
            z = z - z.mean(-1, keepdim=True)
        if self.baseline is not None:
            return self.baseline(features), z
        return self.k / z.shape[-1] * z.sum(-1, keepdim=True), z  # the mean expansion

    def forward(self, obs: Tensor, tau: Tensor | None = None) -> Tensor:
        baseline, z = self.streams(obs, tau)
        return baseline + z


class PlainAgent:
    """One agent in one environment. The weights are PyTorch's default ones until `load`."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        algorithm: str,
        settings: Settings,
        *,
        seed: int,
        k: float = 0.0,
        reset_seeds: Sequence[int],
        deviations: Deviations = PAPER,
    ) -> None:
        if algorithm not in ALGORITHMS or (k != 0 and algorithm not in EXPANDED):
            raise ValueError(f"no such agent: {algorithm} with k = {k}")
        self.env, self.algorithm, self.settings = env, algorithm, settings
        self.is_iqn = "iqn" in algorithm
        self.seed, self.reset_seeds, self.deviations = seed, reset_seeds, deviations
        assert isinstance(env.action_space, gymnasium.spaces.Discrete)
        assert env.observation_space.shape is not None
        self.n = int(env.action_space.n)
        (obs_size,) = env.observation_space.shape
        self.online = Network(algorithm, obs_size, self.n, settings.hidden, k).double()
        self.target = copy.deepcopy(self.online)
        self.actor = copy.deepcopy(self.online) if deviations.delayed_actor_weights else self.online
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=settings.step_size, eps=settings.adam_epsilon)
        self.replay: list[Transition] = []  # oldest first
        self.actions: list[int] = []
        self.updates = 0
        self.t = 0  # transitions stored, which is also the number of actions taken
        self.episode_over = False

    def run(self, until: int) -> None:
        """Continue until `until` transitions are stored."""
        while self.t < until:
            self.reset_if_due()
            action = self.choose_action()
            if self.deviations.update_after_next_action and self.t > 0:
                self.learn_if_due()  # for the step before
            self.step_and_store(action)
            if not self.deviations.update_after_next_action:
                self.learn_if_due()

    def reset_if_due(self) -> None:
        checkpoint_interval = self.deviations.checkpoint_interval
        if self.t == 0 or (checkpoint_interval and self.t % checkpoint_interval == 0):
            phase = self.t // checkpoint_interval if checkpoint_interval else 0
            self.obs = np.array(self.env.reset(seed=self.reset_seeds[phase])[0], np.float32)
            self.actor.load_state_dict(self.online.state_dict())
        elif self.episode_over:
            self.obs = np.array(self.env.reset()[0], np.float32)

    def choose_action(self) -> int:
        s, a = self.settings, self.t
        fraction = min(a / s.epsilon_steps, 1.0) if s.epsilon_steps else 1.0
        epsilon = s.epsilon_start + fraction * (s.epsilon_end - s.epsilon_start)
        if uniform(self.key("explore"), a, 1).item() < epsilon:
            return int(integers(self.key("action"), a, 1, self.n).item())
        tau = uniform(self.key("acting_quantiles"), a, s.acting_quantiles)
        return self.greedy_actions(self.obs[None], tau, self.actor)[0]

    def step_and_store(self, action: int) -> None:
        s = self.settings
        next_obs, raw_reward, terminated, truncated, _ = self.env.step(action)
        reward = np.sign(float(raw_reward)) if s.clip_rewards else float(raw_reward)
        next_obs, discount = np.array(next_obs, np.float32), 0.0 if terminated else s.discount
        reward = reward * s.reward_scale
        self.replay.append(Transition(self.obs, action, reward, discount, next_obs))
        if len(self.replay) > s.replay_capacity:
            self.replay.pop(0)
        self.actions.append(action)
        self.t += 1
        self.obs, self.episode_over = next_obs, terminated or truncated

    def learn_if_due(self) -> None:
        """Copy the online weights into the target network first, then update."""
        s = self.settings
        if self.t < s.learning_starts:
            return
        if self.t % s.target_update_interval == 0:
            self.target.load_state_dict(self.online.state_dict())
        if self.t % s.update_interval == 0:
            if self.deviations.delayed_actor_weights:
                self.actor.load_state_dict(self.online.state_dict())
            for j in range(s.gradient_steps):
                self.update(self.t * s.gradient_steps + j)

    def update(self, counter: int) -> None:
        batch = self.sample(counter)
        losses = self.quantile_loss(batch, counter) if self.is_iqn else self.td_loss(batch)  # [B]
        self.optimizer.zero_grad()
        loss = losses.mean() if self.settings.reduction == "mean" else losses.sum()
        torch.autograd.backward(loss)
        if self.settings.step_size_steps is not None:
            remaining = 1 - self.t / self.settings.step_size_steps
            self.optimizer.param_groups[0]["lr"] = self.settings.step_size * remaining
        self.optimizer.step()
        self.updates += 1

    def sample(self, counter: int) -> Batch:
        key, size, stored = self.key("replay"), self.settings.batch_size, len(self.replay)
        if self.deviations.sample_with_replacement:
            indices = integers(key, counter, size, stored)[0]
        else:
            assert size <= stored, "sampling without replacement needs batch_size transitions"
            indices = uniform(key, counter, stored)[0].argsort(stable=True)[:size]
        fields = zip(*[self.replay[int(i)] for i in indices], strict=True)
        obs, action, reward, discount, next_obs = [torch.from_numpy(np.stack(f)) for f in fields]
        return self.scaled(obs), action, reward, discount, self.scaled(next_obs)

    def td_loss(self, batch: Batch) -> Tensor:
        obs, action, reward, discount, next_obs = batch
        s, rows = self.settings, torch.arange(len(obs))
        with torch.no_grad():
            # Double DQN: the online network chooses, the target network rates the next action.
            chooser = self.online if "double" in self.algorithm else self.target
            next_action = chooser(next_obs).argmax(-1)
            next_q = self.target(next_obs)[rows, next_action]
        baseline, z = self.online.streams(obs)  # [B, 1], [B, A]
        error = reward + discount * next_q - (baseline + z)[rows, action]
        loss = huber(error, 1.0) if s.loss == "huber" else 0.5 * error**2
        if self.algorithm == "rdq":
            loss = loss + s.beta * 0.5 * (baseline[:, 0] ** 2 + (z**2).sum(-1))
        return loss

    def quantile_loss(self, batch: Batch, counter: int) -> Tensor:
        """Sum over the online quantiles, mean over the target samples."""
        obs, action, reward, discount, next_obs = batch
        s, rows = self.settings, torch.arange(len(obs))
        sizes = [s.online_quantiles, s.target_quantiles, s.acting_quantiles]
        draws = uniform(self.key("quantiles"), counter, s.batch_size * sum(sizes)).double()
        tau, target_tau, choice_tau = torch.split(draws.view(s.batch_size, sum(sizes)), sizes, 1)
        with torch.no_grad():
            next_action = self.target(next_obs, choice_tau).mean(1).argmax(-1)
            next_z = self.target(next_obs, target_tau)[rows, :, next_action]  # [B, M]
            target = reward[:, None] + discount[:, None] * next_z
        z: Tensor = self.online(obs, tau)[rows, :, action]  # [B, N]
        error: Tensor = target[:, None, :] - z[:, :, None]  # [B, N, M]
        weight: Tensor = (tau[:, :, None] - (error < 0).double()).abs()
        return (weight * huber(error, s.kappa) / s.kappa).mean(2).sum(1)

    @torch.no_grad()
    def greedy_actions(
        self, observations: Observations, tau: Tensor | None = None, network: Network | None = None
    ) -> list[int]:
        """Greedy actions [B], by default of the online network; the first of equal values.

        IQN averages over `tau`, [B, K] or [1, K]: by default K equally spaced midpoints.
        """
        if tau is None:
            count = self.settings.acting_quantiles
            tau = (torch.arange(count, dtype=torch.float64)[None] + 0.5) / count
        obs = self.scaled(torch.from_numpy(np.asarray(observations, np.float32)))
        q = (network or self.online)(obs, tau.double().expand(len(obs), -1))
        return [int(i) for i in (q.mean(1) if self.is_iqn else q).argmax(-1)]

    def load(self, parameters: Sequence[Tensor]) -> None:
        """Set the weights of all networks: (weight, bias) of each linear layer, in this order.

        Torso; the quantile embedding, if any; then hidden and output layer of the head, or of the
        baseline stream and then of the residual stream.
        """
        for network in (self.online, self.target, self.actor):
            for own, given in zip(network.parameters(), parameters, strict=True):
                assert own.shape == given.shape, f"expected {own.shape}, not {given.shape}"
                own.data.copy_(given)

    def parameters(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.online.parameters()]

    def target_parameters(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.target.parameters()]

    def scaled(self, obs: Tensor) -> Tensor:
        return obs.double() * self.settings.observation_scale

    def key(self, stream: str) -> Tensor:
        return torch.tensor([stream_key(self.seed, stream)])
