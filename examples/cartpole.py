"""Code that the examples share: options, CartPole-v1, and scores as CSV, which `valueshare report` reads."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium

ENV = "CartPole-v1"
OBSERVATION, ACTIONS = 4, 2


def coefficient(text: str) -> float | Literal["n"]:
    return "n" if text == "n" else float(text)


def at_least(minimum: int) -> Callable[[str], int]:
    """The type of an option: a whole number, also as 1e5."""

    def parse(text: str) -> int:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not (number.is_integer() and number >= minimum):
            raise argparse.ArgumentTypeError(f"{text}: write a whole number >= {minimum}")
        return int(number)

    return parse


def options(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--k", type=coefficient, default="n", help="a number >= 0, or n, the number of actions")
    parser.add_argument("--steps", type=at_least(10), default=50_000)  # epsilon falls in a tenth of them
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eval-interval", type=at_least(1), default=2_500)
    parser.add_argument("--eval-episodes", type=at_least(1), default=10)
    args = parser.parse_args(argv)
    args.eval_interval = min(args.eval_interval, args.steps)  # a short run is evaluated once, at its end
    args.learning_starts = max(64, args.steps // 50)
    print("environment,algorithm,k,seed,step,score")
    return args


def evaluate(act: Callable[[Any], Any], args: argparse.Namespace, step: int, algorithm: str = "ib-dqn") -> None:
    """Print the mean return of greedy episodes as a row."""
    env, total = gymnasium.make(ENV), 0.0
    for episode in range(args.eval_episodes):
        observation, _ = env.reset(seed=1_000_000 + episode)
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(int(act(observation)))
            total += float(reward)
            done = terminated or truncated
    k = ACTIONS if args.k == "n" else args.k
    print(f"{ENV},{algorithm},{k},{args.seed},{step},{total / args.eval_episodes}", flush=True)


def epsilon(step: int, steps: int) -> float:
    """From 1 to 0.05 in the first tenth of the training."""
    return max(0.05, 1 - 0.95 * step / (steps / 10))
