"""Cursors of replay at the last few steps.

Asynchronous environments add transitions while the batch of an earlier step is still to be sampled. It is sampled
from the transitions that were there at its own step, so the cursors of every step are kept for a while.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.replay.transitions import SAMPLING_LAG, Transitions


class CursorHistory(NamedTuple):
    """Cursors by step, modulo `SAMPLING_LAG`; replay keeps the transitions themselves for as long."""

    oldest: Tensor  # [P, SAMPLING_LAG]
    written: Tensor  # [P, SAMPLING_LAG]
    step: Tensor  # [P]  the last recorded one


def empty_history(agents: int, device: torch.device) -> CursorHistory:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=device)

    return CursorHistory(zeros(agents, SAMPLING_LAG), zeros(agents, SAMPLING_LAG), zeros(agents))


def slice_agents(history: CursorHistory, agents: slice) -> CursorHistory:
    """Views for some agents."""
    return CursorHistory(*(values[agents] for values in history))


def start_history(history: CursorHistory, replay: Transitions, step: int) -> None:
    """Record the present cursors for `step`."""
    history.step.fill_(step)
    _record(history, replay)


def record_step(history: CursorHistory, replay: Transitions) -> None:
    """Record the present cursors for the next step, after a transition was added."""
    history.step.add_(1)
    _record(history, replay)


def replay_at(history: CursorHistory, replay: Transitions, step: Tensor) -> Transitions:
    """Replay as it was at step `step` [], at most a few steps ago."""
    column = (step % SAMPLING_LAG).reshape(1)
    return replay._replace(
        oldest=history.oldest.index_select(1, column).squeeze(1),
        written=history.written.index_select(1, column).squeeze(1),
    )


def _record(history: CursorHistory, replay: Transitions) -> None:
    index = torch.arange(len(history.step), device=history.step.device), history.step % SAMPLING_LAG
    history.oldest[index] = replay.oldest
    history.written[index] = replay.written
