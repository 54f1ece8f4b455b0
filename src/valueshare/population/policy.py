"""A trained agent as an object: a function from observations to actions, and an exportable network."""

import logging
import os
import re
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from valueshare.envs.one_hot import one_hot
from valueshare.errors import InvalidInput, first_line
from valueshare.extras import install_command
from valueshare.files import make_parents, reason, remove_empty
from valueshare.learning.algorithms import Algorithm
from valueshare.population.networks import Tensors, init_network, load_weights, network_shape
from valueshare.population.state import Population, torch_dtype

# What PyTorch's ONNX exporter warns of in PyTorch's own code.
LEAF_SPEC = "`isinstance(treespec, LeafSpec)` is deprecated"
FORMATS = {".onnx": "ONNX", ".pt2": "torch.export", ".pt": "TorchScript"}


class ActionValues(nn.Module):
    """A network that returns action-values instead of its own outputs. Shapes: obs [B, ...] -> q [B, A].

    A quantile network is evaluated at the midpoints (i + 1/2) / K, instead of K random quantiles.
    """

    tau: Tensor

    def __init__(self, network: nn.Module, algorithm: Algorithm, quantiles: int) -> None:
        super().__init__()
        self.network, self._algorithm, self._quantiles = network, algorithm, quantiles
        self.register_buffer("tau", (torch.arange(quantiles) + 0.5) / max(quantiles, 1), persistent=False)  # [K]

    def forward(self, obs: Tensor) -> Tensor:
        inputs = (obs, self.tau.expand(obs.shape[0], -1)) if self._quantiles else (obs,)
        q: Tensor = self._algorithm.q_values(self.network(*inputs))
        return q


class Policy:
    """One agent of a run: `policy(observation)` is its greedy action.

    `network` is the plain module with the agent's weights, as the algorithm or the caller's factory makes it.
    Observations are what the network sees: those of the environment, or stacks of frames. Discrete ones are whole
    numbers, as the environment gives them; the network itself, and exported files, see one-hot vectors.
    """

    def __init__(self, population: Population, tensors: Tensors, steps: int) -> None:
        """`population` has this agent alone; `tensors` are the parameters and buffers of its network by name."""
        row = population.agents.row(0, named=True)
        self.number, self.env, self.algorithm, self.k = (row[name] for name in ("agent", "env", "algorithm", "k"))
        self.steps = steps  # steps for which it has learned
        self.population = population
        settings, env = population.settings, population.env
        self.network = init_network(population.factory, network_shape(settings, env), self.k, seed=0)
        self.network.eval().requires_grad_(False)
        weights = {**dict(self.network.named_parameters()), **dict(self.network.named_buffers())}
        load_weights(weights, tensors, f"of agent {self.number}")
        self._values = ActionValues(self.network, population.algorithm, population.quantile_counts.act)

    def __repr__(self) -> str:
        coefficient = f", k={self.k:g}" if self.population.algorithm.uses_k else ""
        return f"Policy(agent {self.number}: {self.algorithm}{coefficient} on {self.env}, {self.steps:,} steps)"

    def __call__(self, observation: Any) -> Any:
        """The greedy action of one observation, an int, or of a batch of them, an array [B]."""
        actions = self.q_values(observation).argmax(-1)
        return actions if actions.ndim else int(actions)

    @torch.no_grad()
    def q_values(self, observation: Any) -> NDArray[np.float32]:
        """Action-values of one observation [A], or of a batch of them [B, A]; in units of the scaled reward."""
        shape = self.population.env.network_shape
        obs = torch.from_numpy(self._numbers(observation))
        if obs.shape[-len(shape) :] != shape or obs.ndim > len(shape) + 1:
            raise InvalidInput(
                f"an observation of shape {list(obs.shape)}: this agent sees {list(shape)}, or a batch of them"
            )
        q: NDArray[np.float32] = self._values(obs if obs.ndim > len(shape) else obs[None]).numpy()
        return q if obs.ndim > len(shape) else q[0]

    def _numbers(self, observation: Any) -> NDArray[Any]:
        """An observation, or a batch of them, as the network gets it; what cannot be one is refused."""
        env = self.population.env
        if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
            raise InvalidInput("not an observation, but (observation, info), as env.reset() returns it: give the first")
        first = env.first_state
        try:
            given = _as_array(observation)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            wanted = f"give an array of shape {list(env.network_shape)}"
            if first is not None:
                wanted = f"its states are the whole numbers {first} to {first + env.observation_shape[0] - 1}"
            raise InvalidInput(f"not an observation ({first_line(error)}): {wanted}") from error
        if first is None:
            return _cast(given, np.dtype(env.observation_dtype))
        if given.ndim > 1:
            raise InvalidInput(
                f"an observation of shape {list(given.shape)}: this agent sees a whole number, or a batch of them"
            )
        return one_hot(env, given)

    def export(self, path: str | Path) -> Path:
        """Write the network from observations [B, ...] to action-values [B, A], to be loaded without valueshare.

        NAME.onnx is ONNX, NAME.pt2 is loaded by `torch.export.load`, NAME.pt by `torch.jit.load`. A folder that is not
        there is made. Returns the path of the file.
        """
        if not isinstance(path, str | PathLike):
            raise InvalidInput(f"path is given as {type(path).__name__}: write the name of a file, like agent.onnx")
        path = Path(path)
        if path.suffix not in FORMATS:
            known = ", ".join(f"{suffix} ({name})" for suffix, name in FORMATS.items())
            raise InvalidInput(f"{path.name!r} has no known suffix: end it with {known}")
        if path.is_dir():
            raise InvalidInput(f"{path} is a folder: write the name of a file")
        try:
            new_parents = make_parents(path)
        except OSError as error:
            raise InvalidInput(f"cannot write to {path.parent}: {reason(error)}") from error
        try:
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                raise InvalidInput(f"{path} cannot be written: permission denied")
            self._write_network(path)
        except BaseException:
            remove_empty(new_parents)
            raise
        return path

    def _write_network(self, path: Path) -> None:
        env = self.population.env
        example = torch.zeros((2, *env.network_shape), dtype=torch_dtype(env.observation_dtype))
        if path.suffix == ".pt":
            torch.jit.trace(self._values, example).save(str(path))  # type: ignore[no-untyped-call]
            return
        program = torch.export.export(self._values, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        if path.suffix == ".pt2":
            torch.export.save(program, path)
            return
        registry = logging.getLogger("torch.onnx._internal.exporter._registration")
        registry.addFilter(_is_not_on_torchvision)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", re.escape(LEAF_SPEC), FutureWarning)
                torch.onnx.export(
                    program, f=path, input_names=["observation"], output_names=["q"], external_data=False, verbose=False
                )
        except ModuleNotFoundError as missing:
            raise InvalidInput(
                f"ONNX files need more packages ({first_line(missing)}): {install_command('onnx')}"
            ) from missing
        finally:
            registry.removeFilter(_is_not_on_torchvision)


def _is_not_on_torchvision(record: logging.LogRecord) -> bool:
    """PyTorch warns at every export of operations that no network here has."""
    return not str(record.msg).startswith("torchvision is not installed. Skipping")


def _as_array(observation: Any) -> NDArray[Any]:
    """An observation as an array of real numbers; anything else raises."""
    if isinstance(observation, Tensor):
        is_bfloat16 = observation.dtype == torch.bfloat16  # NumPy has no such type
        observation = (observation.float() if is_bfloat16 else observation).numpy(force=True)
    given = np.asarray(observation)
    if given.dtype.kind == "V" and "float" in given.dtype.name:  # bfloat16 of JAX
        given = given.astype(np.float32)
    if given.dtype.kind not in "biuf":
        raise TypeError("None" if observation is None else f"values of type {given.dtype}")
    return given


def _cast(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same numbers as another type. Floats are rounded to it; whole numbers and truth values are not."""
    with np.errstate(all="ignore"):
        numbers = given.astype(dtype, order="C")
    if dtype.kind == "f":
        if not np.isfinite(numbers).all():
            raise InvalidInput("the observation is not finite")
    elif not (numbers == given).all():
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        raise InvalidInput(f"observations are whole numbers {low} to {high}: do not scale them")
    return numbers
