"""Results as a report needs them: k = n is one algorithm on environments that differ in their numbers of actions."""

import polars as pl
import pytest

from valueshare.analysis.importers.results import Results, Source
from valueshare.report.data import ReportData, report_data
from valueshare.report.figure_registry import draw_figures
from valueshare.report.findings import pairs
from valueshare.report.page.about import agent_rows
from valueshare.runs.launcher_options import parse_shard
from valueshare.runs.plan import difference, from_config, to_config
from valueshare.runs.planning import make_plan
from valueshare.runs.shards import shard_plan

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
ACTIONS = {PONG: 6, BREAKOUT: 4}


def results(ks: dict[str, list[float]], actions: dict[str, int]) -> Results:
    """DQN, and IB-DQN with these k by environment: two seeds and two evaluations each."""
    rows = [
        {"env": env, "algorithm": "ib-dqn" if k else "dqn", "k": k, "seed": seed, "step": step, "score": k + seed}
        for env, own in ks.items()
        for k in (0.0, *own)
        for seed in (0, 1)
        for step in (100, 200)
    ]
    return Results(pl.DataFrame(rows), (), (Source("run", "run", len(rows) // 2, {"actions": actions}, None),))


def labels(data: ReportData) -> list[str]:
    return [variant.style.label for variant in data.variants]


def test_k_of_the_number_of_actions_is_one_algorithm() -> None:
    read = results({PONG: [1.0, 6.0], BREAKOUT: [1.0, 4.0]}, ACTIONS)
    data = report_data(read, resamples=20)
    assert labels(data) == ["DQN", "IB-DQN(1)", "IB-DQN(n)"]
    plain, layered = pairs(data, ["ib-dqn:n,dqn"])[0][::-1]
    assert data.pair == (plain, layered)  # as in the paper, of several k it is n
    iqm = data.curves.table.filter(pl.col("step") == 200)
    assert iqm["games"].to_list() == [2, 2, 2]  # no algorithm lacks a game
    assert not any("lacks" in note for note in data.curves.notes)
    for drawn in draw_figures(data, ["iqm", "performance-profile", "learning-curves"]):
        assert not any("lacks" in note for note in drawn.notes)
    page = agent_rows(data)  # every agent has its own number there
    shown = {(row[0], row[page["columns"].index("k")]) for row in page["rows"]}
    assert shown == {
        ("Pong", 0.0),
        ("Pong", 1.0),
        ("Pong", 6.0),
        ("Breakout", 0.0),
        ("Breakout", 1.0),
        ("Breakout", 4.0),
    }


@pytest.mark.parametrize(
    ("ks", "actions", "wanted"),
    [
        ({PONG: [6.0], BREAKOUT: [4.0]}, {PONG: 6}, ["IB-DQN(4)", "IB-DQN(6)"]),  # one number is not known
        ({PONG: [6.0], BREAKOUT: [5.0]}, ACTIONS, ["IB-DQN(5)", "IB-DQN(6)"]),  # 5 is not a number of actions
        ({PONG: [4.0, 6.0], BREAKOUT: [4.0]}, ACTIONS, ["IB-DQN(4)", "IB-DQN(6)"]),  # k = 4 is on both
        ({PONG: [6.0]}, ACTIONS, ["IB-DQN(6)"]),
        ({PONG: [6.0], BREAKOUT: [4.0]}, {PONG: 10**400, BREAKOUT: True}, ["IB-DQN(4)", "IB-DQN(6)"]),  # damaged
    ],
)
def test_other_k_keep_their_numbers(ks: dict[str, list[float]], actions: dict[str, int], wanted: list[str]) -> None:
    assert labels(report_data(results(ks, actions), resamples=20))[1:] == wanted


def test_the_numbers_of_actions_are_stored_with_a_run() -> None:
    plan = make_plan(["CartPole-v1", "Acrobot-v1"], k="n", seeds=2)
    stored = to_config(plan)
    assert stored["actions"] == {"CartPole-v1": 2, "Acrobot-v1": 3}
    assert from_config(stored, plan.agents).actions == plan.actions
    assert shard_plan(plan, parse_shard("2/2")).actions == {"Acrobot-v1": 3}
    older = {name: value for name, value in stored.items() if name != "actions"}
    assert difference(older, stored) is None


def test_a_learner_is_not_named_after_a_setting_that_it_does_not_read() -> None:
    """Only RDQ reads beta. DQN was run with one beta, or with two that tell its runs apart."""

    def data(dqn_betas: list[float], step_sizes: list[float]) -> ReportData:
        rows = [
            {"env": PONG, "algorithm": name, "k": 0.0, "step_size": size, "beta": beta, "seed": seed, "score": seed}
            for name, betas in (("dqn", dqn_betas), ("rdq", [0.1, 0.2]))
            for size in step_sizes
            for beta in betas
            for seed in (0, 1)
        ]
        table = pl.DataFrame(rows).with_columns(pl.col("score").cast(pl.Float64), step=100)
        return report_data(Results(table, (), ()), resamples=20)

    one = data([0.1], [0.5])
    assert labels(one) == ["DQN", "RDQ with beta 0.1", "RDQ with beta 0.2"]
    assert [(x.style.label, y.style.label) for x, y in pairs(one)] == [
        ("RDQ with beta 0.1", "DQN"),
        ("RDQ with beta 0.2", "DQN"),
    ]
    swept = data([0.1], [0.5, 0.7])  # each at the step size of the other
    assert {(x.name.settings[0], y.name.settings[0]) for x, y in pairs(swept) if x.algorithm.startswith("rdq")} == {
        ("step_size=0.5", "step_size=0.5"),
        ("step_size=0.7", "step_size=0.7"),
    }
    assert labels(data([0.1, 0.2], [0.5]))[:2] == ["DQN with beta 0.1", "DQN with beta 0.2"]
