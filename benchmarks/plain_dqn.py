"""One DQN agent on one Atari game the usual way, in plain eager PyTorch: the yardstick.

    python benchmarks/plain_dqn.py --seconds 20

One environment, one network, a Python loop: act, step, store, and an update of 32 transitions every
4 steps, with the paper's protocol and settings. Nothing of valueshare is in it. Nothing is slowed
down either: frames go to the device once and stay there as bytes, the optimiser is PyTorch's fused
one, and no update waits for the host. Exploration is at its final 1 %, as for most of a run.
"""

import argparse
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

ACTIONS = 18
MINIBATCH = 32
UPDATE_EVERY = 4  # steps
TARGET_EVERY = 10_000  # steps
REPLAY = 20_000  # transitions; the speed does not depend on it
WARM_UP = 400  # steps, the first half of them without an update
EPSILON = 0.01
DISCOUNT = 0.99


class Game(NamedTuple):
    """One environment; observations are the last four frames, [4, 84, 84] bytes."""

    reset: Callable[[], NDArray[np.uint8]]
    step: Callable[[int], tuple[NDArray[np.uint8], float, bool, bool]]  # ..., terminated, truncated
    close: Callable[[], None]


def gymnasium_game(name: str) -> Game:
    """As most agents have it: Gymnasium's own preprocessing, which resizes with OpenCV."""
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)
    env: Any = gymnasium.make(
        f"ALE/{name}-v5", frameskip=1, repeat_action_probability=0.25, full_action_space=True
    )
    env = FrameStackObservation(AtariPreprocessing(env, noop_max=0, frame_skip=4), 4)

    def step(action: int) -> tuple[NDArray[np.uint8], float, bool, bool]:
        observation, reward, terminated, truncated, _ = env.step(action)
        return observation, float(reward), terminated, truncated

    return Game(lambda: env.reset()[0], step, env.close)


def ale_game(name: str) -> Game:
    """As fast as it gets: preprocessing in C++, by a vector environment of one."""
    from ale_py.vector_env import AtariVectorEnv

    rom = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    env = AtariVectorEnv(
        rom,
        num_envs=1,
        num_threads=1,
        repeat_action_probability=0.25,
        full_action_space=True,
        noop_max=0,
        use_fire_reset=False,
    )
    begun = False

    def reset() -> NDArray[np.uint8]:
        nonlocal begun
        if not begun:
            begun = True
            observation = env.reset(seed=0)[0]
        else:  # the step after an ending is the reset
            observation = env.step(np.zeros(1, dtype=np.int64))[0]
        first: NDArray[np.uint8] = observation[0]
        return first

    def step(action: int) -> tuple[NDArray[np.uint8], float, bool, bool]:
        observation, reward, terminated, truncated, _ = env.step(np.array([action]))
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0])

    return Game(reset, step, env.close)


GAMES: dict[str, Callable[[str], Game]] = {"gymnasium": gymnasium_game, "ale": ale_game}


class Scaled(nn.Module):
    """Bytes as floats in 0..1."""

    def forward(self, frames: Tensor) -> Tensor:
        return frames.float() / 255


def nature_network() -> nn.Sequential:
    return nn.Sequential(
        Scaled(),
        nn.Conv2d(4, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, ACTIONS),
    )


def measure(
    seconds: float,
    device: str | torch.device = "cuda",
    *,
    game: str = "Breakout",
    environment: str | None = None,
) -> float:
    """Steps a second of the whole loop, over `seconds` of it.

    `environment` is "gymnasium" or "ale"; without one, Gymnasium's where OpenCV is installed.
    """
    device = torch.device(device)
    if environment is None:
        environment = "ale" if find_spec("cv2") is None else "gymnasium"
    env = GAMES[environment](game)
    rng = np.random.default_rng(0)
    online, target = nature_network().to(device), nature_network().to(device)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=6.25e-5, eps=1.5e-4, fused=True)

    before, after = (
        torch.zeros(REPLAY, 4, 84, 84, dtype=torch.uint8, device=device) for _ in range(2)
    )
    actions = np.zeros(REPLAY, dtype=np.int64)
    numbers = np.zeros((2, REPLAY), dtype=np.float32)  # rewards and discounts

    def act(observation: Tensor) -> int:
        if rng.random() < EPSILON:
            return int(rng.integers(ACTIONS))
        with torch.no_grad():
            return int(online(observation.unsqueeze(0)).argmax())

    def update(stored: int) -> None:
        chosen = rng.integers(stored, size=MINIBATCH)
        rows = torch.from_numpy(chosen).to(device)
        a = torch.from_numpy(actions[chosen]).to(device)
        reward, discount = torch.from_numpy(numbers[:, chosen]).to(device)
        with torch.no_grad():
            goal = reward + discount * target(after[rows]).amax(1)
        value = online(before[rows]).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = 0.5 * (goal - value).square().sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def fetched(observation: NDArray[np.uint8]) -> Tensor:
        return torch.tensor(np.asarray(observation), device=device)  # a copy on every device

    observation = fetched(env.reset())
    began, deadline, t = 0.0, float("inf"), 0
    while time.perf_counter() < deadline:
        if t == WARM_UP:
            settle(device)
            began = time.perf_counter()
            deadline = began + seconds
        action = act(observation)
        frames, reward, terminated, truncated = env.step(action)
        following = fetched(frames)
        row = t % REPLAY
        before[row], after[row] = observation, following
        actions[row] = action
        numbers[:, row] = np.sign(reward), 0.0 if terminated else DISCOUNT
        observation = fetched(env.reset()) if terminated or truncated else following
        t += 1
        if t >= WARM_UP // 2 and t % UPDATE_EVERY == 0:
            update(min(t, REPLAY))
        if t % TARGET_EVERY == 0:
            target.load_state_dict(online.state_dict())
    settle(device)
    rate = (t - WARM_UP) / (time.perf_counter() - began)
    env.close()
    return rate


def settle(device: torch.device) -> None:
    """Wait for everything that was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--game", default="Breakout", help="as Gymnasium writes it")
    parser.add_argument("--environment", choices=list(GAMES), default=None)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # TensorFloat-32, as for the population
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    rate = measure(
        options.seconds, options.device, game=options.game, environment=options.environment
    )
    print(f"{rate:,.0f} steps/s  ({options.game}, {options.device}, {os.cpu_count()} cores)")


if __name__ == "__main__":
    main()
