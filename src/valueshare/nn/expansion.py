"""The mean-expansion layer for PyTorch."""

import numpy as np
import torch
from torch import nn

from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient, condition_number, resolve_k
from valueshare.nn.stacking import per_agent, stackable
from valueshare.setting import as_count


@stackable
class MeanExpansion(nn.Module):
    """Turn a network's outputs z into action-values q = M_k z by scaling their mean by k+1.

    Has no parameters. `scale` = k+1 is a buffer: it travels with `.to()` and `state_dict()`, and
    stacking the state of many agents gives each its own k. `k="n"` is the number of actions, given as `n`; where `n` is
    given, inputs of another size are refused (not in TorchScript).
    Can be compiled with `torch.compile`, `torch.export`, `torch.jit.script`, `torch.jit.trace` and `torch.fx`.
    Shapes: z [..., n] -> q [..., n].
    """

    scale: torch.Tensor

    def __init__(
        self,
        k: Coefficient,
        *,
        n: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        n = None if n is None else as_count("n", n)
        # A number, not a tensor: its range is checked, and nothing is rounded before `dtype`.
        scale = condition_number(_number(resolve_k(k, n)))
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if dtype.is_floating_point and scale > torch.finfo(dtype).max:
            raise InvalidInput(f"`k = {k}`: k + 1 is larger than any number of {dtype}; write a smaller one")
        self.register_buffer("scale", torch.tensor(scale, device=device, dtype=dtype))
        self.n = n or 0  # 0: any

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            self._check_input(z)
        # `expansion.scale_mean`, in what TorchScript knows.
        mean = z.mean(dim=-1, keepdim=True)
        return per_agent(self.scale, z).to(z.dtype) * mean + (z - mean)

    @torch.jit.unused
    def _check_input(self, z: torch.Tensor) -> None:
        if isinstance(z, torch.fx.Proxy) or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return  # a traced shape is not a number, and comparing it would warn
        if not isinstance(z, torch.Tensor) or not z.is_floating_point():
            kind = f"a tensor of {z.dtype}" if isinstance(z, torch.Tensor) else type(z).__name__
            raise InvalidInput(f"the input of the layer is {kind}: give a tensor of floats")
        if self.n and z.shape[-1:] != (self.n,):
            raise InvalidInput(
                f"the layer is made for n = {self.n} actions, and its input has shape {list(z.shape)}: give the size "
                "of its last axis as n"
            )

    def extra_repr(self) -> str:
        if torch.compiler.is_compiling():  # `torch.func.vmap` asks for it, and cannot read the buffer
            return ""
        if self.scale.is_meta or self.scale.ndim:  # a template, or the stacked state of many agents
            return "k=one per agent"
        return f"k={self.scale.item() - 1:g}"


def _number(k: float) -> float:
    """k as a float; NumPy scalars and tensors of one element count as numbers, strings and bools do not."""
    try:
        if not isinstance(k, str | bytes | bool | np.bool_):
            return float(k)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several
        pass
    if isinstance(k, str):
        raise InvalidInput(f"`k = {k!r}`: write a number, like 4.0, or 'n'")
    raise InvalidInput(f"k is given as {type(k).__name__}: write a number, like 4.0, or 'n'")
