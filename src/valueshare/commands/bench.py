"""The benchmarks' commands."""

from tyro.conf import FlagCreatePairsOff

from valueshare.commands.training import training_library
from valueshare.errors import InvalidInput

Flag = FlagCreatePairsOff[bool]


def bench_tabular() -> None:
    """Timesteps a second of the paper's gridworld sweep, and of a plain NumPy learner."""
    from valueshare.benchmarks import tabular

    tabular.run()


def bench_layer() -> None:
    """Forward and backward of the Nature network, with the layer and without."""
    try:
        from valueshare.benchmarks import layer
    except ModuleNotFoundError as missing:
        raise InvalidInput(
            f"the layer needs {missing.name}: pip install 'valueshare[torch]'"
        ) from None

    layer.run()


def bench_import() -> None:
    """Seconds that `import valueshare` takes."""
    from valueshare.benchmarks import import_time

    import_time.run()


def bench_population(
    agents: int = 64,
    preset: str = "generic",
    env: str = "LunarLander-v3",
    device: str = "auto",
    compile: Flag = False,  # noqa: A002 (the name of the option)
    seconds: float = 10.0,
    threads: int = 0,
) -> None:
    """What a tick of a population costs: each part alone, and the whole loop.

    Args:
        agents: Agents that step in lockstep.
        preset: Whose settings: generic, LunarLander-v3 (the paper's) or CartPole-v1.
        env: The environment that is stepped.
        device: cpu, cuda or cuda:0; auto is the GPU where there is one.
        compile: Compile the learning and acting steps; takes a minute, then they are faster.
        seconds: Of measuring, all parts together.
        threads: EnvPool's; 0 is one a core.
    """
    training_library()  # says what to install where that is missing
    from valueshare.benchmarks import population

    chosen = None if device == "auto" else device
    population.run(agents, preset, env, chosen, compile, seconds, threads or None)
