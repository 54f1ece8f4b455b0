"""DQN in JAX with the mean-expansion transform in an Equinox module, on CartPole-v1."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from cartpole import ACTIONS, OBSERVATION, options
from jax_dqn import run

import valueshare


class QNetwork(eqx.Module):
    mlp: eqx.nn.MLP
    k: float = eqx.field(static=True)

    def __init__(self, n, k, key):
        self.mlp = eqx.nn.MLP(OBSERVATION, n, width_size=64, depth=2, key=key)
        self.k = k

    def __call__(self, x):
        return valueshare.expand(self.mlp(x), self.k)  # the line


def train(args):
    network = QNetwork(ACTIONS, ACTIONS if args.k == "n" else args.k, jax.random.key(args.seed))
    optimizer = optax.adam(1e-3)

    @eqx.filter_jit
    def update(network, target, state, batch):
        def loss(network):
            q = jax.vmap(network)(batch["obs"])[jnp.arange(len(batch["action"])), batch["action"]]
            next_value = jax.vmap(target)(batch["next_obs"]).max(-1)
            return optax.huber_loss(q, batch["reward"] + batch["discount"] * next_value).mean()

        updates, state = optimizer.update(eqx.filter_grad(loss)(network), state)
        return eqx.apply_updates(network, updates), state

    apply = eqx.filter_jit(lambda network, x: network(x))
    return run(apply, update, network, optimizer.init(eqx.filter(network, eqx.is_array)), args)


if __name__ == "__main__":
    train(options(__doc__))
