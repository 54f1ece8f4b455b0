"""Every setting is an option of the command line and a typed argument from Python."""

import dataclasses
from collections.abc import Sequence
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from docstring_parser import parse_from_object

from valueshare.commands.training import resume, train
from valueshare.population.agents import AgentSettings
from valueshare.population.settings import TrainingSettings
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.options import Options, Settings
from valueshare.runs.planning import make_plan
from valueshare.runs.variants import AGENT_SETTINGS


def test_every_setting_is_an_option() -> None:
    settings = {field.name for field in dataclasses.fields(TrainingSettings)}
    own = {field.name for field in dataclasses.fields(AgentSettings)}
    options = {field.name for field in dataclasses.fields(Options)}
    assert options == (settings - {"total_steps"}) | {"steps"} | own


@pytest.mark.parametrize("subject", [train, resume, LauncherOptions, Options])
def test_help_is_not_broken_within_its_lines(subject: object) -> None:
    """The parser keeps the line breaks of the source: what is said of an option has none."""
    said = {each.arg_name: each.description for each in parse_from_object(subject).params}
    assert said
    assert [name for name, text in said.items() if not text or "\n" in text] == []


def test_arguments_from_python_are_the_options_in_their_order() -> None:
    assert list(get_type_hints(Settings)) == [field.name for field in dataclasses.fields(Options)]
    assert Settings.__total__ is False  # what is left out is the preset's


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Options)])
def test_arguments_from_python_have_the_options_types(name: str) -> None:
    given = get_args(get_type_hints(Options)[name])  # T | None, the annotations of tyro left out
    (kind,) = [kind for kind in given if kind is not NoneType]
    expected: Any = kind
    listed: Any = Sequence
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        item: Any = get_args(kind)[0]
        # An agent's own is one value or several; `hidden` is a list by nature.
        several = listed[item]
        expected = item | several if name in AGENT_SETTINGS else several
    assert get_type_hints(Settings)[name] == expected


def test_type_checkers_know_the_names() -> None:
    """mypy reads this file too: an ignore that it did not need would be an error there."""
    plan = make_plan("CartPole-v1", batch_size=32, step_size=[1e-3, 1e-4], seeds=1)
    assert plan.settings["CartPole-v1"].batch_size == 32
    with pytest.raises(Exception, match="did you mean batch_size"):
        make_plan("CartPole-v1", batch_sise=32)  # type: ignore[call-arg]
    with pytest.raises(Exception, match="write a whole number"):
        make_plan("CartPole-v1", batch_size="many")  # type: ignore[arg-type]
