"""`import valueshare` is light; what is heavy comes with its first use."""

import json
import subprocess
import sys

import pytest

import valueshare

HEAVY = ("torch", "jax", "matplotlib", "numba", "polars", "gymnasium", "scipy", "cyclopts", "rich")
PEERS = ("stable_baselines3", "sb3_contrib", "torchrl", "tianshou", "pfrl", "flax", "equinox")


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    script = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = modules_after("import valueshare; valueshare.expand([3.0, 1.0], 2)")
    assert "valueshare.expansion" in loaded
    assert not loaded & set(HEAVY)


def test_the_command_line_handles_signals_before_it_imports_any_library() -> None:
    assert "numpy" not in modules_after("import valueshare.__main__")


def test_the_command_line_imports_nothing_heavy_before_it_knows_what_to_do() -> None:
    loaded = modules_after("import valueshare.cli")
    assert not loaded & {"torch", "jax", "matplotlib", "numba", "polars", "gymnasium"}


def test_the_layer_and_training_import_no_other_training_library() -> None:
    loaded = modules_after("import valueshare.nn.expansion, valueshare.training, valueshare.integrations")
    assert "torch" in loaded
    assert not loaded & set(PEERS)


@pytest.mark.parametrize(
    ("name", "brings", "spares"),
    [
        ("MeanExpansion", "torch", "numba"),
        ("sweep", "numba", "torch"),
        ("gridworld", "numpy", "numba"),
    ],
)
def test_late_names_bring_what_they_need_alone(name: str, brings: str, spares: str) -> None:
    loaded = modules_after(f"from valueshare import {name}")
    assert brings in loaded
    assert spares not in loaded


def test_every_public_name_is_there() -> None:
    assert len(set(valueshare.__all__)) == len(valueshare.__all__)
    for name in valueshare.__all__:
        assert getattr(valueshare, name) is not None
        assert name in dir(valueshare)
    assert dir(valueshare) == sorted(valueshare.__all__)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'valueshare' has no attribute 'nothing'"):
        valueshare.nothing  # noqa: B018
