"""Networks that take the weights of all agents at once, without `vmap`.

`torch.func.vmap` makes a population of any module. For small networks of vector observations its bookkeeping takes
longer than the products, on a CPU at least, and it knows nothing of `operators`. The layers of this package accept
weights that are stacked over agents, so a network made of them alone is called once for the whole population.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from valueshare.nn import operators

_Slot = tuple[dict[str, Tensor | None], str, str]  # a module's dictionary, the key in it, full name


_STACKABLE: set[type[nn.Module]] = {nn.Sequential, nn.ReLU}
Layer = TypeVar("Layer", bound=nn.Module)


def stackable(layer: type[Layer]) -> type[Layer]:
    """Class decorator: weights and buffers of this layer may be stacked over agents."""
    _STACKABLE.add(layer)
    return layer


@stackable
class Linear(nn.Linear):
    """`torch.nn.Linear` whose weights may be stacked over agents.

    Shapes: [..., in] -> [..., out]; with weight [P, out, in]: [P, ..., in] -> [P, ..., out].
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.ndim == 2:
            return super().forward(x)
        rows = x.flatten(1, -2)
        if x.is_cuda:
            rows = operators.affine(rows, self.weight, self.bias)
        else:
            rows = torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight.mT)
        return rows if x.ndim == 3 else rows.reshape(*x.shape[:-1], -1)  # no view, on which `relu_` would cost a copy


def per_agent(values: Tensor, like: Tensor) -> Tensor:
    """One number per agent, shaped to broadcast over `like`; one that is not stacked is returned unchanged.

    Shapes: [] -> []; [P] -> [P, 1, ...], with as many axes as `like`.
    """
    return values.reshape([-1] + [1] * (like.ndim - 1)) if values.ndim > 0 else values  # as TorchScript reads it


class StackedNetwork:
    """A module of which every layer takes stacked weights. Shapes: [P, B, ...] -> [P, B, ...]."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._slots: list[_Slot] = [
            (tensors, key, f"{path}.{key}" if path else key)
            for path, layer in module.named_modules()
            for tensors in (layer._parameters, layer._buffers)
            for key in tensors
        ]

    def __call__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        with self._swap_tensors({**parameters, **buffers}):
            outputs: Tensor = self._module(*inputs)
        return outputs

    @contextmanager
    def _swap_tensors(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """Like `torch.func.functional_call`, for modules whose layers are known."""
        before = [owner[key] for owner, key, _ in self._slots]
        try:
            for owner, key, name in self._slots:
                owner[key] = tensors[name]
            yield
        finally:
            for (owner, key, _), tensor in zip(self._slots, before, strict=True):
                owner[key] = tensor


def stacked_network(module: nn.Module) -> StackedNetwork | None:
    """The module for stacked weights; None where a layer of it is not `stackable`, or is shared."""
    layers = [layer for _, layer in module.named_modules(remove_duplicate=False)]
    if len(layers) > len(set(layers)) or not all(type(layer) in _STACKABLE for layer in layers):
        return None
    return StackedNetwork(module)
