"""Returns of training episodes, summed step by step."""

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import StepResult


class TrainingEpisodes:
    """Returns of training episodes, of the finished ones only."""

    def __init__(self, agents: int) -> None:
        self.running: NDArray[np.float64] = np.zeros(agents)
        self.returns_done: NDArray[np.float64] = np.zeros(agents)
        self.finished: NDArray[np.int64] = np.zeros(agents, np.int64)

    def step(self, agents: slice, result: StepResult) -> None:
        """Add a step of these agents; threads may add the steps of different agents at the same time."""
        ended = result.terminated | result.truncated
        running = self.running[agents]
        running += result.reward
        if np.count_nonzero(ended):
            self.returns_done[agents][ended] += running[ended]
            running[ended] = 0.0
            self.finished[agents] += ended
