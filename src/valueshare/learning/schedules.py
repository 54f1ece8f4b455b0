"""Schedules: quantities that change with the timestep."""

import torch
from torch import Tensor


def linear(start: Tensor, end: Tensor, steps: Tensor, t: Tensor | int) -> Tensor:
    """Linear interpolation from `start` at t = 0 to `end` at t = steps; constant after that.

    Exactly `start` and `end` at the two ends. Shapes: start, end, steps [P], t [] or [P] -> [P].
    """
    fraction = (t / steps.clamp(min=1)).clamp(0, 1)  # 0 steps: `start` at t = 0, then `end`
    return torch.lerp(start, end, fraction.to(start.dtype))
