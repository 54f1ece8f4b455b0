"""The results of `train`: the table, the folder, the records."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import valueshare
from valueshare.errors import InvalidInput
from valueshare.nn.torsos import NetworkShape
from valueshare.population.phase import records_schema
from valueshare.population.presets import cartpole, lunarlander
from valueshare.runs.planning import make_plan
from valueshare.runs.workers import local


def test_the_run_folder(uninterrupted: Path) -> None:
    names = {path.name for path in uninterrupted.iterdir()}
    assert names == {
        *("agents.parquet", "config.json", "provenance.json", "records", "checkpoints"),
        *("progress", ".lock"),
    }
    agents = pl.read_parquet(uninterrupted / "agents.parquet")
    # ib-dqn: 2 k x 2 seeds; double-dqn has no k: 2 seeds.
    assert agents.select("agent", "algorithm", "k", "seed").rows() == [
        (0, "ib-dqn", 0.0, 0),
        (1, "ib-dqn", 0.0, 1),
        (2, "ib-dqn", 4.0, 0),
        (3, "ib-dqn", 4.0, 1),
        (4, "double-dqn", 0.0, 0),
        (5, "double-dqn", 0.0, 1),
    ]
    records = pl.read_parquet(uninterrupted / "records/*.parquet")
    assert records.schema == records_schema()
    assert records.height == 6 * 5  # at steps 0, 50, 100, 150, 200
    config = json.loads((uninterrupted / "config.json").read_text())
    assert config["format"] == 4
    assert config["settings"]["CartPole-v1"]["batch_size"] == 8
    assert config["settings"]["CartPole-v1"]["loss"] == cartpole().settings.loss


def test_provenance_has_no_paths_and_no_environment(uninterrupted: Path) -> None:
    text = (uninterrupted / "provenance.json").read_text()
    about = json.loads(text)
    assert about["command"].startswith("valueshare train --env CartPole-v1 --algorithm ib-dqn")
    assert "--out" not in about["command"]
    assert {"valueshare", "commit", "machine", "libraries", "started"} <= about.keys()
    for secret in (str(uninterrupted), str(Path.home()), str(Path.cwd()), os.environ["PATH"]):
        assert secret not in text


def test_the_command_of_the_provenance_has_every_digit(
    tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    ks = [0.0, 0.1234567890123, 18.0, 1234567.0, 1e22, 1 / 3]
    out = tmp_path / "run"
    words = ["--steps", "20", "--eval-interval", "20", "--eval-episode-limit", "2", "--seeds", "1"]
    code, _, err = cli("train", "--env", "CartPole-v1", *words, "--k", *ks, "--out", out)
    assert code == 0, err
    command = json.loads((out / "provenance.json").read_text())["command"]
    _, _, rest = command.partition(" --k ")
    written = rest[: rest.index(" --")].split()
    assert written[:4] == ["0", "0.1234567890123", "18", "1234567"]
    assert [float(word) for word in written] == ks


def test_the_command_of_the_provenance_makes_the_same_plan(
    uninterrupted: Path, tmp_path: Path, cli: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "run_population", lambda *task: False)  # the plan is stored before training begins
    words = json.loads((uninterrupted / "provenance.json").read_text())["command"].split()
    cli(*words[1:], "--out", tmp_path / "again")
    stored = [json.loads((f / "config.json").read_text()) for f in (uninterrupted, tmp_path / "again")]
    assert stored[0] == stored[1]


def test_a_run_can_be_opened(uninterrupted: Path) -> None:
    run = valueshare.open_run(uninterrupted)
    assert run.finished
    assert run.records.height == 30
    scale = {agent: run.weights(agent) for agent in (0, 2)}
    assert scale[0].keys() == scale[2].keys()


def test_a_run_shows_where_it_is_and_its_last_scores(uninterrupted: Path) -> None:
    run = valueshare.open_run(uninterrupted)
    head, *scores = repr(run).splitlines()
    assert head == f"Run({str(uninterrupted)!r}, 6 agents, finished); score of the last evaluation:"
    assert [line.partition(": ")[0] for line in scores] == [
        *("  CartPole-v1 ib-dqn k=0", "  CartPole-v1 ib-dqn k=4"),
        *("  CartPole-v1 double-dqn",),
    ]
    last = run.records.filter(pl.col("step") == 200).join(run.agents, on="agent")
    mean = np.mean(last.filter(algorithm="double-dqn")["score"].to_numpy())
    assert scores[-1].endswith(f": {mean:.1f}")
    run.failures = {"population-1": "its worker was lost"}
    run.finished = False
    assert "not finished, 1 population failed)" in repr(run)


def test_a_run_names_the_step_of_policies_that_is_not_that_of_its_scores(uninterrupted: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    assert "policies" not in repr(valueshare.open_run(folder))
    newest = sorted(folder.glob("checkpoints/population-1/state-*"))[-1]
    content = bytearray(newest.read_bytes())
    content[-2:] = bytes(255 - byte for byte in content[-2:])
    newest.write_bytes(content)
    run = valueshare.open_run(folder)
    *_, last = repr(run).splitlines()
    assert last == "policies of CartPole-v1 are of step 150, scores of step 200"
    agents = run.agents.filter(algorithm="double-dqn")["agent"]
    assert [run.agent(agents[0]).steps, run.agent(0).steps] == [150, 200]
    for state in folder.glob("checkpoints/*/state-*"):
        state.write_bytes(b"")
    assert "policies" not in repr(valueshare.open_run(folder))  # there are none


def test_presets_are_by_environment_and_settings_replace_them() -> None:
    plan = make_plan(["LunarLander-v3", "CartPole-v1"], "dqn", seeds=1, batch_size=32)
    for env, preset in {"LunarLander-v3": lunarlander(), "CartPole-v1": cartpole()}.items():
        assert plan.settings[env] == dataclasses.replace(preset.settings, batch_size=32)
        own = plan.agents.filter(pl.col("env") == env).row(0, named=True)
        assert own["step_size"] == preset.agent_settings.step_size
    assert plan.agents["agent"].to_list() == [0, 1]
    assert [spec.env for spec in plan.populations.values()] == ["LunarLander-v3", "CartPole-v1"]


def test_seeds_and_lists_are_crossed() -> None:
    plan = make_plan("CartPole-v1", "ib-dqn", k=[0, 2], seeds=2, first_seed=5, step_size=[0.1, 0.2], discount=0.5)
    rows = plan.agents.select("k", "step_size", "seed", "discount").rows()
    assert rows == [(k, step_size, seed, 0.5) for k in (0, 2) for step_size in (0.1, 0.2) for seed in (5, 6)]
    assert make_plan("CartPole-v1", seeds=[3, 9]).agents["seed"].to_list() == [3, 9]


def test_the_phase_is_the_evaluation_interval_unless_given() -> None:
    assert make_plan("CartPole-v1", eval_interval=700).settings["CartPole-v1"].checkpoint_interval == 700
    given = make_plan("CartPole-v1", eval_interval=700, checkpoint_interval=100).settings["CartPole-v1"]
    assert (given.eval_interval, given.checkpoint_interval) == (700, 100)
    by_steps = make_plan("CartPole-v1", eval_timesteps=500).settings["CartPole-v1"]
    assert (by_steps.eval_episodes, by_steps.eval_timesteps) == (0, 500)


class Linear(nn.Module):
    """A network of one's own: q = W·observation."""

    def __init__(self, shape: NetworkShape, k: float) -> None:
        super().__init__()
        self.values = nn.Linear(shape.observation[0], shape.actions, bias=False)

    def forward(self, observation: Tensor) -> Tensor:
        values: Tensor = self.values(observation)
        return values


def test_a_network_of_ones_own(tmp_path: Path, tiny: dict[str, Any]) -> None:
    tiny |= {"seeds": 2, "network": Linear}
    folder = tmp_path / "own"
    ticks = iter(range(10**6))
    run = valueshare.train("CartPole-v1", "dqn", out=folder, should_stop=lambda: next(ticks) > 50, **tiny)
    assert not run.finished
    with pytest.raises(valueshare.InvalidInput, match=r"a custom network.*Linear"):
        valueshare.resume(folder, progress=False)
    run = valueshare.resume(folder, network=Linear, progress=False)
    assert run.finished
    whole = valueshare.train("CartPole-v1", "dqn", out=tmp_path / "whole", **tiny)
    assert run.records.equals(whole.records)
    module = Linear(NetworkShape((4,), 2, (8,)), 0.0)
    module.load_state_dict(run.weights(1))
    assert torch.equal(module.values.weight, whole.weights(1)["values.weight"])


def test_diverged_agents_are_counted_at_the_end(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    words = [
        "train",
        "--env",
        "CartPole-v1",
        "--algorithm",
        "dqn",
        "--seeds",
        "2",
        "--steps",
        "200",
    ]
    words += ["--step-size", "0.001", "1e30", "--learning-starts", "20", "--hidden", "8"]
    words += ["--eval-episodes", "1", "--eval-episode-limit", "20", "--out", str(tmp_path / "run")]
    code, out, _ = cli(*words)
    assert code == 0
    assert "2 of 4 agents diverged" in out
    records = valueshare.open_run(tmp_path / "run").records
    last = records.filter(pl.col("step") == 200)
    assert last["diverged_at"].is_not_null().to_list() == [False, False, True, True]


def test_the_plan_alone_writes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Callable[..., tuple[int, str, str]],
    small: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = cli(*small, "--plan")
    assert code == 0
    assert "6 agents in 2 populations, 200 steps each" in out
    assert "  --batch-size 8\n" in out
    assert "memory: " in out
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_refused(
    uninterrupted: Path,
    tmp_path: Path,
    cli: Callable[..., tuple[int, str, str]],
    small: list[str],
) -> None:
    code, _, err = cli(*small, "--out", uninterrupted)
    assert (code, err.count("\n")) == (2, 1)
    assert "holds this run, finished" in err
    code, _, err = cli(*small[:-1], "50", "--out", uninterrupted)
    assert (code, err.count("\n")) == (2, 1)
    assert "--target-update-interval of CartPole-v1 is 40 in the existing run, 50 now" in err
    code, _, err = cli(*small, "--first-seed", "7", "--out", uninterrupted)
    assert "(--seeds is 0 to 1 in the existing run, 7 to 8 now): choose another --out" in err
    code, _, err = cli(*small, "--step-size", "0.1", "--out", uninterrupted)
    assert "(--step-size is 0.0025 in the existing run, 0.1 now)" in err
    (tmp_path / "note.txt").write_text("mine")
    code, _, err = cli(*small, "--out", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_weights_are_those_of_the_newest_intact_checkpoint(tmp_path: Path, uninterrupted: Path) -> None:
    folder = shutil.copytree(uninterrupted, tmp_path / "run")
    states = folder / "checkpoints" / "population-0"
    run = valueshare.open_run(str(folder))  # a string will do
    name = min(name for name in run.weights(0) if name.endswith(".weight"))
    expected = {
        phase: load_file(states / f"state-{phase:06d}.safetensors")[f"online.parameters.{name}"] for phase in (2, 3)
    }
    # Written by a phase that was cut off before its manifest: not finished.
    shutil.copy(states / "state-000002.safetensors", states / "state-000004.safetensors")
    assert torch.equal(run.weights(0)[name], expected[3][0])
    assert not torch.equal(expected[2][0], expected[3][0])
    (states / "state-000003.safetensors").write_bytes(b"damaged")
    assert torch.equal(run.weights(0)[name], expected[2][0])
    (states / "state-000002.safetensors").unlink()
    with pytest.raises(InvalidInput, match="is intact"):
        run.weights(0)
