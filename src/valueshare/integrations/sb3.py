"""Policies for DQN of Stable-Baselines3 with the mean-expansion layer.

>>> from stable_baselines3 import DQN
>>> model = DQN(DQNPolicy, "CartPole-v1", policy_kwargs={"k": "n"})

The layer is in the Q-network and in the target network. k is a number or "n", the number of actions. With k = 0 there
is no layer: the policy is then Stable-Baselines3's own, bit for bit, with the same `state_dict()`.
"""

from typing import Any

from valueshare.expansion import Coefficient
from valueshare.nn.expansion import MeanExpansion

try:
    from stable_baselines3.dqn import policies
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "these policies need Stable-Baselines3: pip install stable-baselines3", name=missing.name
    ) from missing


class DQNPolicy(policies.DQNPolicy):
    """`stable_baselines3.dqn.MlpPolicy` with a mean-expansion layer; `k` is the only new argument."""

    def __init__(self, *args: Any, k: Coefficient = 0.0, **kwargs: Any) -> None:
        self.k = k  # first: the parent's constructor makes the networks
        super().__init__(*args, **kwargs)

    def make_q_net(self) -> policies.QNetwork:
        network = super().make_q_net()
        layer = MeanExpansion(self.k, n=int(network.action_space.n), device=self.device)
        if layer.scale != 1:
            network.q_net.append(layer)
        return network

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "k": self.k}


MlpPolicy = DQNPolicy


class CnnPolicy(DQNPolicy, policies.CnnPolicy):
    """`stable_baselines3.dqn.CnnPolicy`, for images, with a mean-expansion layer."""


class MultiInputPolicy(DQNPolicy, policies.MultiInputPolicy):
    """`stable_baselines3.dqn.MultiInputPolicy`, for dictionaries of observations, with a mean-expansion layer."""
