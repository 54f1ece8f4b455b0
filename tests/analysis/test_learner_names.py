"""Names of learners have their settings and their run, and only names that do are taken apart."""

import polars as pl
import pytest

from valueshare.analysis.learner_names import RUN, LearnerName, add_to_names, rename_learners


@pytest.mark.parametrize(
    ("text", "name", "label"),
    [
        ("ib-dqn", LearnerName("ib-dqn"), "IB-DQN(4)"),
        ("ib-dqn step_size=0.001", LearnerName("ib-dqn", ("step_size=0.001",)), "IB-DQN(4) with step size 0.001"),
        (
            "rdq step_size=0.1 beta=0.5 run=my/first",
            LearnerName("rdq", ("step_size=0.1", "beta=0.5"), "my/first"),
            "RDQ(4) with step size 0.1 and beta 0.5, run my/first",
        ),
        ("Rainbow DQN run=1", LearnerName("Rainbow DQN", run="1"), "Rainbow DQN(4), run 1"),
        ("dqn (mine)", LearnerName("dqn (mine)"), "dqn (mine)(4)"),
        ("ppo lambda=0.9", LearnerName("ppo lambda=0.9"), "ppo lambda=0.9(4)"),  # no setting of ours
        ("dqn run=1 beta=2", LearnerName("dqn run=1", ("beta=2",)), "dqn run=1(4) with beta 2"),  # the run is last
    ],
)
def test_names_are_taken_apart_and_put_together(text: str, name: LearnerName, label: str) -> None:
    assert LearnerName.parse(text) == name
    assert str(name) == text
    assert name.label(4.0) == label


def test_parts_of_names() -> None:
    name = LearnerName.parse("ib-iqn step_size=0.1 run=first")
    assert name.is_quantile
    assert not LearnerName.parse("ib-dqn step_size=0.1").is_quantile
    assert str(name.without_layer) == "iqn step_size=0.1 run=first"
    assert str(name.without_settings) == "ib-iqn run=first"
    assert str(name.without_run) == "ib-iqn step_size=0.1"
    assert name.details == ["step size 0.1", "run first"]
    assert name.without_settings.details == ["run first"]  # in captions of figures of one run
    assert not LearnerName("ib-iqn").details


def test_columns_are_added_to_names_where_they_are_known() -> None:
    table = pl.DataFrame({"algorithm": ["dqn", "ppo"], "step_size": [0.5, None], RUN: ["a", "b"]})
    named = add_to_names(table, ["step_size", RUN])
    assert named["algorithm"].to_list() == ["dqn step_size=0.5 run=a", "ppo run=b"]
    assert rename_learners(named, lambda name: name.without_run).to_list() == ["dqn step_size=0.5", "ppo"]
