"""QR-DQN of sb3-contrib with the layer: the mean over actions is taken per quantile.

Legend: B batch, N quantiles, n actions. CartPole-v1 has 2 actions.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import QRDQN
from torch import nn

import valueshare as vs
from valueshare.integrations.sb3_contrib import CnnPolicy, MultiInputPolicy, QRDQNPolicy

QUANTILES = 5


def make(policy: Any = QRDQNPolicy, **policy_kwargs: Any) -> QRDQN:
    return QRDQN(
        policy,
        "CartPole-v1",
        policy_kwargs={"net_arch": [16], "n_quantiles": QUANTILES, **policy_kwargs},
        learning_starts=50,
        target_update_interval=70,
        learning_rate=1e-3,
        buffer_size=1_000,
        seed=3,
        device="cpu",
    )


def assert_closed_form(model: QRDQN, k: float) -> None:
    """Each quantile's values over actions are multiplied by I + (k/n) J, in both networks."""
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    matrix = torch.eye(2) + k / 2 * torch.ones(2, 2)
    for network in (model.quantile_net, model.quantile_net_target):
        w = network.state_dict()
        hidden = torch.relu(x @ w["quantile_net.0.weight"].T + w["quantile_net.0.bias"])
        flat = hidden @ w["quantile_net.2.weight"].T + w["quantile_net.2.bias"]
        z = torch.stack([flat[:, 2 * i : 2 * i + 2] for i in range(QUANTILES)], dim=1)  # [B, N, n]
        torch.testing.assert_close(network(x), z @ matrix)
        assert not torch.allclose(z @ matrix, z)


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    mine, theirs = a.state_dict(), b.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_layer_is_in_both_networks_whatever_happens(tmp_path: Path) -> None:
    model = make(k="n")
    assert_closed_form(model, 2)
    model.learn(200)  # the target network was updated at steps 70 and 140
    assert not same_weights(model.quantile_net, model.quantile_net_target)
    assert_closed_form(model, 2)
    model.save(tmp_path / "model")
    loaded = QRDQN.load(tmp_path / "model")
    assert same_weights(loaded.policy, model.policy)
    assert_closed_form(loaded, 2)
    model.policy.save(str(tmp_path / "policy"))
    assert same_weights(QRDQNPolicy.load(str(tmp_path / "policy")), model.policy)
    model.target_update_interval = 1
    model._on_step()
    assert same_weights(model.quantile_net, model.quantile_net_target)
    assert_closed_form(model, 2)


def test_without_k_it_is_sb3_contrib_bit_for_bit() -> None:
    theirs, zero, two = make("MlpPolicy").learn(300), make(k=0).learn(300), make(k=2).learn(300)
    assert same_weights(zero.policy, theirs.policy)
    name = "quantile_net.quantile_net.0.weight"
    assert not torch.equal(two.policy.state_dict()[name], theirs.policy.state_dict()[name])


def test_images_and_dictionaries() -> None:
    several = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(4)})
    image = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    for kind, observations in ((CnnPolicy, image), (MultiInputPolicy, several)):
        policy = kind(observations, spaces.Discrete(3), lambda _: 1e-3, n_quantiles=QUANTILES, k="n")
        batch, _ = policy.obs_to_tensor(observations.sample())
        assert policy.quantile_net(batch).shape == (1, QUANTILES, 3)
        assert policy.quantile_net_target.quantile_net[-1].scale == 4  # k + 1, with k = n = 3


def test_appending_the_layer_to_a_model_is_refused() -> None:
    model = make("MlpPolicy")
    for owner in (model, model.policy, model.quantile_net):
        with pytest.raises(vs.InvalidInput, match=r"valueshare\.integrations\.sb3_contrib\.QRDQNPolicy and policy_kw"):
            vs.append_mean_expansion(owner, 2)  # type: ignore[arg-type]
