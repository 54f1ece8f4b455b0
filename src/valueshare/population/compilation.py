"""Compilation of the steps of a population with `torch.compile`."""

from collections.abc import Callable
from typing import Any

import torch

from valueshare.errors import InvalidInput, first_line

_TUNING = ("triton.autotune_pointwise", "max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning")


def compiled_if(compiled: bool, function: Callable[[], None], *, tuned: bool = True) -> Callable[[], None]:
    """A step compiled as one graph, or as it is.

    Tuning tries several forms of a kernel, on copies of the tensors that it writes to.
    """
    if not compiled:
        return function
    options: dict[str, Any] = {} if tuned else dict.fromkeys(_TUNING, False)
    step: Callable[[], None] = torch.compile(function, fullgraph=True, dynamic=False, options=options)
    return step


def check_compiler(device: torch.device) -> None:
    """Refuse where nothing can be compiled: compiles one sum, which takes seconds."""
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor import config

    total = torch.zeros(8, device=device)

    def add() -> None:
        total.add_(1)

    try:
        with config.patch(compile_threads=1):
            compiled_if(True, add)()
    except TorchDynamoException as error:
        reason = first_line(error)
        if " " in torch.__file__:
            reason += "; PyTorch is in a path with a space, which its compiler may not support"
        raise InvalidInput(f"nothing can be compiled here ({reason}): leave compile out") from error
