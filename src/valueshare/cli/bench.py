"""The benchmarks' commands."""

from typing import Literal

from valueshare.cli.arguments import AutoDevice, Compile, Tf32, Threads
from valueshare.cli.training import training_library
from valueshare.errors import InvalidInput
from valueshare.extras import install_command


def bench_tabular() -> None:
    """Timesteps per second of the paper's gridworld sweep, and of a plain NumPy learner."""
    from valueshare.benchmarks import tabular

    tabular.run()


def bench_layer() -> None:
    """Forward and backward of the Nature network, with the layer and without."""
    try:
        from valueshare.benchmarks import layer
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"the layer needs {missing.name}: {install_command('torch')}") from None

    layer.run()


def bench_import() -> None:
    """Seconds that `import valueshare` takes."""
    from valueshare.benchmarks import import_time

    import_time.run()


def bench_population(
    *,
    agents: int = 64,
    preset: str = "generic",
    env: str = "LunarLander-v3",
    device: AutoDevice = "auto",
    compile: Compile = False,  # noqa: A002 (the name of the option)
    seconds: float = 10.0,
    threads: Threads = 0,
) -> None:
    """Time of one step of a population: each part alone, and the whole loop.

    Args:
        agents: Agents that step in lockstep.
        preset: Whose settings: generic, lunarlander-paper, or an environment's, like CartPole-v1.
        env: The environment that is stepped.
        seconds: Seconds of measuring, all parts together.
    """
    training_library()  # says what to install where that is missing
    from valueshare.benchmarks import population

    chosen = None if device == "auto" else device
    population.run(agents, preset, env, chosen, compile, seconds, threads or None)


def bench_atari(
    *,
    agents: int = 16,
    algorithm: str = "dqn",
    games: tuple[str, ...] = ("Pong",),
    device: AutoDevice = "auto",
    compile: Compile = False,  # noqa: A002 (the name of the option)
    tf32: Tf32 = False,
    replay_capacity: int = 1_000_000,
    replay_device: Literal["auto", "cpu", "cuda", "disk"] = "auto",
    loops: tuple[Literal["serial", "halves", "lag", "lag-halves", "lag-quarters", "lag-eighths"], ...] = (
        "serial",
        "halves",
        "lag",
        "lag-halves",
    ),
    threads: Threads = 0,
    raw_seconds: float = 5.0,
    plain_seconds: float = 8.0,
    part_seconds: float = 2.0,
    loop_seconds: float = 10.0,
) -> None:
    """Emulators, learning and acting alone, and whole training loops, beside one plain agent.

    The replay is full from the start. Rows are printed as soon as they are known. Seconds of 0
    leave a part out.

    Args:
        agents: Agents that step in lockstep.
        algorithm: dqn, double-dqn, ib-dqn, ib-double-dqn, dueling-dqn, rdq, iqn or ib-iqn.
        games: The agents take them in turn; one plain agent plays the first.
        replay_capacity: Transitions that the replay of one agent holds, 7.1 kB each.
        replay_device: Memory that holds the replay; auto: that of the training device.
        loops: Agents as one group or several, each at its own pace; lag: acting never waits.
        raw_seconds: Seconds of the bare emulators.
        plain_seconds: Seconds of one plain agent.
        part_seconds: Seconds of learning, acting and storing, each.
        loop_seconds: Seconds of a loop, and half as many of the bare emulators beside it.
    """
    training_library("atari")  # says what to install where that is missing
    from torch.cuda import is_available

    from valueshare.benchmarks import atari

    atari.run(
        atari.AtariBench(
            agents=agents,
            algorithm=algorithm,
            games=games,
            replay_capacity=replay_capacity,
            replay_device=None if replay_device == "auto" else replay_device,
            device=("cuda" if is_available() else "cpu") if device == "auto" else device,
            compiled=compile,
            tf32=tf32,
            threads=threads or None,
            loops=loops,
            raw_seconds=raw_seconds,
            part_seconds=part_seconds,
            loop_seconds=loop_seconds,
            plain_seconds=plain_seconds,
        )
    )
