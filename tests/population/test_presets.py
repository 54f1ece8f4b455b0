"""Presets by environment."""

from valueshare.population.presets import (
    PRESETS,
    acrobot,
    generic,
    lunarlander,
    lunarlander_paper,
    mountaincar,
    preset_for,
)


def test_a_preset_goes_by_its_environment() -> None:
    for env, preset in PRESETS.items():
        assert preset_for(env) == preset()
    assert preset_for("LunarLander-v3") == lunarlander() != lunarlander_paper()
    assert preset_for("Blackjack-v1") == generic()


def test_the_papers_presets_have_its_initial_weights_and_those_for_everyday_use_pytorch_s() -> None:
    for preset in (lunarlander_paper(), preset_for("ALE/Pong-v5")):
        assert preset.settings.initialization == "paper"
    for preset in (generic(), acrobot(), mountaincar(), lunarlander()):
        assert preset.settings.initialization == "pytorch"
