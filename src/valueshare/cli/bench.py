"""The benchmarks' commands."""

from typing import Annotated

from cyclopts import Parameter

from valueshare.benchmarks.atari_options import AtariBench
from valueshare.cli.arguments import Tf32, Threads
from valueshare.cli.run_and_report import require_training
from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.option_groups import Compile, Device

DEFAULT = AtariBench()
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object instead of a table.")]


def bench_tabular(*, as_json: Json = False) -> None:
    """Timesteps per second of the paper's gridworld sweep, and of a plain NumPy learner."""
    from valueshare.benchmarks import tabular

    tabular.run(as_json)


def bench_layer(*, as_json: Json = False) -> None:
    """Time of a forward and backward pass of the Nature network, with the layer and without."""
    try:
        from valueshare.benchmarks import layer
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"the layer needs {missing.name}: {install_command('torch')}") from None

    layer.run(as_json)


def bench_import(*, as_json: Json = False) -> None:
    """Time that `import valueshare` takes, with its mathematics, which load NumPy."""
    from valueshare.benchmarks import import_time

    import_time.run(as_json)


def bench_population(
    *,
    agents: int = 64,
    preset: str = "generic",
    env: str = "LunarLander-v3",
    device: Device = "auto",
    compile: Compile = False,  # noqa: A002 (the name of the option)
    seconds: float = 10.0,
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Time per step of a population: of each part alone, and of the whole loop.

    Args:
        agents: Agents that step in lockstep.
        preset: Preset to measure: generic, lunarlander-paper, or that of an environment, like CartPole-v1.
        env: Environment to step.
        seconds: Seconds to measure, for all parts together.
    """
    require_training()  # says what to install where that is missing
    from valueshare.benchmarks import population

    population.run(agents, preset, env, _device(device), compile, seconds, threads, as_json)


def bench_atari(
    *,
    bench: Annotated[AtariBench, Parameter(name="*")] = DEFAULT,
    device: Device = "auto",
    compile: Compile = False,  # noqa: A002 (the name of the option)
    tf32: Tf32 = False,
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Time per step of Atari agents: emulators, learning and acting alone, whole loops, and one plain agent.

    The replay is full from the start. Rows are printed as soon as they are measured. A part with 0 seconds is left out.
    """
    require_training("atari")  # says what to install where that is missing
    from valueshare.benchmarks import atari

    atari.run(bench, _device(device), compile, tf32, threads, as_json)


def _device(name: str) -> str:
    from torch.cuda import is_available

    return ("cuda" if is_available() else "cpu") if name == "auto" else name
