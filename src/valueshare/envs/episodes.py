"""Returns of training episodes, summed step by step."""

import numpy as np
from numpy.typing import NDArray

from valueshare.envs.base import StepResult


class TrainingEpisodes:
    """Returns of training episodes, of the finished ones only."""

    def __init__(self, agents: int) -> None:
        self.episode_return: NDArray[np.float64] = np.zeros(agents)
        self.return_sum: NDArray[np.float64] = np.zeros(agents)
        self.episode_count: NDArray[np.int64] = np.zeros(agents, np.int64)

    def step(self, agents: slice, result: StepResult) -> None:
        """Add a step of these agents; threads may add the steps of different agents at the same time."""
        ended = result.terminated | result.truncated
        episode_return = self.episode_return[agents]
        episode_return += result.reward
        if np.count_nonzero(ended):
            self.return_sum[agents][ended] += episode_return[ended]
            episode_return[ended] = 0.0
            self.episode_count[agents] += ended
