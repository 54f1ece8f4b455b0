"""Text and values of somebody else's run folder: refused in one line, and never printed as they are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from undrawn import undrawn

from valueshare.errors import InvalidInput, printable
from valueshare.population.agents import table_digest
from valueshare.population.run_config import RESTORE
from valueshare.runs.display import Display
from valueshare.runs.plan import Plan
from valueshare.runs.run_folder import open_plan, read_records

Cli = Callable[..., tuple[int, str, str]]
ATTACKS = {
    "the title of the window": "\x1b]0;x\x07",
    "a line of its own": "\nError: ",
    "a carriage return": "\rError: ",
    "a C1 control character": "\x9b2J",
    "right to left": "\u202egnp.exe",
    "an isolate": "\u2066x\u2069",
    "no width": "\u200b",
    "markup": "[link=http://x]y[/link]",
    "a long name": "x" * 100_000,
}
COMMANDS = {
    "resume": (),
    "report": ("--resamples", "50"),
    "play": ("--agent", "0", "--video", "x.mp4"),
    "watch": ("--port", "0", "--no-clips"),
    "best": ("--resamples", "50"),
    "evaluate": ("--episodes", "1"),
}
# One that opens the run, and one that reads records only; the others, which call the same check, are slow tests.
READERS = [
    pytest.param(name, marks=() if name in ("resume", "report") else pytest.mark.slow)
    for name in COMMANDS
    if name != "evaluate"
]
VALUES: dict[str, tuple[str, Any]] = {
    "no chunk": ("chunks", {"population-0": 0}),
    "chunks in words": ("chunks", {"population-0": "x"}),
    "a negative chunk": ("chunks", {"population-0": -1}),
    "a switch as chunks": ("chunks", {"population-0": True}),
    "a family of no environment": ("families", {"Pong": "CartPole-v1"}),
    "an environment of no family": ("families", {"CartPole-v1": "Pong"}),
    "compile in words": ("compile", "yes"),
    "compile as a number": ("compile", 1),
    "a shard of none": ("shard", "0/0"),
    "a shard after the last": ("shard", "3/2"),
    "a shard in words": ("shard", "x"),
    "a protocol of no environment": ("protocols", {"Pong": {"name": "machado-2018", "digest": "0" * 12}}),
    "a protocol with another digest": ("protocols", {"CartPole-v1": {"name": "machado-2018", "digest": "x"}}),
    "actions of no environment": ("actions", {"Pong": 18}),
    "no action": ("actions", {"CartPole-v1": 0}),
    "a switch as actions": ("actions", {"CartPole-v1": True}),
    "steps of no run": ("extended_from", {"CartPole-v1": [10**9]}),
    "an unknown backend": ("backends", {"CartPole-v1": "mine"}),
    "an unknown key": ("hook", "rm"),
}
OTHER_AGENTS: dict[str, tuple[str, Any]] = {
    "many chunks": ("chunks", {"population-0": 10**9}),
    "chunks of no population": ("chunks", {"population-7": 2}),
    "another table of agents": ("agents", "0" * 32),
}
SETTINGS: dict[str, tuple[str, Any]] = {
    "a switch as steps": ("steps", True),
    "steps in words": ("steps", "x"),
    "no steps": ("steps", 0),
    "a switch as a number": ("reward_scale", True),
    "a number that is no float": ("kappa", 10**400),
    "a negative number that is no float": ("reward_scale", -(10**400)),
    "a number as a switch": ("clip_rewards", 1),
    "an unknown setting": ("algorithm", "ppo"),
    "an unknown loss": ("loss", "mine"),
}


@pytest.fixture
def folder(uninterrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uninterrupted, tmp_path / "run"))


def changed(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file = folder / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | change(values)))


def refused(cli: Cli, command: str, folder: Path) -> str:
    """The one line with which a command was refused: printable, and not too long to read."""
    code, out, err = cli(command, folder, *COMMANDS[command])
    assert (code, out) == (2, ""), err
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    assert len(err) < 5_000
    return err


def rename(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Another name of the environment, wherever it is."""
    return {what: {name: values[what]["CartPole-v1"]} for what in ("settings", "backends", "actions")}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_name_of_an_environment(attack: str, command: str, folder: Path, cli: Cli) -> None:
    """With a module before it, which is not imported; the table of agents has the same name, and its checksum fits."""
    name = f"os:{ATTACKS[attack]}Env-v0"
    agents = pl.read_parquet(folder / "agents.parquet").with_columns(env=pl.lit(name))
    agents.write_parquet(folder / "agents.parquet")
    changed(folder, lambda values: rename(values, name) | {"agents": table_digest(agents)})
    assert "config.json is damaged" in refused(cli, command, folder)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("key", ["valueshare", "device", "network", "shard", "kind", "format", "\x1b[2J"])
def test_other_texts_of_the_configuration(key: str, command: str, folder: Path, cli: Cli) -> None:
    changed(folder, lambda _: {key: "\x1b]0;x\x07\nError: \u202e"})
    refused(cli, command, folder)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("column", ["env", "algorithm"])
def test_texts_of_the_table_of_agents(column: str, command: str, folder: Path, cli: Cli) -> None:
    agents = pl.read_parquet(folder / "agents.parquet").with_columns(pl.lit("\x1b[2J\nError: ").alias(column))
    agents.write_parquet(folder / "agents.parquet")
    changed(folder, lambda _: {"agents": table_digest(agents)})
    refused(cli, command, folder)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("case", VALUES)
def test_a_configuration_is_read_in_one_way(case: str, command: str, folder: Path, cli: Cli) -> None:
    """What `resume` refuses is refused by commands that only read records too."""
    key, value = VALUES[case]
    changed(folder, lambda _: {key: value})
    assert "config.json is damaged" in refused(cli, command, folder)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", OTHER_AGENTS)
def test_a_configuration_of_other_agents(case: str, command: str, folder: Path, cli: Cli) -> None:
    key, value = OTHER_AGENTS[case]
    changed(folder, lambda _: {key: value})
    assert f"{folder}: config.json and agents.parquet are not of one run (" in refused(cli, command, folder)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "column", [pl.lit(7).alias("env"), pl.lit(None, pl.String).alias("algorithm"), pl.date(1, 1, 1)]
)
def test_a_table_of_agents_with_other_columns(column: pl.Expr, command: str, folder: Path, cli: Cli) -> None:
    pl.read_parquet(folder / "agents.parquet").with_columns(column).write_parquet(folder / "agents.parquet")
    assert f"{folder / 'agents.parquet'} is damaged (" in refused(cli, command, folder)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "watch"])  # it waits for a missing file
@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (Path.unlink, "is missing: "),
        (lambda file: file.write_bytes(b"hello"), "cannot be read: it is too short; "),
        (lambda file: pl.DataFrame({"x": [1]}).write_parquet(file), "is damaged ("),
    ],
)
def test_a_damaged_table_of_agents_has_one_advice(
    damage: Callable[[Path], object], what: str, command: str, folder: Path, cli: Cli
) -> None:
    damage(folder / "agents.parquet")
    line = refused(cli, command, folder)
    assert f"{folder / 'agents.parquet'} {what}" in line
    assert line.endswith(f"{RESTORE}\n")


@pytest.mark.parametrize("command", READERS)
def test_a_configuration_without_format_and_kind(command: str, folder: Path, cli: Cli) -> None:
    file = folder / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in values.items() if name not in ("format", "kind")}))
    refused(cli, command, folder)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("case", SETTINGS)
def test_settings_are_read_in_one_way(case: str, command: str, folder: Path, cli: Cli) -> None:
    name, value = SETTINGS[case]
    changed(folder, lambda values: {"settings": {"CartPole-v1": values["settings"]["CartPole-v1"] | {name: value}}})
    assert "config.json is damaged" in refused(cli, command, folder)


@pytest.mark.parametrize("command", READERS)
def test_an_unknown_algorithm(command: str, folder: Path, cli: Cli) -> None:
    agents = pl.read_parquet(folder / "agents.parquet").with_columns(algorithm=pl.lit("ppo"))
    agents.write_parquet(folder / "agents.parquet")
    changed(folder, lambda _: {"agents": table_digest(agents)})
    assert "algorithm = 'ppo'" in refused(cli, command, folder)


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name != "markup"])
@pytest.mark.parametrize("column", ["environment", "algorithm"])
def test_names_in_results_of_other_programs(column: str, attack: str, tmp_path: Path, cli: Cli) -> None:
    """A name that cannot be shown as it is would be in figures and warnings of Matplotlib too."""
    file = results_file(tmp_path, column, f"x{ATTACKS[attack]}")
    for command in ("report", "watch", "best"):
        assert "not a name: write at most 1,000 visible characters" in refused(cli, command, file)


@pytest.mark.parametrize("column", ["environment", "algorithm"])
def test_markup_in_results_of_other_programs_is_text(column: str, tmp_path: Path, cli: Cli) -> None:
    file = results_file(tmp_path, column, ATTACKS["markup"])
    with undrawn():
        code, _, err = cli("report", file, "--resamples", "50", "--out", tmp_path / "out")
    assert code == 0, err
    assert ATTACKS["markup"] in (tmp_path / "out" / "tables" / "scores.csv").read_text()


def results_file(folder: Path, column: str, name: str) -> Path:
    """Results of another program, with this name of an environment or algorithm."""
    row = {"environment": "Catch", "algorithm": "PPO", column: name}
    rows = [{**row, "seed": seed, "step": step, "score": 1.0} for seed in (0, 1) for step in (0, 9)]
    pl.DataFrame(rows).write_parquet(folder / "results.parquet")
    return folder / "results.parquet"


def test_folders_in_a_folder(uninterrupted: Path, tmp_path: Path, cli: Cli) -> None:
    for attack in ("\x1b]0;x\x07", "\u202ex"):
        shutil.copytree(uninterrupted, tmp_path / "runs" / f"run{attack}")
    with undrawn():
        _, out, err = cli("report", tmp_path / "runs", "--resamples", "50")
    assert "\\x1b]0;x\\x07" in out
    assert all(line.isprintable() for line in (out + err).split("\n"))


def test_lines_of_the_display(uninterrupted: Path) -> None:
    """Names that have passed by the checks are no markup of the live display, and move nothing."""
    stored, name = open_plan(uninterrupted), "\x1b[2J[bold]x"
    plan = Plan(
        agents=stored.agents.with_columns(env=pl.lit(name)),
        settings={name: stored.settings["CartPole-v1"]},
        backends={name: "gymnasium"},
    )
    console = Console(record=True, width=300, color_system=None, force_terminal=False, quiet=False)
    display = Display(plan, read_records(uninterrupted), console)
    with console.capture() as captured:
        console.print(display.render())
        display.on_phase("population-0", 100, read_records(uninterrupted))
    text = captured.get()
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\\x1b[2J[bold]x") >= 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain − text, é, 日本", "plain − text, é, 日本"),
        ("a\x1b[2J\x07b", "a\\x1b[2J\\x07b"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202e\u2066\u200b\ufeff\u2028", "\\u202e\\u2066\\u200b\\ufeff\\u2028"),
        ("\u3164\u115f\u1160\uffa0\u2800", "\\u3164\\u115f\\u1160\\uffa0\\u2800"),  # fillers
        ("a\u061c\u180e\ufe00\ufe0fb\U000e0100", "a\\u061c\\u180e\\ufe00\\ufe0fb\\U000e0100"),
        ("\x85\x9b", "\\x85\\x9b"),
        ("\udcff", "\\udcff"),  # a byte of a file's name that is no text
        ("\U000e0041", "\\U000e0041"),  # a tag
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert str(InvalidInput(text)) == shown  # from Python too


def test_long_texts_lose_their_middle() -> None:
    text = printable("begin" + "x" * 10**6 + "\x1b" * 10**6 + "end")
    assert (len(text) <= 4_000, text[:5], text[-3:], " ... " in text) == (True, "begin", "end", True)
    assert printable(text) == text
