"""Finite Markov decision processes as arrays: the gridworld, and Gymnasium's toy-text environments."""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from valueshare.errors import InvalidInput, check_module
from valueshare.tabular.rules import check_tables
from valueshare.text import suggestion

Floats = NDArray[np.float64]
PUBLISHED = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4")  # Gymnasium's tables
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # up, down, left, right, as (column, row)


class Successors(NamedTuple):
    """The transitions that can happen, packed: at most M successors of a state and action."""

    state: NDArray[np.int64]  # [S, A, M]
    probability: Floats  # [S, A, M], 0 in the padding
    reward: Floats  # [S, A, M]


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """S states, A actions, transitions and rewards; checked when it is made.

    `transition[s, a, s']` are probabilities and `reward[s, a, s']` (or `[s, a]`, or a number) rewards. An
    episode begins in a state drawn from `start` and ends on reaching a state marked in `terminal`; the rows of terminal
    states are never used.

        >>> coin = FiniteMDP(
        ...     transition=[[[0.5, 0.5]], [[0.0, 1.0]]], reward=1.0, start=[1, 0],
        ...     terminal=[False, True], discount=0.9, name="coin")
        >>> coin.states, coin.actions
        (2, 1)
    """

    transition: Floats  # [S, A, S]
    reward: Floats  # [S, A, S]
    start: Floats  # [S]
    terminal: NDArray[np.bool_]  # [S]
    discount: float
    name: str = "mdp"

    def __init__(
        self,
        transition: ArrayLike,
        reward: ArrayLike,
        start: ArrayLike,
        terminal: ArrayLike,
        discount: float,
        name: str = "mdp",
    ) -> None:
        transition = np.asarray(transition, dtype=np.float64)
        shape = transition.shape
        if len(shape) != 3 or shape[0] != shape[2] or 0 in shape:
            raise InvalidInput(f"transition has shape {shape}: it is [states, actions, states], none of them 0")
        states, actions, _ = shape
        reward = np.asarray(reward, dtype=np.float64)
        if reward.shape not in ((), (states, actions), shape):
            raise InvalidInput(
                f"reward has shape {reward.shape}: it is [{states}, {actions}, {states}], "
                f"[{states}, {actions}] or one number"
            )
        reward = np.broadcast_to(reward[..., None] if reward.ndim == 2 else reward, shape)
        fields = {
            "transition": transition,
            "reward": reward,
            "start": np.asarray(start, dtype=np.float64),
            "terminal": np.asarray(terminal, dtype=np.bool_),
            "discount": float(discount),
            "name": name,
        }
        self.__dict__.update(fields)  # the dataclass is frozen
        self._validate()

    @property
    def states(self) -> int:
        return int(self.transition.shape[0])

    @property
    def actions(self) -> int:
        return int(self.transition.shape[1])

    @property
    def successors(self) -> Successors:
        """The transitions of non-zero probability, packed."""
        most = max(1, int((self.transition > 0).sum(axis=2).max()))
        # A stable sort by "is zero" brings the successors of each row to the front, in order.
        state = np.argsort(self.transition <= 0, axis=2, kind="stable")[..., :most]
        return Successors(
            state=np.ascontiguousarray(state),
            probability=np.take_along_axis(self.transition, state, axis=2),
            reward=np.take_along_axis(self.reward, state, axis=2),
        )

    @property
    def visitable(self) -> NDArray[np.bool_]:
        """The non-terminal states that an episode can be in, as a mask [S]."""
        leads_to = np.asarray((self.transition > 0).any(axis=1))  # [S, S]
        reached = (self.start > 0) & ~self.terminal
        while True:
            grown = reached | (leads_to[reached].any(axis=0) & ~self.terminal)
            if (grown == reached).all():
                return grown
            reached = grown

    def _validate(self) -> None:
        for field, values in (("start", self.start), ("terminal", self.terminal)):
            if values.shape != (self.states,):
                raise InvalidInput(f"{field} has shape {values.shape}: it is [{self.states}]")
        if not 0.0 <= self.discount <= 1.0:
            raise InvalidInput(f"`discount = {self.discount}`: it lies in [0, 1]")
        if not np.isfinite(self.reward).all():
            raise InvalidInput("reward holds a value that is not finite")
        live = ~self.terminal
        if not live.any():
            raise InvalidInput("every state is terminal: nothing can be learned")
        probabilities = {"transition": self.transition[live], "start": self.start[None]}
        for field, rows in probabilities.items():
            if not (rows >= 0).all():  # NaN is refused too
                raise InvalidInput(f"{field} holds a value that is not a probability")
            totals = rows.sum(axis=-1)
            wrong = np.argwhere(np.abs(totals - 1) > 1e-8)
            if wrong.size:
                which = "the start probabilities"
                if field == "transition":
                    row, action = wrong[0]
                    which = f"the probabilities of state {np.flatnonzero(live)[row]}, action {action}"
                raise InvalidInput(f"{which} sum to {totals[tuple(wrong[0])]:.6g}, not 1")
        if (self.start[self.terminal] > 0).any():
            raise InvalidInput("an episode can start in a terminal state: set its start to 0")

    @classmethod
    def from_gymnasium(cls, env_id: str, discount: float = 0.99, **options: Any) -> "FiniteMDP":
        """The table that a Gymnasium environment publishes (FrozenLake, CliffWalking, Taxi).

        It is `P[state][action] = [(probability, next state, reward, ends), ...]`. Time limits are not part of such a
        table: episodes end on terminal states alone.
        """
        environment = _make(env_id, **options).unwrapped
        table = getattr(environment, "P", None)
        start = getattr(environment, "initial_state_distrib", None)
        if table is None or start is None:
            raise InvalidInput(f"{env_id} does not publish its transition table; these do: {', '.join(PUBLISHED)}")
        states, actions = len(table), len(table[0])
        transition, weighted_rewards = (np.zeros((states, actions, states)) for _ in range(2))  # by probability
        ends, continues = np.zeros((2, states, states), dtype=np.bool_)  # [from, to]
        for state, choices in table.items():
            for action, outcomes in choices.items():
                for probability, successor, reward, ended in outcomes:
                    transition[state, action, successor] += probability
                    weighted_rewards[state, action, successor] += probability * reward
                    (ends if ended else continues)[state, successor] |= probability > 0
        terminal = ends.any(axis=0)
        rewards = np.divide(weighted_rewards, transition, out=np.zeros_like(weighted_rewards), where=transition > 0)
        mdp = cls(transition, rewards, start, terminal, discount, name=env_id)
        # A state either ends every episode that enters it or none. Rows that no episode can visit (Taxi has some: the
        # passenger waits where she wants to go) may say otherwise.
        if continues[np.ix_(mdp.visitable, terminal)].any():
            raise InvalidInput(f"{env_id} has a state that ends only some episodes that enter it")
        return mdp


def copied_actions(mdp: FiniteMDP, copies: int) -> FiniteMDP:
    """The same MDP with every action there `copies` times; action a of it is action a modulo n of the n given.

    Optimal values stay the same. The learner does not know that copies are alike.

        >>> copied_actions(gridworld(), 16).actions
        64
    """
    if copies < 1:
        raise InvalidInput(f"`action_copies = {copies}`: write at least 1")
    if copies == 1:
        return mdp
    check_tables(mdp.states, mdp.actions, copies)
    transition, reward = (np.tile(table, (1, copies, 1)) for table in (mdp.transition, mdp.reward))
    return FiniteMDP(transition, reward, mdp.start, mdp.terminal, mdp.discount, mdp.name)


def _make(env_id: str, **options: Any) -> Any:
    import gymnasium

    from valueshare.envs.registration import registered_names_named

    try:
        with (
            registered_names_named(env_id),
            warnings.catch_warnings(action="ignore"),
        ):  # an old version's name is reported below
            return gymnasium.make(env_id, **options)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        if "/" in env_id and ":" not in env_id:
            hint = f"put its module before its name, like my_package:{env_id}"
            raise InvalidInput(f"there is no environment {env_id!r}: {hint}") from error
        check_module(env_id, error)
        names = ("gridworld", *PUBLISHED)
        hint = " ".join([suggestion(env_id, names, 1, 0.4), f"tables are known of {', '.join(names)}"]).strip()
        raise InvalidInput(f"there is no environment {env_id!r}: {hint}") from error


def gridworld(
    width: int = 5,
    height: int = 5,
    step_reward: float = 0.0,
    goal_reward: float = 5.0,
    noise: float = 0.25,
    discount: float = 0.95,
) -> FiniteMDP:
    """The paper's gridworld: from the bottom-left corner to the goal in the top-right one.

    A move goes the chosen way with probability 1 - noise and one of the three *other* ways, uniformly, otherwise;
    moving into a wall stays put. Reaching the goal pays `goal_reward` and ends the episode, every other step pays
    `step_reward`. State = row · width + column; row 0 is the top. Actions: up, down, left, right.
    """
    if width < 1 or height < 1 or width * height < 2:
        raise InvalidInput(f"a {width} x {height} gridworld has no room for a start and a goal")
    if not 0.0 <= noise <= 1.0:
        raise InvalidInput(f"`noise = {noise}`: a probability lies in [0, 1]")
    states, actions = width * height, len(MOVES)
    goal, start = width - 1, (height - 1) * width
    way = np.full((actions, actions), noise / (actions - 1))  # chosen action, way taken
    np.fill_diagonal(way, 1.0 - noise)
    transition = np.zeros((states, actions, states))
    for state in range(states):
        row, column = divmod(state, width)
        for taken, (right, down) in enumerate(MOVES):
            to_row = min(max(row + down, 0), height - 1)
            to_column = min(max(column + right, 0), width - 1)
            transition[state, :, to_row * width + to_column] += way[:, taken]
    reward = np.full(states, step_reward)
    reward[goal] = goal_reward
    corner = np.arange(states)
    return FiniteMDP(
        transition=transition,
        reward=np.broadcast_to(reward, transition.shape),
        start=corner == start,
        terminal=corner == goal,
        discount=discount,
        name="gridworld",
    )
