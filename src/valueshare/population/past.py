"""Where the cursors of replay were a few steps ago.

Groups whose environments go by themselves store steps while a minibatch is still to be sampled. It
is sampled as of its own step: which transitions there were then is written down at every step.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from valueshare.replay.transitions import SPARE, Transitions


class Past(NamedTuple):
    """Cursors by step, modulo `SPARE`; the transitions themselves are kept for as long."""

    oldest: Tensor  # [P, SPARE]
    written: Tensor  # [P, SPARE]
    step: Tensor  # [P]  the last one that was noted


def no_past(agents: int, device: torch.device) -> Past:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=device)

    return Past(zeros(agents, SPARE), zeros(agents, SPARE), zeros(agents))


def of_agents(past: Past, agents: slice) -> Past:
    """The same, of some agents alone: what is written there is written here."""
    return Past(*(values[agents] for values in past))


def begin_at(past: Past, replay: Transitions, step: int) -> None:
    """What an update of this step may sample is what is there now."""
    past.step.fill_(step)
    _note(past, replay)


def note_step(past: Past, replay: Transitions) -> None:
    """What an update of the next step may sample is what is there now: a step was stored."""
    past.step.add_(1)
    _note(past, replay)


def as_of(past: Past, replay: Transitions, step: Tensor) -> Transitions:
    """What was noted of step `step` [], which is at most a few steps ago."""
    place = (step % SPARE).reshape(1)
    return replay._replace(
        oldest=past.oldest.index_select(1, place).squeeze(1),
        written=past.written.index_select(1, place).squeeze(1),
    )


def _note(past: Past, replay: Transitions) -> None:
    place = torch.arange(len(past.step), device=past.step.device), past.step % SPARE
    past.oldest[place] = replay.oldest
    past.written[place] = replay.written
