"""The linear schedule against its arithmetic."""

import pytest
import torch

from valueshare.population.act import linear

START, END = torch.tensor([1.0, 1.0, 0.5]), torch.tensor([0.05, 0.01, 0.5])
STEPS = torch.tensor([10_000, 1_000_000, 7])


@pytest.mark.parametrize("as_tensor", [False, True])
def test_each_agent_has_its_own_line(as_tensor: bool) -> None:
    def at(t: int) -> list[float]:
        return linear(START, END, STEPS, torch.tensor(t) if as_tensor else t).tolist()

    assert at(0) == START.tolist()
    # 1 - 0.95·0.5 = 0.525; 1 - 0.99·0.005 = 0.99505
    assert at(5_000) == pytest.approx([0.525, 0.99505, 0.5], abs=1e-7)
    assert at(1_000_000) == END.tolist()  # to the bit, not only nearly
    assert at(50_000_000) == END.tolist()


def test_no_steps_means_the_end_from_the_first_step_on() -> None:
    none = torch.zeros(3, dtype=torch.int64)
    assert linear(START, END, none, 1).tolist() == END.tolist()
    assert torch.isfinite(linear(START, END, none, 0)).all()


def test_one_time_an_agent() -> None:
    t = torch.tensor([10_000, 0, 3])
    assert linear(START, END, STEPS, t).tolist() == [END[0], 1.0, 0.5]
