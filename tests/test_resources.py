"""Device, worker processes and compilation: what is chosen where they are left out, printed, stored and overridden."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import valueshare
from valueshare import resources, starting
from valueshare.errors import InvalidInput
from valueshare.population import engine, memory
from valueshare.population.engine import TRIAL_STEPS
from valueshare.population.execution import group_trial
from valueshare.resources import Choice, Resources, RunSize, choose, prepare_plan
from valueshare.runs import run_folder
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.launchers import Checked, ExecutionOptions
from valueshare.runs.plan import Plan
from valueshare.runs.planning import make_plan
from valueshare.runs.run_folder import stored_workers
from valueshare.runs.storage.locations import Url
from valueshare.runs.workers import local
from valueshare.runs.workers.cluster import Node
from valueshare.runs.workers.local import LocalLauncher, ProcessLauncher
from valueshare.runs.workers.ray import RayLauncher
from valueshare.schema import Backend

Cli = Callable[..., tuple[int, str, str]]
TINY = (
    *("--steps", "60", "--eval-interval", "30", "--eval-episodes", "1", "--eval-episode-limit", "10"),
    *("--hidden", "8", "--batch-size", "4", "--learning-starts", "10", "--seeds", "2"),
)


def size(agents: int, steps: int, populations: int = 1) -> RunSize:
    return RunSize(agents * steps, populations * steps, populations, agents)


AUTO = Resources()
LEFT_OUT: dict[str, Any] = {"device": "auto", "compiled": None}
# Name: (what is given, the run, cores, CUDA) -> (device, workers, compiled). The arithmetic of compiling: on a CPU it
# saves 0.55 ms per step of a process and 11 us per agent-step, and takes 40 s per process; on CUDA 0.55 ms per step,
# 2.9 us per agent-step, and 40 s.
CHOICES: dict[str, tuple[Resources, RunSize, int, bool, tuple[str, int, bool]]] = {
    "seconds": (AUTO, size(2, 60), 16, False, ("cpu", 1, False)),
    "just short": (AUTO, size(2, 49_999), 2, False, ("cpu", 1, False)),
    "just not short": (AUTO, size(2, 50_000), 2, False, ("cpu", 2, False)),
    "never more workers than agents": (AUTO, size(3, 50_000), 16, False, ("cpu", 3, False)),
    "one core": (AUTO, size(8, 50_000), 1, False, ("cpu", 1, False)),
    "LunarLander, 8 agents: 238 s of 80 s": (AUTO, size(8, 200_000), 2, False, ("cpu", 2, True)),
    "a third: 80.8 s of 80 s": (AUTO, size(8, 68_000), 2, False, ("cpu", 2, True)),
    "a little shorter: 79.6 s of 80 s": (AUTO, size(8, 67_000), 2, False, ("cpu", 2, False)),
    "in one process: 42.7 s of 40 s": (Resources(workers=Choice(1)), size(8, 67_000), 2, False, ("cpu", 1, True)),
    "three populations: 116.4 s of 120 s": (
        Resources(workers=Choice(1)),
        size(8, 67_000, 3),
        2,
        False,
        ("cpu", 1, False),
    ),
    "CUDA: 115 s of 40 s": (AUTO, size(8, 200_000), 16, True, ("cuda", 1, True)),
    "CUDA: 29 s of 40 s": (AUTO, size(8, 50_000), 16, True, ("cuda", 1, False)),
    "CUDA, many agents: 84 s of 40 s": (AUTO, size(2_040, 13_000), 16, True, ("cuda", 1, True)),
    "cpu is given": (Resources(Choice("cpu")), size(8, 50_000), 4, True, ("cpu", 4, False)),
    "cuda:1 is given": (Resources(Choice("cuda:1")), size(8, 200_000), 4, True, ("cuda:1", 1, True)),
    "workers are given": (Resources(workers=Choice(5)), size(8, 60), 2, False, ("cpu", 5, False)),
    "more workers than agents are given": (Resources(workers=Choice(9)), size(2, 60), 4, False, ("cpu", 2, False)),
    "compile is given": (Resources(compiled=Choice(True)), size(2, 60), 2, False, ("cpu", 1, True)),
    "no compile is given": (Resources(compiled=Choice(False)), size(8, 10**9), 2, False, ("cpu", 2, False)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_chosen(name: str) -> None:
    given, run, cores, cuda, wanted = CHOICES[name]
    chosen = choose(given, run, cores=cores, cuda=cuda)
    assert tuple(choice.value for choice in chosen) == wanted
    for before, after, left_out in zip(given, chosen, AUTO, strict=True):
        assert (after.reason == "as requested") == (before != left_out and before.value == after.value)


def test_the_line() -> None:
    chosen = choose(AUTO, size(16, 200_000), cores=2, cuda=False)
    assert chosen.line == (
        "resources: cpu (no CUDA device), 2 worker processes (2 cores), "
        "compiled (compile time about 40 s per process, expected to pay off over 3.2 million agent-steps)"
    )
    assert choose(Resources(workers=Choice(1)), size(2, 60), cores=2, cuda=True).line == (
        "resources: cuda (found), 1 process (as requested), "
        "not compiled (compile time about 40 s, not expected to pay off over 120 agent-steps)"
    )


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "available_cores", lambda: 4)


def prepared(plan: Plan, location: Url | None = None, **options: Any) -> resources.PreparedPlan:
    return prepare_plan(plan, ExecutionOptions(**options), None, location, try_compile=False)


@pytest.mark.usefixtures("four_cores")
def test_populations_are_split_for_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan("CartPole-v1", seeds=8, **LEFT_OUT)
    made = prepared(plan)
    assert isinstance(made.launcher, ProcessLauncher)
    assert [spec.agents.height for spec in made.plan.populations.values()] == [2, 2, 2, 2]
    assert (made.plan.device, made.plan.compiled, made.resources.workers.value) == ("cpu", False, 4)
    again = prepare_plan(plan, ExecutionOptions(), None, resuming=True, try_compile=False)  # one population stays one
    assert (again.resources.workers.value, len(again.plan.populations)) == (1, 1)
    # Room for two processes, not for four.
    each = memory.process_bytes(memory.estimate(made.plan.populations["population-0-0"]), torch.device("cpu"))
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(3 * each / memory.USABLE))
    made = prepared(plan)
    assert made.resources.workers == (2, "more do not fit into memory")
    assert len(made.plan.populations) == 2


@pytest.mark.parametrize(("gpus", "device"), [(0.0, "cpu (no CUDA device)"), (2.0, "cuda (found)")])
def test_a_cluster_chooses_by_its_nodes(gpus: float, device: str) -> None:
    options = LauncherOptions(launcher="ray")
    cluster = RayLauncher(
        None, options, [Node("a", "10.0.0.1", 8.0, 0.0, 1e11), Node("b", "10.0.0.2", 8.0, gpus, 1e11)]
    )
    plan = make_plan("CartPole-v1", seeds=8, steps=10**9, **LEFT_OUT)
    made = prepare_plan(plan, ExecutionOptions(launcher=options), cluster, resuming=True)  # nothing is split
    assert made.launcher is cluster
    assert made.resources.line == (
        f"resources: {device}, 1 process (per population, by Ray), not compiled (on Ray only with --compile)"
    )


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize("launcher", [LocalLauncher, ProcessLauncher])
def test_a_run_is_checked_once_before_it_starts(
    launcher: type[LocalLauncher] | type[ProcessLauncher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of workers starts a process; here the run is also compiled, for which it is checked first."""
    check, checked = launcher.check, []

    def count(self: Any, plan: Plan, execution: ExecutionOptions) -> Checked:
        checked.append(plan)
        return check(self, plan, execution)

    monkeypatch.setattr(launcher, "check", count)
    monkeypatch.setattr(starting, "run_plan", lambda *_: None)
    monkeypatch.setattr(resources, "compiler_problem", lambda *_, **__: None)
    monkeypatch.setattr(resources, "SHORT_RUN", 0 if launcher is ProcessLauncher else 10**9)
    monkeypatch.setitem(resources.SPEEDUPS, "cpu", resources.Speedup(0.0, 0.0, 1.0))
    valueshare.train("CartPole-v1", seeds=2, steps=60, out=tmp_path / "run", progress=False)
    assert len(checked) == 1


def network(shape: Any, k: float) -> nn.Module:
    return nn.Linear(shape.observation[0], shape.actions)


@pytest.mark.usefixtures("four_cores")
def test_what_only_this_process_can_do_stays_in_it() -> None:
    own = make_plan("CartPole-v1", seeds=8, network=network, **LEFT_OUT)
    at_address = prepared(make_plan("CartPole-v1", seeds=8, **LEFT_OUT), Url("memory://a/run"))
    for made, reason in ((prepared(own, network=network), "a custom network"), (at_address, "memory://")):
        assert isinstance(made.launcher, LocalLauncher)
        assert reason in made.resources.line
    two = LauncherOptions(workers=2)
    with pytest.raises(InvalidInput, match="a custom network trains in this process only"):
        valueshare.train("CartPole-v1", network=network, launcher=two, progress=False)
    with pytest.raises(InvalidInput, match="memory:// exists only in this process: leave out `workers`"):
        valueshare.train("CartPole-v1", out="memory://a/run", launcher=two, progress=False)


def test_without_a_compiler(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen here, a run continues without it; wanted by its author, it is refused."""
    monkeypatch.setenv("CXX", "/nonexistent")
    monkeypatch.setitem(resources.SPEEDUPS, "cpu", resources.Speedup(0.0, 0.0, 1.0))
    why = "nothing can be compiled here: there is no C++ compiler /nonexistent"
    code, out, err = cli("train", "--env", "CartPole-v1", *TINY, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert f"1 process (a short run), not compiled ({why})" in out
    assert json.loads((tmp_path / "run" / "config.json").read_text())["compile"] is False
    code, out, _ = cli("train", "--env", "CartPole-v1", *TINY, "--plan")
    assert (code, why in out) == (0, True)
    code, _, err = cli("train", "--env", "CartPole-v1", *TINY, "--compile", "--out", tmp_path / "other")
    assert (code, err.count("\n")) == (2, 1)
    assert "there is no C++ compiler /nonexistent): leave --compile out" in err
    assert not (tmp_path / "other").exists()


def test_a_compiled_run_is_resumed_where_there_is_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nonexistent")
    plan = make_plan("CartPole-v1", device="cpu", compiled=True)
    with pytest.raises(InvalidInput, match=r"this run is compiled: resume it where there is a compiler"):
        prepare_plan(plan, ExecutionOptions(), None, resuming=True)


def test_the_choice_is_printed_and_stored(tmp_path: Path, cli: Cli) -> None:
    run = tmp_path / "run"
    code, out, _ = cli("train", "--env", "CartPole-v1", *TINY, "--out", run)
    compiled = "not compiled (compile time about 40 s, not expected to pay off over 120 agent-steps)"
    line = f"1 process (a short run), {compiled}"
    assert (code, line in out) == (0, True)
    config = json.loads((run / "config.json").read_text())
    assert (config["device"], config["compile"]) == ("cpu", False)
    about = json.loads((run / "provenance.json").read_text())
    assert about["resources"] == {"device": "cpu", "workers": 1, "compile": False}
    code, out, _ = cli("train", "--env", "CartPole-v1", *TINY, "--plan")
    assert (code, line in out) == (0, True)


@pytest.mark.usefixtures("four_cores")
def test_threads_and_groups_are_named_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "available_cores", lambda: 4)

    def named(env: str, workers: int = 1, **options: Any) -> str:
        backend: Backend | None = "gymnasium" if env == "CartPole-v1" else None
        plan = make_plan(env, seeds=8, steps=10_000, device="cpu", compiled=False, backend=backend)
        made = prepared(plan, launcher=LauncherOptions(workers=workers), **options)
        return made.lines[0].partition("not compiled (as requested)")[2]

    assert named("Breakout-MinAtar") == ", up to 4 environment threads (4 cores)"
    assert named("Breakout-MinAtar", workers=2) == ", up to 2 environment threads per process (4 cores)"
    assert (
        named("Breakout-MinAtar", threads=3, groups=2)
        == ", up to 3 environment threads (as requested), 2 groups of agents (as requested)"
    )
    assert named("CartPole-v1") == ""  # Gymnasium's are stepped in a loop
    assert named("CartPole-v1", groups=9) == ", 8 groups of agents (9 requested, one per agent at most)"
    most = "up to 80 environment threads (1000000 requested, one per environment at most)"
    assert named("Breakout-MinAtar", threads=1_000_000) == f", {most}"
    with pytest.raises(InvalidInput, match="threads"):
        named("Breakout-MinAtar", threads="two")
    monkeypatch.setattr(resources, "prefers_processes", lambda *_: True)  # 16 threads: 4 groups of 4
    monkeypatch.setattr(resources, "available_cores", lambda: 16)
    monkeypatch.setattr(local, "available_cores", lambda: 16)
    words = "up to 16 environment threads (16 cores), 4 groups of agents (emulators in processes, one per group)"
    assert named("Breakout-MinAtar") == f", {words}"


def test_a_long_run_names_the_groups_of_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "prefers_processes", lambda *_: True)

    def named(agents: int = 8, threads: int = 16, steps: int = TRIAL_STEPS, **stored: int | None) -> str:
        plan = make_plan("Breakout-MinAtar", seeds=agents, steps=steps, device="cpu", compiled=False)
        execution = ExecutionOptions(threads=threads, launcher=LauncherOptions(workers=1))
        groups = {name.replace("_", "-"): count for name, count in stored.items()}
        made = prepare_plan(plan, execution, None, resuming=bool(stored), stored_groups=groups, try_compile=False)
        return made.lines[0].partition("environment threads (as requested), ")[2]

    tried = "by a trial at the start, emulators in processes"
    assert named() == f"2, 4 or 8 groups of agents ({tried})"
    assert named(agents=7) == f"2 or 4 groups of agents ({tried})"
    by_rule = "groups of agents (emulators in processes, one per group)"
    assert named(agents=3) == f"3 {by_rule}"  # as many as agents, and fewer than four
    assert named(steps=TRIAL_STEPS - 1) == f"4 {by_rule}"
    assert named(population_0=8) == "8 groups of agents (as stored)"
    assert named(population_0=None) == f"4 {by_rule}"  # of an earlier version


def test_what_a_trial_found_is_printed_and_kept(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (resources, engine):
        monkeypatch.setattr(module, "prefers_processes", lambda *_: True)
    monkeypatch.setattr(engine, "TRIAL_STEPS", 60)
    monkeypatch.setattr(group_trial, "measured_rates", lambda *_: {2: [1_000.0], 4: [2_000.0]})
    run, options = tmp_path / "run", ("--threads", "8", "--workers", "1")
    words = ("--env", "CartPole-v1", *TINY[:-2], "--seeds", "4", "--device", "cpu", "--no-compile")
    code, out, _ = cli("train", *words, *options, "--out", run)
    assert code == 0
    lines = out.splitlines()
    found = lines.index("groups of agents: 4, the fastest of a trial (2: 1,000, 4: 2,000 agent-steps/s)")
    assert "2 or 4 groups of agents (by a trial at the start" in out
    assert lines[found + 1].startswith("CartPole-v1 | population 1 of 1 | 4 agents at step 0")
    code, out, _ = cli("extend", run, "--steps", "90", *options)
    assert (code, "4 groups of agents (as stored)" in out, "a trial" in out) == (0, True, False)


def test_a_run_keeps_its_device(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is left out is the stored one, not the one that would be chosen now."""
    run = tmp_path / "run"
    words = ("train", "--env", "CartPole-v1", *TINY, "--out", run)
    assert cli(*words, "--device", "cpu", "--no-compile")[0] == 0
    monkeypatch.setattr(resources, "_has_cuda", lambda: True)
    code, _, err = cli(*words)
    assert (code, "holds this run, finished" in err) == (2, True)
    code, _, err = cli(*words, "--compile")
    assert (code, "compile is false in the existing run, true now" in err) == (2, True)


def test_no_more_workers_than_agents(tmp_path: Path, cli: Cli) -> None:
    code, out, _ = cli("train", "--env", "CartPole-v1", *TINY, "--workers", "9", "--plan", "--out", tmp_path / "run")
    assert (code, "2 worker processes (9 requested, one per agent at most)" in out) == (0, True)


@pytest.mark.usefixtures("four_cores")
def test_a_run_keeps_its_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in four populations: without what is stored, four cores would make four processes of it."""
    plan = prepared(make_plan("CartPole-v1", seeds=8, **LEFT_OUT)).plan

    def resumed(stored: int, workers: int = 0) -> Choice:
        options = ExecutionOptions(launcher=LauncherOptions(workers=workers))
        made = prepare_plan(plan, options, None, resuming=True, stored_workers=stored, try_compile=False)
        return made.resources.workers

    assert resumed(0).value == 4
    assert resumed(2) == (2, "as stored")
    assert resumed(1) == (1, "as stored")
    assert resumed(2, workers=3) == (3, "as requested")
    assert resumed(2, workers=9) == (4, "9 requested, one per population at most")
    each = memory.process_bytes(memory.estimate(plan.populations["population-0-0"]), torch.device("cpu"))
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(1.5 * each / memory.USABLE))
    assert resumed(2) == (1, "more do not fit into memory")


def test_the_stored_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(resumed: list[Any], **used: Any) -> int:
        about = {"resources": {"device": "cpu", **used}, "machine": {"cores": 8}, "resumed": resumed}
        (tmp_path / "provenance.json").write_text(json.dumps(about))
        return stored_workers(tmp_path)

    assert stored_workers(tmp_path) == 0
    monkeypatch.setattr(run_folder, "available_cores", lambda: 8)
    assert write([], workers=3) == 3
    assert write([], workers=20) == 20  # its author wanted more than cores
    assert write([{"resources": {"workers": 2}, "machine": {"cores": 8}}], workers=3) == 2  # the last ones
    assert write([5], workers=3) == 0  # damaged
    first, second = ({"started": f"2026-01-0{day}", "machine": {"cores": 8}} for day in (1, 2))
    both = {"resumed": [first | {"resources": {"workers": 4}}], "extended": [second | {"resources": {"workers": 5}}]}
    (tmp_path / "provenance.json").write_text(json.dumps({"started": "2026-01-00", **both}))
    assert stored_workers(tmp_path) == 5
    assert [write([], workers=workers) for workers in ("3", -1, True, None)] == [0] * 4
    assert write([], workers=1, launcher="ray") == 0
    monkeypatch.setattr(run_folder, "available_cores", lambda: 2)
    assert (write([], workers=2), write([], workers=3)) == (2, 0)  # a smaller machine


def test_resume_reads_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    valueshare.train("CartPole-v1", seeds=2, steps=60, out=run, progress=False, should_stop=lambda: True)
    about = json.loads((run / "provenance.json").read_text())
    about["resources"]["workers"] = 2
    (run / "provenance.json").write_text(json.dumps(about))

    def refuse(*_: Any, stored_workers: int, **__: Any) -> Any:
        raise InvalidInput(f"workers = {stored_workers}")

    monkeypatch.setattr(starting, "prepare_plan", refuse)
    with pytest.raises(InvalidInput, match="workers = 2"):
        valueshare.resume(run, progress=False)


def test_hints_name_what_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    plan = make_plan("CartPole-v1", device="cuda")
    assert resources._hints(plan) == [
        "hint: --tf32 makes matrix products faster on this GPU; results differ by rounding of about 1e-3"
    ]
    assert resources._hints(make_plan("CartPole-v1", device="cuda", tf32=True)) == []
    assert resources._hints(make_plan("CartPole-v1", device="cpu")) == []
    assert resources._hints(make_plan("CartPole-v1", device="cpu", tf32=True)) == [
        "note: --tf32 has no effect on a CPU"
    ]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert resources._hints(plan) == []
