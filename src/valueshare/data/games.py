"""The 57 Atari games of the benchmark, and what else a game is called.

Pong is `Pong`; its ROM is `pong`, its Gymnasium id `ALE/Pong-v5`, and it was `PongNoFrameskip-v4`.
"""

import csv
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

GAMES_FILE = "atari57_human_random.csv"
_OLD_ID = re.compile(r"(-ram)?(NoFrameskip|Deterministic)?-v\d+$")  # of older versions of Gymnasium


class Game(NamedTuple):
    """One game by its names, and the scores it is normalized with where there are any."""

    name: str
    rom: str
    random: float | None = None
    human: float | None = None

    @property
    def env_id(self) -> str:
        return f"ALE/{self.name}-v5"


def game_key(name: str) -> str:
    """A game's name in lower case without prefix and version: the same for Pong, pong and ALE/Pong-v5."""
    return re.sub(r"[^a-z0-9]", "", name.removeprefix("ALE/").removesuffix("-v5").lower())


def game_key_of_id(name: str) -> str:
    """The same, also for older ids: PongNoFrameskip-v4 has the key of Pong."""
    return game_key(_OLD_ID.sub("", name))


@cache
def benchmark_games() -> dict[str, Game]:
    """The 57 games in alphabetical order, by `game_key`."""
    text = (files("valueshare.data") / GAMES_FILE).read_text(encoding="utf-8")
    games = (
        Game(row["game"], row["ale_rom"], float(row["random"]), float(row["human"]))
        for row in csv.DictReader(text.splitlines())
    )
    return {game_key(game.name): game for game in games}
