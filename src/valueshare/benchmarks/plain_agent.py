"""One DQN agent on one Atari game, written as usual in plain eager PyTorch: the baseline that loops are compared with.

One emulator, one network, a Python loop: act, step, store, and an update of 32 transitions every 4 steps, with the
paper's protocol. It uses only the games' names and actions of valueshare. Nothing makes it slow on purpose: frames are
preprocessed in C++ and stay on the device as bytes, the optimiser is fused, and no update waits for the host.
Exploration is at its final 1 %, as for most of a run.
"""

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from valueshare.benchmarks.layer import nature_network
from valueshare.benchmarks.training_loop import synchronize
from valueshare.envs.atari_games import atari_game
from valueshare.envs.emulators import emulator_indices

ACTIONS = 18
BATCH_SIZE = 32
UPDATE_INTERVAL = 4  # steps
TARGET_UPDATE_INTERVAL = 10_000  # steps
REPLAY = 10_000  # transitions; the speed does not depend on it
EPSILON = 0.01
DISCOUNT = 0.99


def steps_per_second(seconds: float, device: torch.device, game: str, warm_up: int = 400) -> float:
    """Steps per second of the whole loop, over `seconds` after `warm_up` steps, half of them with updates."""
    env = _emulator(game)
    index = emulator_indices(env, ACTIONS)
    rng = np.random.default_rng(0)
    online, target = nature_network(ACTIONS).to(device), nature_network(ACTIONS).to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=6.25e-5, eps=1.5e-4, fused=True)
    before, after = (torch.zeros(REPLAY, 4, 84, 84, dtype=torch.uint8, device=device) for _ in range(2))
    actions = np.zeros(REPLAY, dtype=np.int64)
    numbers = np.zeros((2, REPLAY), dtype=np.float32)  # rewards and discounts

    def to_device(frames: NDArray[Any]) -> Tensor:
        return torch.tensor(frames[0], device=device)  # a copy on every device

    def values(network: nn.Module, frames: Tensor) -> Tensor:
        q: Tensor = network(frames.float() / 255)
        return q

    def act(obs: Tensor) -> int:
        if rng.random() < EPSILON:
            return int(rng.integers(ACTIONS))
        with torch.no_grad():
            return int(values(online, obs.unsqueeze(0)).argmax())

    def update(stored: int) -> None:
        chosen = rng.integers(stored, size=BATCH_SIZE)
        rows = torch.from_numpy(chosen).to(device)
        a = torch.from_numpy(actions[chosen]).to(device)
        reward, discount = torch.from_numpy(numbers[:, chosen]).to(device)
        with torch.no_grad():
            goal = reward + discount * values(target, after[rows]).amax(1)
        value = values(online, before[rows]).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = 0.5 * (goal - value).square().sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    obs = to_device(env.reset(seed=0)[0])
    began, deadline, t = 0.0, float("inf"), 0
    while time.perf_counter() < deadline:
        if t == warm_up:
            synchronize(device)
            began = time.perf_counter()
            deadline = began + seconds
        action = act(obs)
        frames, reward, terminated, truncated, _ = env.step(np.array([index[action]]))
        next_obs = to_device(frames)
        row = t % REPLAY
        before[row], after[row] = obs, next_obs
        actions[row] = action
        numbers[:, row] = np.sign(reward[0]), 0.0 if terminated[0] else DISCOUNT
        if terminated[0] or truncated[0]:  # the step after an end is the reset
            obs = to_device(env.step(np.zeros(1, np.int64))[0])
        else:
            obs = next_obs
        t += 1
        if t % TARGET_UPDATE_INTERVAL == 0:
            target.load_state_dict(online.state_dict())
        if t >= warm_up // 2 and t % UPDATE_INTERVAL == 0:
            update(min(t, REPLAY))
    synchronize(device)
    rate = (t - warm_up) / (time.perf_counter() - began)
    env.close()
    return rate


def _emulator(game: str) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        atari_game(game).rom,
        num_envs=1,
        num_threads=1,
        repeat_action_probability=0.25,
        full_action_space=True,
        noop_max=0,
        use_fire_reset=False,
    )
