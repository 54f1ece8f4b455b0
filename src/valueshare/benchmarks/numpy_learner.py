"""IBQ on the paper's 5 x 5 gridworld in NumPy, one step at a time: the baseline for speed.

It shares no code with the compiled learners, so it is also an independent check of their results.
"""

import numpy as np

START, GOAL = (4, 0), (0, 4)  # the bottom-left and the top-right cell
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right


def completed_episodes(k: float, step_size: float, seed: int, steps: int, step_reward: float) -> int:
    """Run IBQ(k) with epsilon 0.1 and discount 0.95, and count the episodes it completes."""
    rng = np.random.default_rng(seed)
    z = np.zeros((5, 5, 4))
    state, episodes = START, 0
    for _ in range(steps):
        q = z[state] + k * z[state].mean()
        if rng.random() < 0.1:
            action = int(rng.integers(4))
        else:
            action = int(rng.choice(np.flatnonzero(q == q.max())))
        direction = action
        if rng.random() < 0.25:  # the agent slips into one of the other directions
            direction = [other for other in range(4) if other != action][rng.integers(3)]
        down, right = MOVES[direction]
        following = min(max(state[0] + down, 0), 4), min(max(state[1] + right, 0), 4)
        if following == GOAL:
            target = 5.0
        else:
            target = step_reward + 0.95 * (z[following] + k * z[following].mean()).max()
        error = target - q[action]
        z[state] += step_size * error * k / 4
        z[state][action] += step_size * error
        episodes += following == GOAL
        state = START if following == GOAL else following
    return episodes
