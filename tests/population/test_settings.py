"""A setting is declared once: options, arguments and checks are made from its declaration."""

import dataclasses
import inspect
import pydoc
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from cyclopts import App

import valueshare
from valueshare.cli import make_app
from valueshare.errors import InvalidInput
from valueshare.option_groups import GROUPS
from valueshare.population.presets import generic
from valueshare.population.settings import (
    PER_AGENT,
    SETTINGS,
    AgentSettings,
    TrainingSettings,
    differences,
)
from valueshare.runs.planning import make_plan
from valueshare.setting import MAX_COUNT, check_settings, setting


@pytest.fixture(scope="module")
def app() -> App:
    return make_app()


@dataclasses.dataclass(frozen=True)
class Example:
    count: int = setting(1, "A count.", group="replay", minimum=1)
    share: float = setting(0.5, "A share.", group="replay", minimum=0, below=1)
    rate: float = setting(1.0, "A rate.", group="replay", above=0)
    kind: Literal["a", "b"] | None = setting(None, "A kind.", group="replay")
    flag: bool = setting(False, "A flag.", group="replay")
    widths: tuple[int, ...] = setting((2,), "Widths.", group="replay", minimum=1, maximum=9)
    pair: tuple[float, float] = setting((0.0, 1.0), "Two numbers.", group="replay")
    label: str | None = setting(None, "A name.", group="replay")

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", 0, "`count = 0`: write a number >= 1"),
        ("count", MAX_COUNT + 1, f"`count = {MAX_COUNT + 1}`: write a number <= 1,000,000,000,000"),
        ("count", 1.5, "`count = 1.5`: write a whole number"),
        ("count", "1", "`count = '1'`: write a whole number"),
        ("count", None, "`count = None`: write a whole number"),
        ("count", True, "`count = True`: write a whole number"),
        ("count", np.True_, "`count = np.True_`: write a whole number"),
        ("share", np.True_, "`share = np.True_`: write a number"),
        ("share", 10**400, "`share` is a number of more than 300 digits: write a finite number"),
        ("share", False, "`share = False`: write a number"),
        ("flag", 1, "`flag = 1`: write True or False"),
        ("flag", 0.0, "`flag = 0.0`: write True or False"),
        ("share", -0.1, "`share = -0.1`: write a number >= 0 and < 1"),
        ("share", 1, "`share = 1`: write a number >= 0 and < 1"),
        ("share", float("nan"), "`share = nan`: write a finite number"),
        ("share", "x", "`share = 'x'`: write a number"),
        ("rate", 0, "`rate = 0`: write a number > 0"),
        ("rate", float("inf"), "`rate = inf`: write a finite number"),
        ("kind", "c", "`kind = 'c'`: write one of a, b"),
        ("kind", ["a"], "`kind = ['a']`: write one of a, b"),
        ("flag", "yes", "`flag = 'yes'`: write True or False"),
        ("widths", 4, "`widths = 4`: write a list of numbers, like [4]"),
        ("widths", [4, 10], "`widths = 10`: write a number >= 1 and <= 9"),
        ("widths", iter(int, 1), "`widths` has more than 1,000 numbers: write fewer"),
        ("pair", [1], "`pair = (1,)`: write 2 numbers"),
        ("label", 5, "`label = 5`: write a name"),
    ],
)
def test_a_value_out_of_range_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Example(**{name: value})
    assert str(caught.value) == message


def test_values_have_their_declared_type() -> None:
    example = Example(count=1e3, share=0, flag=np.True_, widths=[3.0], pair=[1, 2])  # type: ignore[arg-type]
    assert example == Example(1000, 0.0, flag=True, widths=(3,), pair=(1.0, 2.0))
    found = (example.count, example.share, example.flag, *example.widths, *example.pair)
    assert [type(value) for value in found] == [int, float, bool, int, float, float]


def test_every_setting_is_an_option_with_its_help_and_group(app: App) -> None:
    options = {argument.name: argument for argument in app["train"].assemble_argument_collection()}
    for name, declared in SETTINGS.items():
        option = options[f"--{name.replace('_', '-')}"]
        assert option.parameter.help == declared.help
        assert option.parameter.group == (GROUPS[declared.group],)
    assert {declared.group for declared in SETTINGS.values()} == set(GROUPS) - {"cluster"}


def test_the_help_shows_the_generic_preset(app: App) -> None:
    settings, agent_settings = generic()
    values = dataclasses.asdict(settings) | dataclasses.asdict(agent_settings)
    shown = {argument.name: argument.show_default for argument in app["train"].assemble_argument_collection()}
    for name, value in values.items():
        default = shown[f"--{name.replace('_', '-')}"]
        if value is None or "default: " in SETTINGS[name].help:
            assert default is False, name
        else:
            words = value if isinstance(value, tuple) else ["off" if value is False else value]
            assert default == f"preset, else {' '.join(map(str, words))}"
    assert shown["--step-size"] == "preset, else 0.0005"
    assert shown["--loss"] == "preset, else huber"


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("--k 0 -2 1e-3", {"k": (0.0, -2.0, 1e-3)}),
        ("--step-size 1e-3 1e-4 --hidden 8 16", {"step_size": (1e-3, 1e-4), "hidden": (8, 16)}),
        ("--batch_size=32 --loss huber", {"batch_size": 32, "loss": "huber"}),
        ("--adam-betas 0 0.5", {"adam_betas": (0.0, 0.5)}),
        ("--tf32 --no-clip-rewards", {"tf32": True, "clip_rewards": False}),
        ("--steps 2 --compile", {"steps": 2, "compile": True}),
        ("--k 3 4 --seeds 2", {"k": (3.0, 4.0), "seeds": 2}),
        ("--hidden 8 8 --adam-betas 0 0.5", {"hidden": (8, 8), "adam_betas": (0.0, 0.5)}),
        (
            "--log wandb tensorboard --callback a:b c:d",
            {"log": ("wandb", "tensorboard"), "callback": ("a:b", "c:d")},
        ),
        ("--step-size-schedule linear", {"step_size_schedule": "linear"}),
    ],
)
def test_options_are_read(app: App, words: str, given: dict[str, Any]) -> None:
    _, bound, _ = app.parse_args(["train", "--env", "A", "B", *words.split()])
    assert bound.arguments == {"env": ("A", "B"), **given}


@pytest.mark.parametrize(
    ("words", "once"),
    [
        ("--k 0 n --k=2 --k 3 4", "--k 0 n 2 3 4"),
        ("--hidden 8 8 --hidden 4", "--hidden 8 8 4"),
        ("--callback a:b --callback c:d", "--callback a:b c:d"),
    ],
)
def test_several_values_are_given_once(words: str, once: str, cli: Callable[..., tuple[int, str, str]]) -> None:
    """The values of the first one would be lost without a word."""
    code, _, err = cli("train", "--env", "CartPole-v1", *words.split())
    assert (code, err) == (2, f"valueshare: {once.split()[0]} is given twice: write {once}\n")


def test_the_signature_has_every_setting_with_its_type() -> None:
    parameters = inspect.signature(valueshare.train).parameters
    shared = [name for name in SETTINGS if name not in PER_AGENT]
    assert [*parameters][-len(SETTINGS) :] == [*PER_AGENT, *shared]
    assert "settings" not in parameters
    assert parameters["batch_size"].annotation is int
    assert parameters["step_size"].annotation == float | Sequence[float]
    assert parameters["hidden"].annotation == Sequence[int]
    assert str(parameters["steps"]) == "steps: int = preset"


def test_signatures_show_plain_types() -> None:
    """Not the groups of the command line's help."""
    options = inspect.signature(valueshare.LauncherOptions)
    assert {name: given.annotation for name, given in options.parameters.items()} == {
        "launcher": Literal["local", "ray"],
        "workers": int,
        "ray_address": str,
        "ray_cpus": int,
        "ray_gpus": float,
        "ray_retries": int,
        "population_agents": int,
        "shard": str,
    }
    for name in valueshare.__all__:
        assert "Parameter(" not in pydoc.render_doc(getattr(valueshare, name)), name


def test_names_are_those_of_the_fields() -> None:
    shared = {field.name for field in dataclasses.fields(TrainingSettings)}
    own = {field.name for field in dataclasses.fields(AgentSettings)}
    assert set(SETTINGS) == shared | own
    assert set(PER_AGENT) == own


def test_an_unknown_name_has_its_nearest() -> None:
    with pytest.raises(InvalidInput, match="no setting 'batch_sise': did you mean batch_size"):
        make_plan("CartPole-v1", batch_sise=32)


def test_a_value_that_is_not_stored_is_no_text() -> None:
    assert differences({"family": "absent"}, {"family": "absent"}) == {}
    ((before, now),) = differences({}, {"family": "absent"}).values()
    assert (str(before), before == now) == ("absent", False)
