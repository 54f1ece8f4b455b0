"""DQN in JAX with the mean-expansion transform in a Flax (linen) module, on CartPole-v1."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from cartpole import ACTIONS, OBSERVATION, options
from jax_dqn import run

import valueshare


class QNetwork(nn.Module):
    n: int
    k: float

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(64)(x))
        x = nn.relu(nn.Dense(64)(x))
        return valueshare.expand(nn.Dense(self.n)(x), self.k)  # the line


def train(args):
    network = QNetwork(ACTIONS, ACTIONS if args.k == "n" else args.k)
    optimizer = optax.adam(1e-3)
    params = network.init(jax.random.key(args.seed), jnp.zeros(OBSERVATION))

    @jax.jit
    def update(params, target, state, batch):
        def loss(params):
            q = network.apply(params, batch["obs"])[jnp.arange(len(batch["action"])), batch["action"]]
            next_value = network.apply(target, batch["next_obs"]).max(-1)
            return optax.huber_loss(q, batch["reward"] + batch["discount"] * next_value).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    return network, run(jax.jit(network.apply), update, params, optimizer.init(params), args)


if __name__ == "__main__":
    train(options(__doc__))
