"""DQN of Stable-Baselines3 with the layer: against the closed form, a network by hand, and Stable-Baselines3's own.

Legend: B batch, n actions. CartPole-v1 has 2 actions.
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from torch import Tensor, nn

import valueshare as vs
from valueshare.integrations.sb3 import CnnPolicy, DQNPolicy, MultiInputPolicy

SMALL: dict[str, Any] = {
    "learning_starts": 50,
    "target_update_interval": 70,
    "learning_rate": 1e-3,
    "buffer_size": 1_000,
    "seed": 3,
    "device": "cpu",
}


def make(policy: Any = DQNPolicy, k: Any = None, **changed: Any) -> DQN:
    kwargs = {"net_arch": [16, 16]} | ({} if k is None else {"k": k})
    return DQN(policy, "CartPole-v1", policy_kwargs=kwargs, **SMALL | changed)


def plain(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network without the layer, from its weights: 4 -> 16 -> 16 -> 2."""
    for number in (0, 2, 4):
        x = x @ weights[f"q_net.{number}.weight"].T + weights[f"q_net.{number}.bias"]
        x = torch.relu(x) if number < 4 else x
    return x


def assert_closed_form(model: DQN, k: float) -> None:
    """q = (I + (k/n) J) z in the online and in the target network."""
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    matrix = torch.eye(2) + k / 2 * torch.ones(2, 2)
    for network in (model.q_net, model.q_net_target):
        z = plain(network.state_dict(), x)
        assert not torch.allclose(z @ matrix, z)
        torch.testing.assert_close(network(x), z @ matrix)


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    mine, theirs = a.state_dict(), b.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(("k", "number"), [(3, 3), ("n", 2), (0.5, 0.5)])
def test_the_layer_is_in_both_networks_whatever_happens(k: Any, number: float, tmp_path: Path) -> None:
    model = make(k=k)
    assert_closed_form(model, number)
    model.learn(200)  # the target network was updated at steps 70 and 140
    assert not same_weights(model.q_net, model.q_net_target)
    assert_closed_form(model, number)

    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"))
    assert same_weights(loaded.policy, model.policy)
    assert_closed_form(loaded, number)
    loaded.learn(100, reset_num_timesteps=False)
    assert_closed_form(loaded, number)

    model.policy.save(str(tmp_path / "policy"))
    policy = DQNPolicy.load(str(tmp_path / "policy"))
    assert policy.k == k
    assert same_weights(policy, model.policy)

    model.target_update_interval = 1
    model._on_step()
    assert same_weights(model.q_net, model.q_net_target)
    assert_closed_form(model, number)


def test_a_gradient_step_is_that_of_a_network_by_hand() -> None:
    k, model = 3.0, make(k=3.0, learning_starts=1_000)
    model.learn(120)  # fills the replay buffer, and learns nothing
    with torch.no_grad():  # else the target network equals the online one
        model.q_net_target.get_parameter("q_net.4.bias").add_(torch.tensor([0.2, -0.1]))
    weights = {name: w.detach().clone().requires_grad_() for name, w in model.q_net.named_parameters()}
    target = model.q_net_target.state_dict()

    assert model.replay_buffer is not None
    np.random.seed(0)  # noqa: NPY002 (the replay buffer draws from it)
    batch = model.replay_buffer.sample(32)
    z = plain(target, batch.next_observations)
    next_value = (z + k * z.mean(1, keepdim=True)).max(1, keepdim=True).values
    wanted = batch.rewards + (1 - batch.dones) * 0.99 * next_value
    z = plain(weights, batch.observations)
    q = (z + k * z.mean(1, keepdim=True)).gather(1, batch.actions)
    optimizer = torch.optim.Adam(weights.values(), lr=1e-3)
    torch.autograd.backward(nn.functional.smooth_l1_loss(q, wanted))
    nn.utils.clip_grad_norm_(weights.values(), model.max_grad_norm)
    optimizer.step()

    np.random.seed(0)  # noqa: NPY002 (the replay buffer draws from it)
    model.train(gradient_steps=1, batch_size=32)
    for name, weight in model.q_net.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, weights[name].grad)
        torch.testing.assert_close(weight, weights[name])


def test_without_k_it_is_stable_baselines3_bit_for_bit() -> None:
    theirs, zero, two = make("MlpPolicy").learn(250), make(k=0).learn(250), make(k=2).learn(250)
    assert same_weights(zero.policy, theirs.policy)
    assert _returns(zero) == _returns(theirs)
    assert len(_returns(zero)) > 3
    assert _returns(two) != _returns(theirs)
    assert same_weights(make().learn(250).policy, theirs.policy)  # k is 0 if it is left out


def _returns(model: DQN) -> list[float]:
    assert model.ep_info_buffer is not None
    return [episode["r"] for episode in model.ep_info_buffer]


def last_layers(policy: DQNPolicy, observation: Any) -> tuple[Tensor, Tensor]:
    """The outputs of the last linear layer, and those of the network."""
    seen: list[Tensor] = []
    linear = [m for m in policy.q_net.q_net if isinstance(m, nn.Linear)][-1]
    with torch.no_grad():
        handle = linear.register_forward_hook(lambda _module, _inputs, z: seen.append(z))
        q = policy.q_net(observation)
        handle.remove()
    return seen[0], q


def test_images_and_dictionaries() -> None:
    actions: spaces.Discrete[Any] = spaces.Discrete(3)
    image = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    cnn = CnnPolicy(image, actions, lambda _: 1e-3, k="n")
    several = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(4)})
    multi = MultiInputPolicy(several, actions, lambda _: 1e-3, k="n")
    frames = torch.randint(256, (5, 1, 36, 36), dtype=torch.uint8)
    both = {"a": torch.randn(5, 2), "b": torch.randint(4, (5,))}
    for policy, observation in ((cnn, frames), (multi, both)):
        assert policy.q_net_target.q_net[-1].scale == 4  # k + 1, with k = n = 3
        z, q = last_layers(policy, observation)
        torch.testing.assert_close(q, z @ (torch.eye(3) + 3 / 3 * torch.ones(3, 3)))
    assert "NatureCNN" in repr(cnn)
    assert "CombinedExtractor" in repr(multi)


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (-1, r"^`k = -1`: the mean-scaling coefficient is a finite number >= 0"),
        ("m", r"^`k = 'm'`: write a number, like 4\.0, or 'n'$"),
        (None, r"^k is given as NoneType: write a number, like 4\.0, or 'n'$"),
    ],
)
def test_another_k_is_refused(k: Any, message: str) -> None:
    with pytest.raises(vs.InvalidInput, match=message):
        DQN(DQNPolicy, "CartPole-v1", policy_kwargs={"k": k}, **SMALL)


def test_appending_the_layer_to_a_model_is_refused() -> None:
    """Its target network would have no layer, and nothing would say so."""
    model = make("MlpPolicy")
    ppo = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    for owner in (model, model.policy, model.q_net, model.q_net_target, nn.Sequential(model.q_net), ppo, ppo.policy):
        with pytest.raises(vs.InvalidInput) as refused:
            vs.append_mean_expansion(owner, 2)  # type: ignore[arg-type]
        assert "target network would stay without the layer" in str(refused.value)
        assert "valueshare.integrations.sb3.DQNPolicy and policy_kwargs={'k': ...}" in str(refused.value)
        assert "\n" not in str(refused.value)
    assert not any(isinstance(m, vs.MeanExpansion) for m in model.policy.modules())
