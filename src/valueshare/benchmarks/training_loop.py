"""Training loops to be timed, on a replay that is full."""

import time
from collections.abc import Callable

import torch

from valueshare.envs.episodes import TrainingEpisodes
from valueshare.population.advance import advance
from valueshare.population.engine import Engine
from valueshare.replay.transitions import SPARE, Transitions


class TrainingLoop:
    """Steps of every agent as in a phase; `t` is where the schedule is."""

    def __init__(self, engine: Engine, t: int) -> None:
        self.engine, self.t = engine, t
        self._episodes = TrainingEpisodes(engine.population.size)

    def run(self, steps: int) -> None:
        advance(self.engine, self.t, self.t + steps, episodes=self._episodes)
        self.t += steps

    def steps_per_second(self, seconds: float) -> float:
        """Over about `seconds` in stretches, each long enough that its ends cost nothing."""
        device, every = (
            self.engine.population.device,
            self.engine.population.settings.update_interval,
        )
        rate = every * turns_per_second(lambda: self.run(every), seconds / 10, device)
        stretch = max(1, round(seconds / 2 * rate))
        return stretch * turns_per_second(lambda: self.run(stretch), seconds * 0.9, device)


def turns_per_second(turn: Callable[[], None], seconds: float, device: torch.device) -> float:
    """Turns a second, over about `seconds`."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    count = 0
    while count == 0 or time.perf_counter() - began < seconds:
        turn()
        count += 1
    if cuda:
        torch.cuda.synchronize(device)
    return count / (time.perf_counter() - began)


def fill_with_copies(replay: Transitions) -> None:
    """Repeat what is there to the rings' ends, in place: twice as much at a time.

    Transition i then starts from row i, as if no episode had ended.
    """
    capacity, rows = replay.action.shape[1], replay.observation.shape[1]
    known = min(int(replay.written.min()), capacity)
    for ring in (replay.action, replay.reward, replay.discount):
        _repeat(ring, known)
    _repeat(replay.observation, min(int(replay.rows.min()), rows))
    number = torch.arange(capacity, device=replay.row.device)
    replay.row.copy_(number.expand_as(replay.row))
    if len(replay.back):
        replay.age.copy_(number.clamp(max=len(replay.back) - 1).expand_as(replay.age))
    replay.written.fill_(capacity)
    replay.rows.fill_(capacity + 1)
    replay.oldest.fill_(SPARE)
    replay.since.fill_(max(len(replay.back) - 1, 0))


def _repeat(ring: torch.Tensor, known: int) -> None:
    length = ring.shape[1]
    while known < length:
        more = min(known, length - known)
        ring[:, known : known + more] = ring[:, :more]
        known += more
