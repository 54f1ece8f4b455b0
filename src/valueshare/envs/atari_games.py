"""Atari games and their names: Pong is `Pong`, its ROM `pong`, its Gymnasium id `ALE/Pong-v5`.

The 57 games of the benchmark, with the scores of random play and of people, are package data. The
other games of ale-py can be played too; they have no such scores.
"""

import csv
import re
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import NamedTuple

from valueshare.errors import InvalidInput

_OTHER_ID = re.compile(r"(-ram)?(NoFrameskip|Deterministic)?-v\d+$")  # of Gymnasium's past
# Two players' games: ale-py has the ROMs, and Gymnasium no id of them.
_NOT_ALONE = ("combat", "joust", "maze_craze", "warlords")


class AtariGame(NamedTuple):
    """One game by its three names, and the scores it is normalised with where there are any."""

    name: str
    rom: str
    random: float | None = None
    human: float | None = None

    @property
    def env_id(self) -> str:
        return f"ALE/{self.name}-v5"


def atari57() -> list[str]:
    """The names of the 57 games, in alphabetical order."""
    return list(_benchmark())


def atari_game(name: str) -> AtariGame:
    """The game of a name: Pong, pong, Pong-v5 and ALE/Pong-v5 are one."""
    game = _by_letters().get(_letters(name))
    if game is None:
        plain = _letters(_OTHER_ID.sub("", name))
        near = [_by_letters()[match].name for match in get_close_matches(plain, _by_letters())]
        near = near[:1] if plain in _by_letters() else near
        hint = f"did you mean {' or '.join(near)}?" if near else "none is near; write one as Pong"
        raise InvalidInput(f"there is no Atari game {name!r}: {hint}")
    return game


def is_atari(name: str) -> bool:
    """Whether a name means an Atari game: also one that there is not, or an older kind of id."""
    return name.startswith("ALE/") or _letters(_OTHER_ID.sub("", name)) in _by_letters()


def known_names() -> list[str]:
    return [game.name for game in _by_letters().values()]


@cache
def _benchmark() -> dict[str, AtariGame]:
    text = (files("valueshare.data") / "atari57_human_random.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        row["game"]: AtariGame(
            row["game"], row["ale_rom"], float(row["random"]), float(row["human"])
        )
        for row in rows
    }


@cache
def _by_letters() -> dict[str, AtariGame]:
    """All games of the benchmark, and of ale-py where it is installed, by `_letters`."""
    games = {_letters(game.name): game for game in _benchmark().values()}
    if find_spec("ale_py") is not None:
        from ale_py import roms

        for rom in roms.get_all_rom_ids():
            name = rom.title().replace("_", "")  # Gymnasium's rule
            if rom not in _NOT_ALONE:
                games.setdefault(_letters(name), AtariGame(name, rom))
    return games


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.removeprefix("ALE/").removesuffix("-v5").lower())
