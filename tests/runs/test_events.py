"""TensorBoard events of a run that was stopped: they continue unasked, and none is missing."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import valueshare
from valueshare import starting
from valueshare.errors import InvalidInput
from valueshare.population.phase import records_schema
from valueshare.population.settings import PER_AGENT
from valueshare.runs.display import Display
from valueshare.runs.logs import Curves
from valueshare.runs.run import Run
from valueshare.runs.variants import shown_score

QUICK: dict[str, Any] = {
    "seeds": 2,
    "steps": 160,
    "eval_interval": 40,
    "eval_episodes": 1,
    "eval_episode_limit": 10,
    "learning_starts": 20,
    "hidden": [8],
    "batch_size": 8,
}


def after(phases: int, folder: Path) -> Callable[[], bool]:
    """Ends a run within the phase that follows so many."""
    last = folder / "checkpoints" / "population-0" / f"checkpoint-{phases - 1:06d}.json"
    return last.exists


def scores(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scores as TensorBoard itself reads them: (step, mean score) of every curve of scores."""
    library = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = library.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if tag.startswith("score/")
    }


def expected(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    run = valueshare.open_run(folder)
    table = run.records.join(run.agents, on="agent").group_by("k", "step", maintain_order=True)
    means = table.agg(pl.col("score").mean()).sort("k", "step")
    return {
        f"score/CartPole-v1 ib-dqn k={k:g}": [
            (row["step"], pytest.approx(row["score"], rel=1e-6)) for row in means.filter(pl.col("k") == k).to_dicts()
        ]
        for k in (0.0, 4.0)
    }


def begin(folder: Path, **options: Any) -> None:
    """A run of k = 0 and 4 that ends within its second phase."""
    options |= {"k": [0, 4], "out": folder, "should_stop": after(1, folder)}
    valueshare.train("CartPole-v1", "ib-dqn", **options, **QUICK)


@contextmanager
def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where TensorBoard is not installed."""

    def missing() -> None:
        raise InvalidInput("TensorBoard is not installed")

    with monkeypatch.context() as patch:
        patch.setattr(starting, "require_tensorboard", missing)
        yield


def test_events_go_on_and_a_gap_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    begin(folder, log="tensorboard")
    assert len(scores(folder)["score/CartPole-v1 ib-dqn k=0"]) == 2  # steps 0 and 40
    with on_another_machine(monkeypatch):
        valueshare.resume(folder, should_stop=after(2, folder))
    assert "note: TensorBoard is not installed here, so no events are written" in (capsys.readouterr().out)
    assert len(scores(folder)["score/CartPole-v1 ib-dqn k=0"]) == 2  # a gap
    assert valueshare.resume(folder, progress=False).finished
    assert scores(folder) == expected(folder)
    assert [step for step, _ in scores(folder)["score/CartPole-v1 ib-dqn k=4"]] == [*(0, 40, 80, 120, 160)]


def test_events_of_a_run_that_was_finished_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    begin(folder, log="tensorboard", progress=False)
    with on_another_machine(monkeypatch):
        assert valueshare.resume(folder, progress=False).finished
    assert len(scores(folder)["score/CartPole-v1 ib-dqn k=0"]) == 2
    assert valueshare.resume(folder, progress=False).finished
    assert scores(folder) == expected(folder)


def test_asked_for_on_the_way(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin(folder, progress=False)
    assert "tensorboard" not in json.loads((folder / "provenance.json").read_text())
    ends = iter([False, True])
    valueshare.resume(folder, log="tensorboard", progress=False, should_stop=lambda: next(ends))
    assert valueshare.resume(folder, progress=False).finished
    assert scores(folder) == expected(folder)


def test_a_phase_that_runs_again_is_not_logged_twice(tmp_path: Path) -> None:
    """The last phase of a run that is extended, with an evaluation at 160."""
    folder = tmp_path / "run"
    options = {**QUICK, "step_size_schedule": "constant", "k": [0, 4]}
    valueshare.train("CartPole-v1", "ib-dqn", out=folder, log="tensorboard", progress=False, **options)
    assert valueshare.extend(folder, steps=240, progress=False).finished
    assert scores(folder) == expected(folder)


def test_a_variant_in_several_populations_has_one_curve_of_all_its_seeds(tmp_path: Path) -> None:
    """Populations of two agents: k = 0 and 0, k = 0 and 4, k = 4 and 4. The run ends within the second of them."""
    folder = tmp_path / "run"
    options = {**QUICK, "k": [0, 4], "seeds": 3, "launcher": valueshare.LauncherOptions(population_agents=2)}
    second = folder / "checkpoints" / "population-0-1" / "checkpoint-000001.json"  # of its phase that ends at 80
    valueshare.train(
        "CartPole-v1", "ib-dqn", out=folder, log="tensorboard", progress=False, should_stop=second.exists, **options
    )
    stopped = scores(folder)
    assert valueshare.resume(folder, progress=False).finished
    assert scores(folder) == expected(folder)
    zero = "score/CartPole-v1 ib-dqn k=0"
    assert stopped == {zero: expected(folder)[zero][:3]}  # steps 0, 40 and 80


def test_a_point_is_made_once_when_all_agents_of_its_variant_have_records() -> None:
    """Agents 0, 1 and 2 have k = 4, agent 3 has k = 0; 0 and 1 form a population, and 2 and 3."""
    values: dict[str, Any] = {"env": "E", "algorithm": "ib-dqn", **dict.fromkeys(PER_AGENT, 0.1)}
    agents = pl.DataFrame([{**values, "agent": i, "k": k} for i, k in enumerate([4.0, 4.0, 4.0, 0.0])])

    def records(step: int, scores: dict[int, float | None]) -> pl.DataFrame:
        rows = [{"agent": agent, "step": step, "score": score} for agent, score in scores.items()]
        return pl.DataFrame(rows, schema=records_schema())

    curves = Curves(agents, records(0, {0: 3.0, 1: 5.0}))  # from before
    assert curves.points(records(10, {0: 1.0, 1: 2.0})) == []
    assert curves.points(records(0, {2: 10.0, 3: 7.0})) == [("score/E ib-dqn k=0", 0, 7), ("score/E ib-dqn k=4", 0, 6)]
    assert curves.points(records(10, {0: 1.0, 1: 2.0})) == []  # of a phase that ran again
    assert curves.points(records(0, {2: 10.0, 3: 7.0})) == []
    assert curves.points(records(10, {2: None, 3: None})) == [("score/E ib-dqn k=4", 10, 1.5)]  # of two that have one


@pytest.mark.slow
def test_a_phase_without_its_progress_is_not_reported_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that were killed after the manifest of the third phase, and before their progress."""
    folder, reported = tmp_path / "run", list[tuple[str, int]]()
    valueshare.train("CartPole-v1", ["ib-dqn", "double-dqn"], out=folder, progress=False, **QUICK)
    for name in ("population-0", "population-1"):
        for path in (folder / "checkpoints" / name).glob("*-000003.*"):
            path.unlink()  # of the fourth phase
        file = folder / "progress" / f"{name}.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "step": 80, "phases": 2}))

    monkeypatch.setattr(Display, "on_phase", lambda self, name, step, records: reported.append((name, step)))
    assert valueshare.resume(folder, progress=False, launcher=valueshare.LauncherOptions(workers=2)).finished
    assert sorted(reported) == [("population-0", 160), ("population-1", 160)]


def test_a_run_trained_again_shows_scores_of_its_present_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without checkpoints it starts from the first step, and records of later steps are still there."""
    folder, seen = tmp_path / "run", list[tuple[list[int], list[int]]]()
    valueshare.train("CartPole-v1", "ib-dqn", k=[0, 4], out=folder, log="tensorboard", progress=False, **QUICK)
    finished = expected(folder)
    shutil.rmtree(folder / "checkpoints")
    shutil.rmtree(folder / "tensorboard")

    def see(new: pl.DataFrame, run: Run) -> None:
        seen.append(tuple(sorted(table["step"].unique()) for table in (new, run.records)))  # type: ignore[arg-type]

    capsys.readouterr()
    valueshare.resume(folder, callbacks=[see], should_stop=after(2, folder))
    lines = [line for line in capsys.readouterr().out.splitlines() if "| score" in line]
    assert seen == [([0, 40], [0, 40]), ([80], [0, 40, 80])]
    assert scores(folder) == {tag: points[:3] for tag, points in finished.items()}
    of_k = [dict(points) for points in finished.values()]
    for line, step in zip(lines, (40, 80), strict=True):
        shown = [shown_score(points[step].expected) for points in of_k]
        assert line.endswith(f"| score ib-dqn k=0 {shown[0]}, ib-dqn k=4 {shown[1]}")


def test_events_that_nobody_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    valueshare.train("CartPole-v1", out=folder, progress=False, should_stop=after(1, folder), **QUICK)
    assert valueshare.resume(folder, progress=False).finished
    assert not (folder / "tensorboard").exists()
