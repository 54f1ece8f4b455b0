"""Atari games through ale-py's vector environment: emulators in C++, on separate threads.

An observation is one frame, (84, 84) uint8: only new frames are copied, and the caller stacks the last four. Rewards
are raw. Behaviour of the vector environment, and its use here:

- Its defaults are another protocol (no-ops, FIRE, clipped rewards, no sticky actions, minimal actions, reset in the
  step after an end), so all of its settings are given explicitly.
- It ends an episode at a limit of frames *before* it looks at the last ones, and shows a picture that is part of the
  step before. Here the steps are counted and the game is reset afterwards: the final observation of a truncated step is
  the true one. At game over that is left as it is, as Gymnasium's AtariPreprocessing has it: nothing bootstraps from
  that picture.
- It draws 0, ..., n-1 no-ops for n: here a protocol's `max_noops` can all happen.
- Its seeds are from 0 to 2^31-1; negative ones mean "none". See `emulator_seeds`.
- It waits for ever for an action that does not exist, so such actions are refused first. Skiing has no FIRE among its
  "full" actions, 9 in all; here it has 18 like every game, and those with FIRE do nothing, as in the
  emulator itself.
- It steps all its environments or none. So a game's environments are one vector environment in `lockstep`, and
  otherwise each is its own, which costs about 15 µs more per environment and step.

Where a lost life ends an episode (nature-2015, training only) the game continues: the step is terminated, the next
episode starts from the frame after it, and the limit counts the whole game. A life is lost when their number falls
and is not yet 0; game over ends the last one. Evaluation counts whole games.

Loading a ROM takes 0.1 s, and both making an environment and seeding it do so. A reset at an episode's end takes about
4 ms, as long as ten steps.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from valueshare.cores import available_cores
from valueshare.envs.atari_games import AtariGame, atari_game
from valueshare.envs.base import Actions, Environments, EnvironmentSpec, Seeds, StepResult, as_keys, resolve_limit
from valueshare.envs.emulators import (
    action_count,
    emulator_indices,
    emulator_options,
    emulator_seeds,
    vector_environment,
)
from valueshare.envs.protocols import AtariProtocol
from valueshare.errors import InvalidInput
from valueshare.integers import ceil_div


def atari_spec(names: Sequence[str], protocol: AtariProtocol, episode_limit: int | None = None) -> EnvironmentSpec:
    """The spec that environments of these games share; a mix has the name Breakout+Pong."""
    games = _distinct([atari_game(name) for name in names])
    counts = {game.name: action_count(game.rom, protocol.full_actions) for game in games}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InvalidInput(
            f"under {protocol.name} these games differ in their number of actions ({listed}): "
            "choose a protocol with all 18, such as machado-2018, or train them apart"
        )
    return EnvironmentSpec(
        name=games[0].env_id if len(games) == 1 else "+".join(game.name for game in games),
        backend="ale",
        observation_shape=(protocol.height, protocol.width),
        observation_dtype=np.dtype(np.uint8),
        actions=counts[games[0].name],
        episode_limit=resolve_limit(episode_limit, protocol.step_limit),
        stack=protocol.stack,
    )


class _EmulatorGroup(NamedTuple):
    """Environments that step together, and their rows among all environments."""

    vector: Any
    rows: NDArray[np.intp]  # [n]
    selection: slice | NDArray[np.intp]  # the same; a slice where it can be, which is copied faster


class _Results(NamedTuple):
    """Results of the emulators, before limits and lives."""

    observation: NDArray[np.uint8]  # [E, H, W]
    reward: NDArray[np.float32]  # [E]
    over: NDArray[np.bool_]  # [E] the game
    lives: NDArray[np.integer[Any]]  # [E]
    last: list[tuple[NDArray[np.intp], NDArray[np.uint8]]]  # rows that ended, their last frames


class AtariEnvironments(Environments):
    """E environments, each of its own game; environment e is a function of its seed and actions."""

    def __init__(
        self,
        names: Sequence[str],
        protocol: AtariProtocol,
        *,
        threads: int | None = None,
        episode_limit: int | None = None,
        lockstep: bool = False,
        evaluation: bool = False,
    ) -> None:
        self.spec = atari_spec(names, protocol, episode_limit)
        self.protocol = protocol.for_evaluation() if evaluation else protocol
        self.games = [atari_game(name) for name in names]
        self.count = len(self.games)
        self._limit = self.spec.episode_limit or protocol.step_limit
        self._threads = threads or available_cores()
        self._lockstep = lockstep
        self._groups: list[_EmulatorGroup] = []
        self._sent: list[_EmulatorGroup] | None = None  # groups under way
        self._observation = np.zeros((self.count, *self.spec.observation_shape), np.uint8)
        self._all = np.arange(self.count)
        self._elapsed = np.zeros(self.count, np.int64)  # [E] steps in the running game
        self._lives: NDArray[np.integer[Any]] = np.zeros(self.count, np.int64)  # [E]
        self._index = np.zeros((self.count, self.spec.actions), np.int32)  # [E, A] the emulators'
        self._remaps_actions = False  # whether emulators call some actions otherwise

    def reset(self, seeds: Seeds) -> NDArray[Any]:
        env_seeds = emulator_seeds(as_keys(seeds, self.count))
        for group in self._sent or []:  # what nobody received is dropped
            group.vector.recv()
        self._sent = None
        if not self._groups:
            self._groups = self._make_groups()
            for group in self._groups:
                self._index[group.rows] = emulator_indices(group.vector, self.spec.actions)
            self._remaps_actions = bool((self._index != np.arange(self.spec.actions)).any())
        observation = np.empty_like(self._observation)

        def start(group: _EmulatorGroup) -> None:
            frames, info = group.vector.reset(seed=env_seeds[group.rows])
            observation[group.rows] = frames[:, 0]
            self._lives[group.rows] = info["lives"]

        # Groups wait for their own emulators only, and loading the ROMs is slow.
        with ThreadPoolExecutor(min(self._threads, len(self._groups))) as pool:
            list(pool.map(start, self._groups))
        self._elapsed[:] = 0
        self._observation = observation
        return observation

    def send(self, actions: Actions, active: NDArray[np.bool_] | None = None) -> None:
        is_ready = bool(self._groups) and self._sent is None
        checked = self._check_actions(actions, np.int32, is_ready=is_ready)
        if checked.view(np.uint32).max() >= self.spec.actions:  # which negative ones are as well
            raise RuntimeError(f"actions are from 0 to {self.spec.actions - 1}")
        stepping = self._groups if active is None else self._groups_to_step(active)
        sent = self.emulator_actions(checked) if self._remaps_actions else checked
        for group in stepping:
            group.vector.send(sent[group.selection])
        self._sent = stepping

    def receive(self) -> StepResult:
        groups, self._sent = self._pending(self._sent), None
        results = self._join([(group, group.vector.recv()) for group in groups])
        for group in groups:
            self._elapsed[group.selection] += 1
        observation, over, lives = results.observation, results.over, results.lives
        # An environment that is not stepped was reset if it ended, so it is below its limit.
        truncated = ~over & (self._elapsed >= self._limit)
        any_truncated = np.count_nonzero(truncated) > 0
        terminated = over
        if self.protocol.terminal_on_life_loss:
            terminated = over | (0 < lives) & (lives < self._lives)
        final = observation.copy() if results.last or any_truncated else observation
        for rows, last in results.last:
            final[rows] = last
        for group in groups if any_truncated else []:
            mask, rows = truncated[group.rows], group.rows
            if mask.any():
                frames, info = group.vector.reset(options={"reset_mask": mask})
                observation[rows[mask]], lives[rows[mask]] = frames[mask, 0], info["lives"][mask]
        self._elapsed[over | truncated] = 0
        self._observation, self._lives = observation, lives
        return StepResult(observation, results.reward, terminated, truncated & ~terminated, final)

    def emulator_actions(self, actions: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """The emulators' numbers of these actions, once they are reset. Shapes: [..., E] -> same."""
        index: NDArray[np.int32] = self._index[self._all, actions]
        return index

    def raw_step(self, emulator_actions: NDArray[np.int32]) -> None:
        """Step every emulator as ale-py does, and drop the results; `reset` comes next.

        For measuring what the emulators alone cost. Shapes: [E].
        """
        for group in self._groups:
            group.vector.send(emulator_actions[group.rows])
        for group in self._groups:
            group.vector.recv()

    def close(self) -> None:
        self._groups, self._sent = [], None

    def _join(self, results: Sequence[tuple[_EmulatorGroup, Any]]) -> _Results:
        """Results of all environments; those that were not stepped are as before.

        Nothing else refers to the arrays of a vector environment, so a single one's arrays are returned without a copy.
        """
        if len(self._groups) == 1 and results:
            (frames, reward, over, _, info), rows = results[0][1], self._all
            ends = np.count_nonzero(over)  # in half the time of `any`
            last = [(rows[over], info["final_obs"][over, 0])] if ends else []
            return _Results(frames[:, 0], reward.astype(np.float32), over, info["lives"], last)
        all_step = len(results) == len(self._groups)
        observation = np.empty_like(self._observation) if all_step else self._observation.copy()
        reward = np.zeros(self.count, np.float32)
        over = np.zeros(self.count, np.bool_)
        lives, last = self._lives.copy(), []
        for (_, rows, selection), (frames, reward[selection], ended, _, info) in results:
            observation[selection] = frames[:, 0]
            if ended.any():
                last.append((rows[ended], info["final_obs"][ended, 0]))
            over[selection], lives[selection] = ended, info["lives"]
        return _Results(observation, reward, over, lives, last)

    def _groups_to_step(self, active: NDArray[np.bool_]) -> list[_EmulatorGroup]:
        stepping = [group for group in self._groups if active[group.rows].any()]
        if not all(active[group.rows].all() for group in stepping):
            raise RuntimeError("environments in lockstep are stepped together: lockstep=False")
        return stepping

    def _make_groups(self) -> list[_EmulatorGroup]:
        make = vector_environment()
        roms = np.array([game.rom for game in self.games])
        if self._lockstep:
            parts = [np.flatnonzero(roms == game.rom) for game in _distinct(self.games)]
        else:
            parts = list(np.arange(self.count)[:, None])
        return [
            _EmulatorGroup(
                make(
                    game=str(roms[rows[0]]),
                    num_envs=rows.size,
                    num_threads=_share(self._threads, rows.size, self.count),
                    batch_size=0,  # all of them: one that is ready first does not go ahead
                    img_height=self.protocol.height,
                    img_width=self.protocol.width,
                    grayscale=self.protocol.grayscale,
                    **emulator_options(self.protocol),
                ),
                rows,
                slice(rows[0], rows[-1] + 1) if (np.diff(rows) == 1).all() else rows,
            )
            for rows in parts
        ]


def _share(threads: int, size: int, total: int) -> int:
    """Threads of a group: its part of all, rounded up so that no core is without one."""
    return min(size, ceil_div(threads * size, total))


def _distinct(games: Sequence[AtariGame]) -> list[AtariGame]:
    return sorted(set(games))
