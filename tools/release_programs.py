"""Programs that release_check.py runs to try the extras of a wheel.

    python tools/release_programs.py layer

They are functions, not text for `python -c`, so that type checkers see what was renamed.
"""

import os
import secrets
import sys


def layer() -> None:
    import torch

    import valueshare

    assert valueshare.MeanExpansion(2)(torch.ones(2)).tolist() == [3, 3]


def train_on_ray() -> None:
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # or Ray stores one in the home directory
    import ray

    import valueshare

    ray.init("local", num_cpus=1, include_dashboard=False)  # a cluster that ends with this process, beside any other
    valueshare.train(
        "CartPole-v1",
        seeds=1,
        steps=60,
        learning_starts=10,
        eval_interval=30,
        eval_episodes=1,
        eval_episode_limit=10,
        batch_size=4,
        hidden=[8],
        out="run",
        launcher=valueshare.LauncherOptions(launcher="ray"),
    )


def export() -> None:
    """The first agent of run/ as agent.onnx."""
    import valueshare

    valueshare.open_run("run").agent(0).export("agent.onnx")


PROGRAMS = {"layer": layer, "train-on-ray": train_on_ray, "export": export}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
