"""Atari protocols: named, printed, hashed, written and read."""

import dataclasses
from typing import Any

import pytest

from valueshare.envs import AtariProtocol, atari_protocol, atari_protocols
from valueshare.errors import InvalidInput


def test_machado_2018_is_what_the_settings_say() -> None:
    protocol = atari_protocol("machado-2018")
    assert dataclasses.asdict(protocol) == {
        "name": "machado-2018",
        "sticky": 0.25,
        "full_actions": True,
        "frame_skip": 4,
        "max_noops": 0,
        "fire_at_start": False,
        "mode": 0,
        "difficulty": 0,
        "terminal_on_life_loss": False,
        "frame_limit": 108_000,
        "height": 84,
        "width": 84,
        "resize": "area",
        "grayscale": True,
        "frame_max_pool": True,
        "stack": 4,
        "clip_rewards": True,
    }
    assert protocol.step_limit == 27_000
    assert atari_protocol() == atari_protocol(None) == atari_protocol(protocol) == protocol


def test_other_protocols_differ_where_they_say() -> None:
    machado, minimal, nature = (atari_protocol(name) for name in atari_protocols())
    assert minimal == dataclasses.replace(machado, name="machado-2018-minimal", full_actions=False)
    assert nature == dataclasses.replace(
        minimal, name="nature-2015", sticky=0.0, max_noops=30, terminal_on_life_loss=True
    )
    assert not nature.for_evaluation().terminal_on_life_loss


def test_digests_do_not_change_by_accident() -> None:
    """Results are stored with them: a change here makes old results another protocol's."""
    assert {name: atari_protocol(name).digest for name in atari_protocols()} == {
        "machado-2018": "220210c136b4",
        "machado-2018-minimal": "78220a4163ad",
        "nature-2015": "dc317729ff9e",
    }


def test_every_setting_changes_the_digest_and_the_name_does_not() -> None:
    base = atari_protocol()
    others: dict[str, Any] = {
        "sticky": 0.2,
        "full_actions": False,
        "frame_skip": 3,
        "max_noops": 1,
        "terminal_on_life_loss": True,
        "frame_limit": 4,
        "height": 42,
        "width": 42,
        "frame_max_pool": False,
        "stack": 3,
        "clip_rewards": False,
    }
    changed = [dataclasses.replace(base, **{name: value}) for name, value in others.items()]
    assert len({protocol.digest for protocol in (base, *changed)}) == 12
    assert dataclasses.replace(base, name="other").digest == base.digest
    # All but those that have one value, and the name.
    only = {"name", "fire_at_start", "mode", "difficulty", "resize", "grayscale"}
    assert {field.name for field in dataclasses.fields(base)} == {*others, *only}


def test_in_words() -> None:
    assert atari_protocol("nature-2015").described() == [
        "Atari protocol nature-2015: dc317729ff9e",
        "actions: those the game reacts to, not sticky",
        "a step: 4 frames with one action",
        "observation: the brighter of the last two frames, grayscale, 84x84 (area); the last 4 stacked",
        "starts: 0 to 30 no-op frames, no FIRE pressed, mode 0, difficulty 0",
        "episodes end at: game over, in training also at a lost life",
        "truncated after: 108,000 frames = 27,000 steps",
        "rewards: their signs in training, raw in scores",
    ]
    assert "actions: all 18, sticky with probability 0.25 per frame" in atari_protocol().described()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sticky": 1.0}, "sticky = 1.0: write a probability"),
        ({"stack": 0}, "stack = 0: write at least 1"),
        ({"max_noops": -1}, "max_noops = -1"),
        ({"frame_limit": 10}, "not a multiple of frame_skip = 4"),
        ({"mode": 3}, "mode = 3: there is only 0 here"),
        ({"grayscale": False}, "grayscale = False: there is only True here"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        AtariProtocol("mine", **settings)  # type: ignore[arg-type]


def test_a_name_that_is_no_protocol() -> None:
    with pytest.raises(InvalidInput, match=r"There are machado-2018, .*nature-2015"):
        atari_protocol("dopamine")
