"""DQN of one agent in a single file, fast on a GPU: the peer of one_agent.py. It uses nothing of valueshare.

    python benchmarks/single_file_dqn.py --steps 100000      # learns CartPole-v1; prints returns and losses

Loop, network and settings are those of CleanRL's dqn.py (https://docs.cleanrl.dev/rl-algorithms/dqn). The tricks are
LeanRL's (https://github.com/pytorch-labs/LeanRL): acting and the update are compiled and captured in CUDA graphs, Adam
is fused, replay is on the device, and transitions are copied there once per update. Random actions are drawn on the
host, so that they need no network.
"""

import argparse
import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH_SIZE = 128
REPLAY_CAPACITY = 10_000
LEARNING_STARTS = 10_000  # not below the capacity: an update samples from a full replay
TARGET_UPDATE_INTERVAL = 500
LEARNING_RATE = 2.5e-4
DISCOUNT = 0.99
EPSILON_END = 0.05
EPSILON_STEPS = 10_000
OBSERVATIONS, ACTIONS = 4, 2
ROW = 2 * OBSERVATIONS + 3  # observation, next observation, action, reward, discount
# The compiler's worker processes would slow the environment down.
COMPILE_OPTIONS: dict[str, Any] = {"compile_threads": 1}


Step = tuple[Any, float, bool, bool]  # observation, reward, terminated, truncated


class Gymnasium:
    """CartPole-v1 of Gymnasium."""

    def __init__(self, seed: int) -> None:
        self.env = gymnasium.make("CartPole-v1", disable_env_checker=True)
        self.env.reset(seed=seed)

    def reset(self) -> Any:
        return self.env.reset()[0]

    def step(self, action: int) -> Step:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return observation, float(reward), terminated, truncated


class EnvPool:
    """CartPole-v1 of EnvPool, a pool of one."""

    def __init__(self, seed: int) -> None:
        import envpool

        warnings.filterwarnings("ignore", message=".*precision lowered")  # of the bounds of observations
        self.pool = envpool.make_gymnasium("CartPole-v1", num_envs=1, num_threads=1, seed=seed)

    def reset(self) -> Any:
        return self.pool.reset()[0][0]

    def step(self, action: int) -> Step:
        observation, reward, terminated, truncated, _ = self.pool.step(np.array([action], np.int32))
        return observation[0], reward[0], terminated[0], truncated[0]


ENVIRONMENTS: dict[str, type[Gymnasium | EnvPool]] = {"gymnasium": Gymnasium, "envpool": EnvPool}


def make_network(device: torch.device) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(OBSERVATIONS, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, ACTIONS)
    ).to(device)


class DQN:
    """One agent in one environment; `run` continues where the last call ended."""

    def __init__(
        self, backend: str, device: torch.device, *, update_interval: int = 10, compiled: bool = True, seed: int = 0
    ) -> None:
        assert REPLAY_CAPACITY % update_interval == 0, "a copy to the device must not reach over the end of the replay"
        torch.manual_seed(seed)
        self.device, self.update_interval, self.step = device, update_interval, 0
        self.env, self.rng = ENVIRONMENTS[backend](seed), random.Random(seed)
        self.obs = self.env.reset()
        self.returns: list[float] = []  # of finished episodes
        self.running_return = 0.0

        self.online, self.target = make_network(device), make_network(device)
        self.target.load_state_dict(self.online.state_dict())
        on_cuda = device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=LEARNING_RATE, fused=True, capturable=on_cuda)
        self.replay = torch.zeros(REPLAY_CAPACITY, ROW, device=device)
        self.host_replay = torch.zeros(REPLAY_CAPACITY, ROW, pin_memory=on_cuda)
        self.host_rows = self.host_replay.numpy()
        self.index = torch.zeros(BATCH_SIZE, dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)
        self.policy_obs = torch.zeros(1, OBSERVATIONS, device=device)
        self.host_obs = torch.zeros(1, OBSERVATIONS, pin_memory=on_cuda)
        self.host_action = torch.zeros(1, dtype=torch.int64, pin_memory=on_cuda)
        self.obs_array, self.action_array = self.host_obs.numpy(), self.host_action.numpy()

        self.td_loss, self.greedy_action = self._td_loss, self._greedy_action
        if compiled:
            self.td_loss = torch.compile(self._td_loss, fullgraph=True, dynamic=False, options=COMPILE_OPTIONS)
            self.greedy_action = torch.compile(self._greedy_action, fullgraph=True, options=COMPILE_OPTIONS)
        self.act = graphed(self._act, device)
        self.update: Callable[[], None] | None = None  # captured when the replay is full

    def run(self, steps: int) -> None:
        for _ in range(steps):
            action = self._epsilon_greedy()
            next_obs, reward, terminated, truncated = self.env.step(action)
            row = self.host_rows[self.step % REPLAY_CAPACITY]
            row[:OBSERVATIONS] = self.obs
            row[OBSERVATIONS : 2 * OBSERVATIONS] = next_obs
            row[2 * OBSERVATIONS :] = action, reward, 0.0 if terminated else DISCOUNT
            self.running_return += reward
            self.obs = next_obs
            if terminated or truncated:
                self.returns.append(self.running_return)
                self.running_return = 0.0
                self.obs = self.env.reset()
            self.step += 1
            if self.step % self.update_interval == 0:
                self._upload()
                if self.step >= LEARNING_STARTS:
                    self._learn()
            if self.step % TARGET_UPDATE_INTERVAL == 0:
                with torch.no_grad():
                    torch._foreach_copy_(list(self.target.parameters()), list(self.online.parameters()))

    def _epsilon_greedy(self) -> int:
        epsilon = max(EPSILON_END, 1.0 - (1.0 - EPSILON_END) * self.step / EPSILON_STEPS)
        if self.rng.random() < epsilon:
            return self.rng.randrange(ACTIONS)
        self.obs_array[0] = self.obs
        self.act()
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        return int(self.action_array[0])

    def _upload(self) -> None:
        """Copy the transitions since the last update; the host overwrites them a whole replay later."""
        end = (self.step - 1) % REPLAY_CAPACITY + 1
        new = slice(end - self.update_interval, end)
        self.replay[new].copy_(self.host_replay[new], non_blocking=True)

    def _learn(self) -> None:
        if self.update is None:
            self.update = graphed(self._update, self.device)
        self.update()

    def _act(self) -> None:
        self.policy_obs.copy_(self.host_obs, non_blocking=True)
        self.host_action.copy_(self.greedy_action(self.policy_obs), non_blocking=True)

    @torch.no_grad()
    def _greedy_action(self, obs: Tensor) -> Tensor:
        q: Tensor = self.online(obs)  # [1, A]
        return q.argmax(dim=1)  # [1]

    def _update(self) -> None:
        self.index.random_(REPLAY_CAPACITY)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.td_loss(self.replay, self.index)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def _td_loss(self, replay: Tensor, index: Tensor) -> Tensor:
        batch = replay[index]  # [B, ROW]
        obs, next_obs, (action, reward, discount) = (
            batch[:, :OBSERVATIONS],
            batch[:, OBSERVATIONS : 2 * OBSERVATIONS],
            batch[:, 2 * OBSERVATIONS :].unbind(dim=1),
        )
        with torch.no_grad():
            td_target = reward + discount * self.target(next_obs).amax(dim=1)  # [B]
        q = self.online(obs).gather(1, action.long().unsqueeze(1)).squeeze(1)  # [B]
        return F.mse_loss(q, td_target)


def graphed(function: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The function as a CUDA graph, after three calls to warm up; on a CPU the function itself."""
    if device.type == "cpu":
        return function
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--backend", choices=ENVIRONMENTS, default="gymnasium")
    parser.add_argument("--update-interval", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    agent = DQN(
        options.backend,
        torch.device(options.device),
        update_interval=options.update_interval,
        compiled=not options.no_compile,
        seed=options.seed,
    )
    while agent.step < options.steps:
        episodes, began = len(agent.returns), time.perf_counter()
        agent.run(min(10_000, options.steps - agent.step))
        loss, seconds = float(agent.loss), time.perf_counter() - began
        recent = agent.returns[episodes:]
        mean = sum(recent) / len(recent) if recent else float("nan")
        print(f"step {agent.step:,}: mean return {mean:.1f}, loss {loss:.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
