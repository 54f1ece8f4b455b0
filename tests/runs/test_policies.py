"""Trained agents as policies: their numbers against NumPy, their files without this package."""

import dataclasses
import logging
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from episodes import SHORT

import valueshare
from valueshare import InvalidInput
from valueshare.population.policy import Policy
from valueshare.runs.run import Run

K = 3.0
OBSERVATIONS = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("policies") / "run"
    algorithms = ["ib-dqn", "rdq", "ib-iqn"]  # agents 0 and 1, 2 and 3, 4 and 5
    sizes: dict[str, Any] = {"hidden": (8, 6), "acting_quantiles": 3, "quantiles": 4, "target_quantiles": 4}
    return valueshare.train("CartPole-v1", algorithms, k=K, seeds=2, out=out, **SHORT, **sizes)


def test_values_and_actions_by_hand(run: Run) -> None:
    w = {name: tensor.double().numpy() for name, tensor in run.weights(1).items()}

    def stream(observation: np.ndarray, name: str) -> np.ndarray:
        x = np.maximum(observation * w["torso.0.scale"] @ w["torso.1.weight"].T + w["torso.1.bias"], 0)
        hidden = np.maximum(x @ w[f"{name}.hidden.weight"].T + w[f"{name}.hidden.bias"], 0)
        outputs: np.ndarray = hidden @ w[f"{name}.output.weight"].T + w[f"{name}.output.bias"]
        return outputs

    policy = run.agent(1)
    z = stream(OBSERVATIONS, "head.stream")
    q = z + K * z.mean(-1, keepdims=True)
    np.testing.assert_allclose(policy.q_values(OBSERVATIONS), q, rtol=1e-4, atol=1e-5)
    assert policy(OBSERVATIONS).tolist() == q.argmax(-1).tolist()
    w = {name: tensor.double().numpy() for name, tensor in run.weights(2).items()}
    q = stream(OBSERVATIONS[0], "head.residual") + stream(OBSERVATIONS[0], "head.baseline")
    np.testing.assert_allclose(run.agent(2).q_values(OBSERVATIONS[0]), q, rtol=1e-4, atol=1e-5)
    action = run.agent(2)(OBSERVATIONS[0].tolist())
    assert (type(action), action) == (int, q.argmax())
    tensor = torch.from_numpy(OBSERVATIONS).requires_grad_()
    assert policy(tensor).tolist() == policy(OBSERVATIONS).tolist() == policy(OBSERVATIONS.tolist()).tolist()
    assert repr(policy) == "Policy(agent 1: ib-dqn, k=3 on CartPole-v1, 120 steps)"
    assert repr(run.agent(2)) == "Policy(agent 2: rdq on CartPole-v1, 120 steps)"


def test_a_quantile_network_is_evaluated_at_midpoints(run: Run) -> None:
    policy = run.agent(5)
    tau = torch.tensor([1 / 6, 3 / 6, 5 / 6]).expand(5, -1)
    quantiles = policy.network(torch.from_numpy(OBSERVATIONS), tau)  # [B, N, A]
    np.testing.assert_allclose(policy.q_values(OBSERVATIONS), quantiles.mean(1), rtol=1e-5)


def test_the_best_agent_is_that_of_the_highest_last_score(run: Run) -> None:
    last = run.records.filter(step=120).sort("agent")["score"].to_list()
    assert run.best().number == last.index(max(last))
    assert run.best("ib-iqn", k=K).number == 4 + int(last[5] > last[4])
    assert run.best("IB_IQN").number == run.best("ib-iqn").number
    with pytest.raises(InvalidInput, match=r"`k = 7`: write one of 3$"):
        run.best("ib-dqn", k=7)
    with pytest.raises(InvalidInput, match=r"`algorithm = 'dqn'`: write one of ib-dqn, rdq, ib-iqn"):
        run.best("dqn")
    with pytest.raises(InvalidInput, match=r"^`k = 'n'`, the 2 actions of CartPole-v1: write one of 3$"):
        run.best("ib-dqn", k="n")
    two_actions = dataclasses.replace(run, agents=run.agents.with_columns(k=pl.col("k") - (pl.col("agent") == 1)))
    assert (two_actions.best("ib-dqn", k="n").number, two_actions.best("ib-dqn", k="N").number) == (1, 1)
    zero = dataclasses.replace(run, agents=run.agents.with_columns(k=pl.col("k") * (pl.col("agent") != 0)))
    assert [zero.best("dqn").number, zero.best("dqn", k=0).number, zero.best("ib-dqn", k=0).number] == [0, 0, 0]
    with pytest.raises(InvalidInput, match=r"^`algorithm = 'ppo'`: write one of ib-dqn, rdq, ib-iqn, dqn$"):
        zero.best("ppo")
    with pytest.raises(InvalidInput, match=r"^dqn has no k = 4 in this run: write ib-dqn, or k = 0$"):
        zero.best("dqn", k=4)
    plain = dataclasses.replace(zero, agents=zero.agents.with_columns(pl.col("algorithm").str.strip_prefix("ib-")))
    assert [plain.best("ib-dqn", k=0).number, plain.best("dqn", k=0).number] == [0, 0]
    two = dataclasses.replace(run, agents=run.agents.with_columns(env=pl.format("env-{}", pl.col("agent") % 2)))
    with pytest.raises(InvalidInput, match="several environments do not compare: give env, env-0 or env-1"):
        two.best()


def test_agents_that_diverged_are_not_the_best(run: Run) -> None:
    best = run.best().number

    def with_diverged(*agents: int) -> Run:
        step = pl.when(pl.col("agent").is_in(agents) & (pl.col("step") > 0)).then(60)
        return dataclasses.replace(run, records=run.records.with_columns(diverged_at=step.cast(pl.Int64)))

    without = run.records.filter((pl.col("step") == 120) & (pl.col("agent") != best))
    assert with_diverged(best).best().number == without.sort("score", "agent", descending=[True, False])["agent"][0]
    assert "finished, 1 agent diverged)" in repr(with_diverged(best))
    with pytest.raises(InvalidInput, match="every agent to choose from diverged: train with a smaller `step_size`"):
        with_diverged(*range(run.agents.height)).best()


def test_agents_without_a_score_in_their_last_evaluation_are_not_the_best(run: Run) -> None:
    best = run.best().number
    before = (pl.col("agent") == best) & (pl.col("step") == 60)
    score = pl.when(before).then(1e6).when((pl.col("agent") != best) | (pl.col("step") < 120)).then("score")
    older = dataclasses.replace(run, records=run.records.with_columns(score=score))
    last = older.records.filter(pl.col("step") == 120, pl.col("agent") != best)
    assert older.best().number == last.sort("score", "agent", descending=[True, False])["agent"][0]
    none = dataclasses.replace(run, records=run.records.with_columns(score=pl.when(pl.col("step") < 120).then("score")))
    with pytest.raises(InvalidInput, match="no agent to choose from has a score in its last evaluation"):
        none.best()


def test_files_hold_the_same_values_without_this_package(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "seen.npy", OBSERVATIONS)
    plain = run.agent(0).export(str(tmp_path / "new" / "folder" / "plain.pt"))  # as `play` makes that of its video
    assert plain == tmp_path / "new" / "folder" / "plain.pt"
    plain.rename(tmp_path / "plain.pt")
    assert run.agent(4).export(tmp_path / "quantiles.pt2") == tmp_path / "quantiles.pt2"
    program = """
import sys
sys.modules["valueshare"] = None
import numpy as np, torch
seen = torch.from_numpy(np.load("seen.npy"))
np.save("plain.npy", torch.jit.load("plain.pt")(seen).detach().numpy())
np.save("quantiles.npy", torch.export.load("quantiles.pt2").module()(seen).detach().numpy())
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=300)
    for number, name in ((0, "plain"), (4, "quantiles")):
        expected = run.agent(number).q_values(OBSERVATIONS)
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(
    not all(map(find_spec, ("onnx", "onnxruntime", "onnxscript"))),
    reason="onnx, onnxruntime or onnxscript is not installed: make test-integrations",
)
def test_onnx_in_its_runtime(run: Run, tmp_path: Path) -> None:
    runtime: Any = import_module("onnxruntime")
    for number in (0, 2, 4):  # IB-DQN, RDQ, IB-IQN
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run.agent(number).export(folder / "agent.onnx") == folder / "agent.onnx"
        assert [path.name for path in folder.iterdir()] == ["agent.onnx"]  # weights are not in a second file
        session = runtime.InferenceSession(folder / "agent.onnx")
        for batch in (OBSERVATIONS, OBSERVATIONS[:1]):
            (q,) = session.run(["q"], {"observation": batch})
            np.testing.assert_allclose(q, run.agent(number).q_values(batch), rtol=1e-5, atol=1e-6)


def test_what_cannot_be_is_said_in_one_line(run: Run, tmp_path: Path) -> None:
    policy = run.agent(0)
    with pytest.raises(InvalidInput, match=r"'agent.bin' has no known suffix: end it with \.onnx"):
        policy.export("agent.bin")
    with pytest.raises(InvalidInput, match=r"observation of shape \[3\]: this agent sees \[4\], or a batch"):
        policy([0.0, 1.0, 2.0])
    with pytest.raises(InvalidInput, match=r"as env\.reset\(\) returns it: give the first"):
        policy((OBSERVATIONS[0], {}))
    for what in (None, {"a": 1}, "abcd", [[0.0], [1.0, 2.0]]):
        with pytest.raises(InvalidInput, match=r"not an observation .*: give an array of shape \[4\]$"):
            policy(what)
    with pytest.raises(InvalidInput, match="not finite"):
        policy([0.0, 1.0, np.nan, 0.0])
    (tmp_path / "folder.pt").mkdir()
    (tmp_path / "folder.pt" / "file").touch()
    with pytest.raises(InvalidInput, match=r"cannot write to .*file/new: not a directory"):
        policy.export(tmp_path / "folder.pt" / "file" / "new" / "agent.pt")
    with pytest.raises(InvalidInput, match=r"folder\.pt is a folder: write the name of a file"):
        policy.export(tmp_path / "folder.pt")
    with pytest.raises(InvalidInput, match="path is given as NoneType: write the name of a file"):
        policy.export(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="`k = 'x'`: write a number, or 'n'"):
        run.best(k="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"there is no agent 9 .*its agents are 0 to 5"):
        run.agent(9)
    if find_spec("onnxscript") is None:
        with pytest.raises(InvalidInput, match=r"pip install .*\[onnx\]"):
            policy.export(tmp_path / "new" / "agent.onnx")  # whose folder is not left behind
        assert [path.name for path in tmp_path.iterdir()] == ["folder.pt"]


def test_an_export_is_silent_about_torchvision_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = logging.getLogger("torch.onnx._internal.exporter._registration")

    def export(*_: object, **__: object) -> None:
        exporter.warning("torchvision is not installed. Skipping %s", "torchvision::nms")
        exporter.warning("another")

    monkeypatch.setattr("torch.onnx.export", export)
    exporter.addHandler(caplog.handler)  # loggers of PyTorch pass nothing on to those above
    monkeypatch.setattr(exporter, "propagate", False)
    try:
        run.agent(0).export(tmp_path / "agent.onnx")
        assert [record.msg for record in caplog.records if record.name == exporter.name] == ["another"]
        assert exporter.filters == []
    finally:
        exporter.removeHandler(caplog.handler)


def test_an_export_is_silent_about_one_warning_of_pytorch_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = "`isinstance(treespec, LeafSpec)` is deprecated, use `isinstance(treespec, TreeSpec) and ...` instead."

    def export(*_: object, **__: object) -> None:
        for text, category in ((leaf, FutureWarning), ("another", FutureWarning), (leaf, UserWarning)):
            warnings.warn(text, category, stacklevel=1)

    monkeypatch.setattr("torch.onnx.export", export)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run.agent(0).export(tmp_path / "agent.onnx")
    assert [(str(w.message), w.category) for w in seen] == [("another", FutureWarning), (leaf, UserWarning)]


def with_observations(run: Run, **changed: Any) -> Policy:
    """Agent 0 as if its environment gave other observations."""
    policy = run.agent(0)
    env = dataclasses.replace(policy.population.env, **changed)
    policy.population = dataclasses.replace(policy.population, env=env)
    return policy


def test_scaled_images_are_refused(run: Run) -> None:
    policy = with_observations(run, observation_dtype=np.dtype(np.uint8))
    for same in ([0, 255, 3, 1], [0.0, 255.0, 3.0, 1.0], torch.tensor([0, 255, 3, 1], dtype=torch.bfloat16)):
        np.testing.assert_array_equal(policy.q_values(same), policy.q_values(np.array([0, 255, 3, 1], np.uint8)))
    for changed in ([0.5, 0.5, 0.9, 1.0], [0.0, np.nan, 0.0, 0.0], [300, 0, 0, 0], [-1, 0, 0, 0]):
        with pytest.raises(InvalidInput, match="observations are whole numbers 0 to 255: do not scale them"):
            policy(changed)
    policy = with_observations(run, observation_dtype=np.dtype(np.bool_))
    assert policy([1.0, 0.0, 1.0, 0.0]) == policy([True, False, True, False])
    with pytest.raises(InvalidInput, match="observations are whole numbers 0 to 1: do not scale them"):
        policy([0.5, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "what",
    [
        torch.ones(4).to_sparse(),
        [10**400] * 4,
        np.ones(4, complex),
        torch.ones(4, dtype=torch.complex64).conj(),
        ["1", "2", "3", "4"],
        [[0, 1], [2]],
    ],
    ids=["sparse", "long", "complex", "conjugate", "texts", "ragged"],
)
def test_what_is_no_array_of_numbers_is_said_in_one_line(run: Run, what: Any) -> None:
    of_bytes = with_observations(run, observation_dtype=np.dtype(np.uint8))
    for policy in (run.agent(0), of_bytes):
        with pytest.raises(InvalidInput, match=r"^not an observation \(.+\): give an array of shape \[4\]$"):
            policy(what)
    with pytest.raises(InvalidInput, match=r"^not an observation \(.+\): its states are the whole numbers 5 to 8$"):
        with_observations(run, first_state=5, observation_dtype=np.dtype(np.bool_))(what)


def test_tensors_of_16_bits(run: Run) -> None:
    policy, halves = run.agent(0), torch.tensor([0.5, -1.0, 0.25, 2.0])
    np.testing.assert_array_equal(policy.q_values(halves.bfloat16()), policy.q_values(halves))
