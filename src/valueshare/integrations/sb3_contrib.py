"""Policies for QR-DQN of sb3-contrib with the mean-expansion layer.

>>> from sb3_contrib import QRDQN
>>> model = QRDQN(QRDQNPolicy, "CartPole-v1", policy_kwargs={"k": "n"})

The mean over actions is taken per quantile, in the quantile network and in the target network. k is a number or "n",
the number of actions. With k = 0 there is no layer: the policy is then that of sb3-contrib, bit for bit.
"""

from typing import Any

from torch import nn

from valueshare.expansion import Coefficient
from valueshare.nn.expansion import MeanExpansion

try:
    from sb3_contrib.qrdqn import policies
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "these policies need sb3-contrib: pip install sb3-contrib", name=missing.name
    ) from missing


class QRDQNPolicy(policies.QRDQNPolicy):
    """`sb3_contrib.qrdqn.MlpPolicy` with a mean-expansion layer; `k` is the only new argument."""

    def __init__(self, *args: Any, k: Coefficient = 0.0, **kwargs: Any) -> None:
        self.k = k  # first: the parent's constructor makes the networks
        super().__init__(*args, **kwargs)

    def make_quantile_net(self) -> policies.QuantileNetwork:
        network = super().make_quantile_net()
        actions = int(network.action_space.n)
        layer = MeanExpansion(self.k, n=actions, device=self.device)
        if layer.scale != 1:
            network.quantile_net.extend([nn.Unflatten(-1, (self.n_quantiles, actions)), layer])  # [B, N, A]
        return network

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "k": self.k}


MlpPolicy = QRDQNPolicy


class CnnPolicy(QRDQNPolicy, policies.CnnPolicy):
    """`sb3_contrib.qrdqn.CnnPolicy`, for images, with a mean-expansion layer."""


class MultiInputPolicy(QRDQNPolicy, policies.MultiInputPolicy):
    """`sb3_contrib.qrdqn.MultiInputPolicy`, for dictionaries of observations, with a mean-expansion layer."""
