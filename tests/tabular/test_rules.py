"""A rule that is not a learner is refused in the same words by a sweep and by a study."""

from typing import Any

import pytest

from valueshare import InvalidInput, gridworld, sweep
from valueshare.experiments.tabular_designs import TabularStudy, check_memory
from valueshare.tabular.rules import ALGORITHMS

BAD: list[tuple[dict[str, Any], str]] = [
    ({"algorithm": "dqn"}, "no tabular algorithm 'dqn': write one of q-learning, sarsa, expected-sar"),
    ({"k": ()}, "`k` is empty: write at least one value"),
    ({"k": (0.0, 2.0, 2.0)}, "`k`: 2 is given more than once; write each value once"),
    ({"k": (0.0, -1.0)}, "`k = -1`: the mean-scaling coefficient is a finite number >= 0"),
    ({"step_size": ()}, "`step_size` is empty: write at least one value"),
    ({"step_size": (0.1, 0.1)}, "`step_size`: 0.1 is given more than once; write each value once"),
    ({"step_size": (1.5,)}, "`step_size = 1.5`: write a number above 0 and up to 1"),
    ({"steps": 0}, "`steps = 0`: write a number >= 1"),
    ({"epsilon": 1.5}, "`epsilon = 1.5`: a probability lies in [0, 1]"),
    ({"step_size_power": 2.0}, "`step_size_power = 2`: it lies in [0, 1]"),
    ({"seeds": 10**12}, "are free: take fewer seeds or step sizes"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_refused_in_the_same_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as of_study:
        check_memory([TabularStudy(**options)])
    with pytest.raises(InvalidInput) as of_sweep:
        sweep(gridworld(), **options)
    assert message in str(of_study.value)
    assert message in str(of_sweep.value)


@pytest.mark.parametrize("seeds", [2**32, 2**80, range(2**40), range(2**80)])
def test_no_list_of_seeds_is_made_before_it_is_known_to_fit(seeds: Any) -> None:
    with pytest.raises(InvalidInput, match=r"rows of results need .* are free"):
        sweep(gridworld(), k=[0.0, 1.0], step_size=[0.1] * 1_000, seeds=seeds)


def test_every_algorithm_is_another_one() -> None:
    tables = [sweep(gridworld(), name, k=1.6, step_size=0.5, seeds=4, steps=2_000) for name in ALGORITHMS]
    assert len({tuple(table["norm_q"].to_list()) for table in tables}) == 3
