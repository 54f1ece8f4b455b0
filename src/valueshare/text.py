"""Text for people: counts with their nouns, exact and plain numbers, and the names of algorithms."""

from collections.abc import Sequence
from decimal import Decimal

# In the order of the paper's table.
ALGORITHM_NAMES = {
    "dqn": "DQN",
    "dueling-dqn": "Dueling DQN",
    "ib-dqn": "IB-DQN",
    "rdq": "RDQ",
    "double-dqn": "Double DQN",
    "ib-double-dqn": "IB-Double DQN",
    "iqn": "IQN",
    "ib-iqn": "IB-IQN",
}


def how_many(count: int, what: str) -> str:
    """1 agent, 2,040 agents."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def exact(number: float) -> str:
    """A number that reads back as the very same: 4.0 is 4, and no digit is lost."""
    return repr(float(number)).removesuffix(".0")


def plain_numbers(values: Sequence[float], digits: int = 3) -> list[str]:
    """Numbers without an exponent, 0.00003 and 32768: whole ones exact, others with as many digits as tell them apart.

    At least `digits` are kept, and zeros at the end are not written.
    """
    for more in range(digits, 18):
        texts = [plain_number(value, more) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def plain_number(value: float, digits: int = 3) -> str:
    """A number without an exponent, to so many digits; whole numbers are exact."""
    if value == int(value):
        return f"{value:.0f}"
    text = f"{Decimal(f'{value:.{digits}g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def algorithm_label(algorithm: str, k: float | None = 0.0, n: int | None = None) -> str:
    """IB-DQN(4); IB-DQN(n) where k is `n`, the number of actions; DQN where k is 0, which it is; IB-DQN without a k.

    Other names stay as they are.
    """
    name = ALGORITHM_NAMES.get(algorithm)
    if name is None:
        return f"{algorithm}({k:g})" if k else algorithm
    if not algorithm.startswith("ib-") or k is None:
        return name
    if k == 0:
        return name.removeprefix("IB-")
    return f"{name}(n)" if k == n else f"{name}({k:g})"
