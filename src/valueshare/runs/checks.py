"""What is refused before a run begins or goes on: what this machine or its caller does not have."""

from pathlib import Path

from valueshare.errors import InvalidInput
from valueshare.population.compilation import check_compiler
from valueshare.population.state import NetworkFactory
from valueshare.population.train import checked_device
from valueshare.runs.engines import EngineOptions
from valueshare.runs.plan import Plan


def check_engine(engine: EngineOptions) -> None:
    """Refuse what is no engine's options."""
    if not isinstance(engine, EngineOptions):
        raise InvalidInput(
            f"engine is given as {type(engine).__name__}: write EngineOptions(...) of "
            "valueshare.runs.engines, like EngineOptions(workers=2)"
        )


def check_network(folder: Path, plan: Plan, network: NetworkFactory | None) -> None:
    """Refuse a stored run without the network of its own that it needs, or with one too many."""
    if plan.network is not None and network is None:
        raise InvalidInput(
            f"the run in {folder} has a network of its own, {plan.network}: resume it from Python, "
            "valueshare.resume(folder, network=...)"
        )
    if plan.network is None and network is not None:
        raise InvalidInput(f"the run in {folder} has no network of its own: leave network out")


def check_device(plan: Plan, engine: EngineOptions) -> None:
    """Refuse a device that is not here; a cluster may have it elsewhere."""
    if engine.engine == "local":
        checked_device(plan.device)


def check_compiles(plan: Plan, engine: EngineOptions) -> None:
    """Refuse to compile where that cannot be done; a cluster may do it elsewhere."""
    if plan.compiled and engine.engine == "local":
        check_compiler(checked_device(plan.device))


def check_device_of(folder: Path, plan: Plan, engine: EngineOptions) -> None:
    """The same of a stored run."""
    try:
        check_device(plan, engine)
    except InvalidInput as error:
        raise InvalidInput(
            f"the run in {folder} is on {plan.device}, and there is no such device here: resume it "
            "on a machine that has one"
        ) from error
