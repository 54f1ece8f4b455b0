"""IBQ on the gridworld in plain NumPy, one step at a time: the baseline for speed.

It shares no code with the compiled learners, so it is also an independent check of their results.
"""

import numpy as np

UP, DOWN, LEFT, RIGHT = range(4)


class Gridworld:
    """The paper's 5 x 5 gridworld: from the bottom-left corner to the top-right one."""

    def __init__(self, step_reward: float, rng: np.random.Generator) -> None:
        self.step_reward = step_reward
        self.rng = rng
        self.position = (4, 0)

    def reset(self) -> int:
        self.position = (4, 0)
        return self.state()

    def state(self) -> int:
        row, column = self.position
        return row * 5 + column

    def step(self, action: int) -> tuple[int, float, bool]:
        if self.rng.random() < 0.25:
            others = [other for other in range(4) if other != action]
            action = others[self.rng.integers(3)]
        row, column = self.position
        if action == UP:
            row = max(row - 1, 0)
        elif action == DOWN:
            row = min(row + 1, 4)
        elif action == LEFT:
            column = max(column - 1, 0)
        else:
            column = min(column + 1, 4)
        self.position = (row, column)
        done = self.position == (0, 4)
        return self.state(), 5.0 if done else self.step_reward, done


def completed_episodes(k: float, step_size: float, seed: int, steps: int, step_reward: float) -> int:
    """Run IBQ(k) with epsilon 0.1 and discount 0.95, and count the episodes it completes."""
    rng = np.random.default_rng(seed)
    environment = Gridworld(step_reward, rng)
    z = np.zeros((25, 4))
    state = environment.reset()
    episodes = 0
    for _ in range(steps):
        q = z[state] + k * z[state].mean()
        if rng.random() < 0.1:
            action = int(rng.integers(4))
        else:
            action = int(rng.choice(np.flatnonzero(q == q.max())))
        following, reward, done = environment.step(action)
        target = reward
        if not done:
            target += 0.95 * (z[following] + k * z[following].mean()).max()
        error = target - q[action]
        z[state] += step_size * error * k / 4
        z[state, action] += step_size * error
        if done:
            episodes += 1
            state = environment.reset()
        else:
            state = following
    return episodes
