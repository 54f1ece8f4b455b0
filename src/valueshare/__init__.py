"""valueshare: faster Q-learning by sharing value across actions.

    >>> import valueshare
    >>> valueshare.expand([3.0, 1.0], k=2).tolist()      # the transform, on any array
    [7.0, 5.0]

`MeanExpansion(k)` is the same as a layer for PyTorch, `append_mean_expansion(network, k)` puts it
at the end of a network you already have, and `sweep` learns tables of any finite MDP.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from valueshare._version import __version__ as __version__
from valueshare.errors import InvalidInput

if TYPE_CHECKING:
    from valueshare import value_metrics
    from valueshare.expansion import (
        baseline_fraction,
        baseline_residual,
        condition_number,
        contract,
        expand,
        implicit_baseline,
        k_for_baseline_fraction,
        matrix,
        norm_minimizing_baseline,
        norm_reducing_interval,
    )
    from valueshare.nn.append import append_mean_expansion
    from valueshare.nn.expansion import MeanExpansion
    from valueshare.runs.launcher_options import LauncherOptions
    from valueshare.runs.run import open_run
    from valueshare.tabular.mdp import FiniteMDP, gridworld
    from valueshare.tabular.planning import optimal_values
    from valueshare.tabular.sweep import sweep
    from valueshare.training import extend, resume, train

__all__ = [
    "expand",
    "contract",
    "implicit_baseline",
    "baseline_residual",
    "norm_minimizing_baseline",
    "norm_reducing_interval",
    "matrix",
    "condition_number",
    "k_for_baseline_fraction",
    "baseline_fraction",
    "MeanExpansion",
    "append_mean_expansion",
    "FiniteMDP",
    "gridworld",
    "optimal_values",
    "sweep",
    "train",
    "resume",
    "extend",
    "open_run",
    "LauncherOptions",
    "value_metrics",
    "InvalidInput",
]

# Imported on first use: `import valueshare` loads no library, so a command can end by a signal as it starts.
_LATE = {
    **dict.fromkeys(__all__[: __all__.index("MeanExpansion")], "valueshare.expansion"),
    "MeanExpansion": "valueshare.nn.expansion",
    "append_mean_expansion": "valueshare.nn.append",
    "FiniteMDP": "valueshare.tabular.mdp",
    "gridworld": "valueshare.tabular.mdp",
    "optimal_values": "valueshare.tabular.planning",
    "sweep": "valueshare.tabular.sweep",
    "train": "valueshare.training",
    "resume": "valueshare.training",
    "extend": "valueshare.training",
    "open_run": "valueshare.runs.run",
    "LauncherOptions": "valueshare.runs.launcher_options",
}
_TRAINING = ("train", "resume", "extend", "open_run")  # these need the extra `train`


def __getattr__(name: str) -> Any:
    if name == "value_metrics":
        return import_module("valueshare.value_metrics")
    if name not in _LATE:
        raise AttributeError(f"module 'valueshare' has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(_LATE[name]), name)
        return value
    except ModuleNotFoundError as missing:
        if name not in _TRAINING or (missing.name or "valueshare").startswith("valueshare"):
            raise
        from valueshare.extras import install_command

        message = f"valueshare.{name} needs {missing.name}: {install_command('train')}"
        raise ModuleNotFoundError(message, name=missing.name) from missing


def __dir__() -> list[str]:
    return sorted(__all__)
