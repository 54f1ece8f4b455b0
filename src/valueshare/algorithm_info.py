"""The algorithms without their code, so that the command line and reports know them without PyTorch.

An algorithm whose name begins with "ib-" is the rest of the name with the mean-expansion layer: with k = 0 they are the
same. This holds for names in the results of others too.
"""

import math
from typing import NamedTuple

from valueshare.errors import InvalidInput

LAYER_PREFIX = "ib-"
# The k of a report for agents whose k is the number of actions of their own environment, where those differ.
K_IS_N = math.inf


class AlgorithmInfo(NamedTuple):
    """An algorithm's label, and the settings that it reads beside those that all algorithms read."""

    label: str
    reads: tuple[str, ...] = ()  # k, beta, ...
    is_quantile: bool = False  # whether its network takes quantiles, tau [B, N], beside observations

    def with_layer(self) -> "AlgorithmInfo":
        """The same algorithm with the layer in its network."""
        return self._replace(label=f"IB-{self.label}", reads=("k", *self.reads))


_DQN, _DOUBLE_DQN = AlgorithmInfo("DQN"), AlgorithmInfo("Double DQN")
_IQN = AlgorithmInfo("IQN", reads=("quantiles", "target_quantiles", "acting_quantiles", "kappa"), is_quantile=True)
ALGORITHM_INFO = {  # in the order of the paper's table
    "dqn": _DQN,
    "dueling-dqn": AlgorithmInfo("Dueling DQN"),
    "ib-dqn": _DQN.with_layer(),
    "rdq": AlgorithmInfo("RDQ", reads=("beta",)),
    "double-dqn": _DOUBLE_DQN,
    "ib-double-dqn": _DOUBLE_DQN.with_layer(),
    "iqn": _IQN,
    "ib-iqn": _IQN.with_layer(),
}


def algorithm_name(given: str) -> str:
    """The name of an algorithm as it is stored: ib-dqn for IB-DQN and IB_DQN."""
    return given.lower().replace("_", "-")


def info_named(name: str) -> AlgorithmInfo:
    """The entry of that name; an unknown one is refused."""
    if name not in ALGORITHM_INFO:
        raise InvalidInput(f"`algorithm = {name!r}`: write one of {', '.join(ALGORITHM_INFO)}")
    return ALGORITHM_INFO[name]


def has_layer(algorithm: str) -> bool:
    return algorithm.startswith(LAYER_PREFIX)


def without_layer(algorithm: str) -> str:
    """dqn for ib-dqn and for dqn."""
    return algorithm.removeprefix(LAYER_PREFIX)


def other_name_at_zero(algorithm: str) -> str:
    """ib-dqn for dqn, and dqn for ib-dqn: with k = 0 they are the same."""
    return without_layer(algorithm) if has_layer(algorithm) else LAYER_PREFIX + algorithm


def algorithm_label(algorithm: str, k: float | None = 0.0, n: int | None = None) -> str:
    """IB-DQN(4); IB-DQN(n) where k is `n`, the number of actions; DQN for k = 0; IB-DQN without a k; others as is."""
    info = ALGORITHM_INFO.get(algorithm)
    if info is None:
        return f"{algorithm}({k_text(k)})" if k else algorithm
    if k == 0:
        return ALGORITHM_INFO.get(without_layer(algorithm), info).label
    return info.label if k is None else f"{info.label}({k_text(K_IS_N if k == n else k)})"


def k_text(k: float) -> str:
    """4, or n where k is the number of actions of each environment."""
    return "n" if k == K_IS_N else f"{k:g}"


def setting_readers() -> dict[str, list[str]]:
    """The algorithms that read a setting, by its name; settings that all algorithms read are left out."""
    readers: dict[str, list[str]] = {}
    for name, info in ALGORITHM_INFO.items():
        for setting in info.reads:
            readers.setdefault(setting, []).append(name)
    return readers


def unread_settings(algorithm: str) -> set[str]:
    """The settings that other algorithms read and this one does not; none of an unknown one, which may read any."""
    if algorithm not in ALGORITHM_INFO:
        return set()
    return setting_readers().keys() - set(ALGORITHM_INFO[algorithm].reads)
