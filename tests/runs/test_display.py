"""The display of a run: rates and times by hand, lines without a terminal, a table with one."""

import io
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import valueshare
from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.population.phase import records_schema
from valueshare.runs import logs
from valueshare.runs.display import COMPILING, Display, print_lines
from valueshare.runs.plan import split
from valueshare.runs.planning import make_plan
from valueshare.runs.variants import label, shown_k, variant_columns, variant_scores

# 4 agents of ib-dqn (population 1) and 2 of double-dqn (population 2), 1,000 steps each.
PLAN = make_plan("CartPole-v1", ["ib-dqn", "double-dqn"], k=[0, 8], seeds=2, steps=1_000, eval_interval=100)


def records(step: int, scores: dict[int, float | None], diverged: int | None = None) -> pl.DataFrame:
    table = pl.DataFrame(
        {
            "agent": list(scores),
            "step": [step] * len(scores),
            "score": list(scores.values()),
            "diverged_at": [step if agent == diverged else None for agent in scores],
        },
        schema_overrides=records_schema(),
    )
    return pl.concat([records_schema().to_frame(), table], how="diagonal")


ONE, TWO = "population-0", "population-1"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def display(clock: Clock, *, terminal: bool, **saved: int) -> tuple[Display, io.StringIO]:
    """`saved` are the steps of the last checkpoints of a resumed run."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120)
    empty = records_schema().to_frame()
    return Display(PLAN, empty, console, clock, saved=saved), file


def test_lines_where_there_is_no_terminal() -> None:
    clock = Clock()
    shown, file = display(clock, terminal=False)
    shown.on_step(ONE, 300)  # resumed at step 300
    clock.now = 10.0
    shown.on_step(ONE, 350)  # too early for a line
    first = "CartPole-v1 | population 1 of 2 | 4 agents at step 300 of 1,000\n"
    assert file.getvalue() == first  # at once, as a sign of life
    scores = {0: 10.0, 1: 20.0, 2: None, 3: 7.0}
    shown.on_phase(ONE, 400, records(400, scores))
    # 100 steps x 4 agents in 10 s; left are 600 x 4 here and 1,000 x 2 later: 4,400 / 40 = 110 s.
    assert file.getvalue().removeprefix(first) == (
        "CartPole-v1 | population 1 of 2 | 4 agents at step 400 of 1,000 | 40 agent-steps/s"
        " | 0:01:50 left | score ib-dqn k=0 15.0, ib-dqn k=8 7\n"
    )
    clock.now = 71.0
    shown.on_step(ONE, 450)  # a minute later, within a phase
    assert (
        file.getvalue().splitlines()[-1].startswith("CartPole-v1 | population 1 of 2 | 4 agents at step 450 of 1,000 |")
    )


def test_a_phase_whose_checkpoint_was_written_during_the_next_one() -> None:
    shown, file = display(Clock(), terminal=False)
    shown.on_step(ONE, 300)
    shown.on_step(ONE, 430)
    shown.on_phase(ONE, 400, records(400, {0: 10.0, 1: 20.0}))
    assert "4 agents at step 430 of 1,000" in file.getvalue()
    assert "score ib-dqn k=0 15.0" in file.getvalue()


def test_two_populations_at_once() -> None:
    clock = Clock()
    shown, file = display(clock, terminal=False, **{TWO: 500})
    shown.on_step(ONE, 0)
    clock.now = 5.0
    shown.on_step(TWO, 500)  # resumed at step 500
    clock.now = 15.0
    shown.on_step(ONE, 300)
    shown.on_phase(TWO, 600, records_schema().to_frame())
    # 300 x 4 agents and 100 x 2 in 15 s: 1,400 / 15 a second. Of 4,000 + 2,000 agent-steps,
    # 1,200 + 1,200 are done; 3,600 are left: 38.6 s.
    assert file.getvalue().splitlines(keepends=True)[-1] == (
        "CartPole-v1 | population 2 of 2 | 2 agents at step 600 of 1,000"
        " | run 40.0 % done | 93 agent-steps/s | 0:00:39 left\n"
    )
    shown.end(TWO, finished=True)
    shown.end(ONE, finished=False)  # given up: its 4,000 are still to be done
    assert (shown._done(), shown._total()) == (2_000, 6_000)
    assert shown.agent_steps_per_second() is None


def test_the_live_line_is_of_the_least_advanced_population_of_those_that_run() -> None:
    clock = Clock()
    shown, _ = display(clock, terminal=True)
    clock.now = 7.0
    assert shown.line(shown.least_advanced()).endswith("4 agents at step 0 of 1,000 | starting, 7 s")
    shown.on_step(ONE, 400)
    assert shown.least_advanced() == ONE  # the other one waits
    shown.on_step(TWO, 0)
    assert shown.least_advanced() == TWO
    clock.now = 10.0
    shown.on_step(TWO, 500)
    assert shown.least_advanced() == ONE
    split_in_two = Display(split(PLAN, 2), records_schema().to_frame(), Console(file=io.StringIO()), clock)
    assert "part 1 of 3 | 2 agents" in split_in_two.line(split_in_two.least_advanced())


def test_the_last_line_has_the_rate_of_the_whole_run() -> None:
    """Of two populations at once, the second ends alone. 600 x 4 + 1,000 x 2 agent-steps in 40 s: 110 a second."""
    clock, file = Clock(), io.StringIO()
    console, empty = Console(file=file, force_terminal=False), records_schema().to_frame()
    shown = Display(PLAN, empty, console, clock, saved={ONE: 400})
    shown.on_step(ONE, 400)
    shown.on_step(TWO, 0)
    clock.now = 20.0
    shown.on_phase(ONE, 1_000, empty)
    shown.end(ONE, finished=True)
    clock.now = 40.0
    shown.on_phase(TWO, 1_000, empty)
    last = file.getvalue().splitlines()[-1]
    assert last.endswith("2 agents at step 1,000 of 1,000 | 110 agent-steps/s")


def test_the_last_frame_of_a_stopped_run_shows_its_checkpoint() -> None:
    shown, _ = display(Clock(), terminal=True)
    shown.on_step(ONE, 0)
    shown.on_phase(ONE, 500, records_schema().to_frame())
    shown.on_step(ONE, 700)
    shown.end(ONE, finished=False)
    assert shown.line(ONE).endswith("4 agents at step 500 of 1,000")
    assert shown._done() == 2_000
    resumed = Display(PLAN, records_schema().to_frame(), Console(file=io.StringIO()), Clock(), saved={ONE: 500})
    resumed.on_step(ONE, 520)
    resumed.end(ONE, finished=False)
    assert "4 agents at step 500 of 1,000" in resumed.line(ONE)


def test_scores_are_never_of_a_later_step_than_the_agents() -> None:
    """The last checkpoint, of step 300, was damaged: training resumed at step 100, and replaces what it makes again."""
    file, empty = io.StringIO(), records_schema().to_frame()
    stored = pl.concat([records(step, dict.fromkeys(range(6), float(step))) for step in (100, 200, 300)])
    console = Console(file=file, force_terminal=False)
    shown = Display(PLAN, stored, console, Clock(), saved={ONE: 300, TWO: 300})
    shown.on_step(ONE, 100)
    shown.on_phase(ONE, 150, empty)
    assert shown.scores(ONE) == " | score ib-dqn k=0 100.0, ib-dqn k=8 100.0"
    assert shown.scores(TWO) == " | score double-dqn 300.0"  # a population of its own
    shown.on_phase(ONE, 200, records(200, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}))
    assert file.getvalue().endswith("| score ib-dqn k=0 1.5, ib-dqn k=8 3.5\n")
    shown.on_phase(ONE, 200, records(200, {0: 2.0, 1: 2.0, 2: 3.0, 3: 4.0}))  # of a lost worker's replacement
    assert file.getvalue().endswith("| score ib-dqn k=0 2, ib-dqn k=8 3.5\n")


def test_only_a_run_without_a_callback_yet_is_starting() -> None:
    clock = Clock()
    shown, file = display(clock, terminal=False)
    clock.now = 7.0
    assert shown.line(ONE).endswith("4 agents at step 0 of 1,000 | starting, 7 s")
    shown.on_phase(ONE, 500, records_schema().to_frame())  # of a worker: its steps were not reported before
    shown.end(ONE, finished=False)
    assert file.getvalue().endswith("4 agents at step 500 of 1,000\n")
    assert shown.line(TWO).endswith("2 agents at step 0 of 1,000")


def test_scores_of_a_population_of_several_environments_name_them() -> None:
    games = make_plan(["Breakout-MinAtar", "Freeway-MinAtar"], "ib-dqn", k=[0, 1], seeds=1, steps=100)
    file = io.StringIO()
    shown = Display(games, records_schema().to_frame(), Console(file=file, force_terminal=False), Clock())
    shown.on_phase(ONE, 100, records(100, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}))
    of_both = ["Breakout-MinAtar ib-dqn k=0 1", "Breakout-MinAtar ib-dqn k=1 2"]
    of_both += ["Freeway-MinAtar ib-dqn k=0 3", "Freeway-MinAtar ib-dqn k=1 4"]
    assert file.getvalue().endswith(f" | score {', '.join(of_both)}\n")


def test_a_compiled_population_has_no_estimate_before_its_first_update() -> None:
    clock, plan = Clock(), make_plan("CartPole-v1", seeds=2, steps=1_000, learning_starts=95, update_interval=10)
    file = io.StringIO()
    shown = Display(replace(plan, compiled=True), records_schema().to_frame(), Console(file=file), clock)
    start = "CartPole-v1 | population 1 of 1 | 2 agents at step {} of 1,000 | "
    assert shown.line(ONE) == start.format(0) + COMPILING  # on CUDA, before the first step
    shown.on_step(ONE, 0)
    assert file.getvalue() == f"{start.format(0)}{COMPILING}\n"  # said at once
    clock.now = 2.0
    shown.on_step(ONE, 100)  # the first update, which is compiled: 95 is not a multiple of 10
    clock.now = 100.0
    assert shown.line(ONE) == start.format(100) + COMPILING
    shown.on_step(ONE, 101)
    clock.now = 110.0
    shown.on_step(ONE, 201)
    # 100 steps x 2 agents in 10 s; 799 x 2 are left. The time before the first update does not count.
    assert shown.line(ONE) == start.format(201) + "20 agent-steps/s | 0:01:20 left"
    resumed, empty = {ONE: 300}, records_schema().to_frame()
    again = Display(replace(plan, compiled=True), empty, Console(file=file), clock, saved=resumed)
    again.on_step(ONE, 300)  # resumed: it compiles at its first step and update, which are one
    assert again.line(ONE) == start.format(300) + COMPILING
    again.on_step(ONE, 301)
    assert COMPILING not in again.line(ONE)


def test_a_table_in_a_terminal() -> None:
    clock = Clock()
    shown, file = display(clock, terminal=True)
    shown.on_phase(ONE, 100, records(100, {0: 1.0, 1: 2.0, 2: 30.0, 3: 50.0}, diverged=2))
    assert file.getvalue() == ""  # nothing but the live display
    with shown.watch():
        pass
    text = file.getvalue()
    rows = [line.split() for line in text.splitlines() if "dqn" in line]
    assert rows[-3:] == [
        ["CartPole-v1", "ib-dqn", "0", "2", "100", "1.5"],
        ["CartPole-v1", "ib-dqn", "8", "2", "100", "40.0", "1"],
        ["CartPole-v1", "double-dqn", "2", "-", "-"],  # without a k
    ]
    assert "step 100 of 1,000" in text


class Writer:
    def __init__(self, folder: str, purge_step: int) -> None:
        self.scalars: list[tuple[str, float, int]] = []
        assert (folder.endswith("tensorboard"), purge_step) == (True, 0)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None: ...

    def close(self) -> None: ...


def test_events_are_means_of_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    module = ModuleType("stub")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setattr(logs, "import_module", lambda name: module)
    before = records(100, {0: 1.0, 1: 3.0, 2: None, 3: None})
    written = logs.TensorBoardLog(tmp_path, PLAN.agents, before)
    written.write(records(200, {2: 5.0, 3: 9.0}))
    assert written._writer.scalars == [
        ("score/CartPole-v1 ib-dqn k=0", 2.0, 100),
        ("score/CartPole-v1 ib-dqn k=8", 7.0, 200),
    ]


def test_events_need_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'tensorboard'")

    monkeypatch.setattr(logs, "import_module", missing)
    with pytest.raises(InvalidInput, match=re.escape(install_command("tensorboard"))):
        logs.require_tensorboard()


def test_notes_of_a_quiet_run_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    small: dict[str, Any] = {"seeds": 1, "steps": 8, "eval_interval": 8, "eval_episodes": 1, "eval_episode_limit": 5}
    valueshare.train("CartPole-v1", k=2, learning_starts=100, out=tmp_path / "run", progress=False, **small)
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith("CartPole-v1: no updates will run: the first is due after step 104, ")
    caplog.clear()
    print_lines(Console(file=io.StringIO()), "note: seen", "a line")
    print_lines(Console(quiet=True), "a line")
    assert caplog.records == []


def test_only_who_has_a_beta_is_named_with_it() -> None:
    plan = make_plan("CartPole-v1", ["dqn", "rdq"], seeds=1, beta=[0.1, 0.2])
    rows = variant_scores(plan.agents, records(100, {0: 1.0, 1: 2.0, 2: 3.0})).to_dicts()
    assert [label(row) for row in rows] == ["dqn", "rdq beta=0.1", "rdq beta=0.2"]
    assert [shown_k({"algorithm": name, "k": 0.0}) for name in ("ib-dqn", "ib-iqn", "dqn", "iqn")] == ["0", "0", "", ""]


def test_what_a_sweep_varies_makes_groups_of_its_own() -> None:
    # Presets of the two environments differ in more than that: within one, only step_size does.
    plan = make_plan(["CartPole-v1", "LunarLander-v3"], "ib-dqn", k=[4], seeds=2, step_size=[1e-3, 1e-4])
    scores: dict[int, float | None] = dict(enumerate([10.0, 20.0, 1.0, 3.0, *[0.0] * 4]))
    rows = variant_scores(plan.agents, records(100, scores)).to_dicts()
    assert [(label(row), row["agents"], row["score"]) for row in rows] == [
        ("ib-dqn k=4 step_size=0.001", 2, 15.0),
        ("ib-dqn k=4 step_size=0.0001", 2, 2.0),
        ("ib-dqn k=4 step_size=0.001", 2, 0.0),
        ("ib-dqn k=4 step_size=0.0001", 2, 0.0),
    ]
    assert variant_columns(PLAN.agents) == ("env", "algorithm", "k")
