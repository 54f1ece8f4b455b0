"""The loop that the examples in JAX share: act, step, store, learn, update the target."""

import gymnasium
import numpy as np
from cartpole import ENV, OBSERVATION, epsilon, evaluate

CAPACITY, BATCH = 20_000, 64


def run(apply, update, params, state, args):
    """Train from `params`; `apply(params, observation)` are action-values, `update` is one gradient step."""
    rng = np.random.default_rng(args.seed)
    env = gymnasium.make(ENV)
    buffer = {
        "obs": np.zeros((CAPACITY, OBSERVATION), np.float32),
        "next_obs": np.zeros((CAPACITY, OBSERVATION), np.float32),
        "action": np.zeros(CAPACITY, np.int32),
        "reward": np.zeros(CAPACITY, np.float32),
        "discount": np.zeros(CAPACITY, np.float32),
    }
    target = params
    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        explores = rng.random() < epsilon(step, args.steps)
        action = int(rng.integers(env.action_space.n) if explores else apply(params, obs).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        values = {"obs": obs, "next_obs": next_obs, "action": action, "reward": reward}
        values["discount"] = 0.0 if terminated else 0.99
        for name, value in values.items():
            buffer[name][(step - 1) % CAPACITY] = value
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step > args.learning_starts and step % 2 == 0:
            rows = rng.integers(min(step, CAPACITY), size=BATCH)
            params, state = update(params, target, state, {name: column[rows] for name, column in buffer.items()})
        if step % 250 == 0:
            target = params
        if step % args.eval_interval == 0:
            evaluate(lambda observation, weights=params: apply(weights, observation).argmax(), args, step)
    return params
