"""The Atari games that can be played: the 57 of the benchmark, and ale-py's others.

The 57, with the scores of random play and of people, are package data. The others have no such scores.
"""

import re
from functools import cache
from importlib.util import find_spec

from valueshare.data.games import Game as AtariGame
from valueshare.data.games import benchmark_games, game_key, game_key_of_id
from valueshare.errors import InvalidInput
from valueshare.text import suggestion

__all__ = ["AtariGame", "atari57", "atari_game", "is_atari", "known_names"]

_VERSIONS = ("0", "4", "5")  # all that ids of games in Gymnasium have had
_OF_SCREENS = re.compile(r"(NoFrameskip|Deterministic)?-v[045]$")  # ids with -ram observe a game's memory
# Two players' games: ale-py has the ROMs, and Gymnasium no id of them.
_NOT_ALONE = ("combat", "joust", "maze_craze", "warlords")


def atari57() -> list[str]:
    """The names of the 57 games, in alphabetical order."""
    return [game.name for game in benchmark_games().values()]


def atari_game(name: str) -> AtariGame:
    """The game of a name: Pong, pong, Pong-v5, ALE/Pong-v5 and PongNoFrameskip-v4 are one, whatever the protocol."""
    game = _games_by_key().get(game_key(_OF_SCREENS.sub("", name)))
    if game is None:
        key = game_key_of_id(name)
        names = {key: game.name for key, game in _games_by_key().items()}
        hint = suggestion(key, names, 1 if key in names else 3) or "none is near; write a name like Pong"
        raise InvalidInput(f"there is no Atari game {name!r}: {hint}")
    return game


def is_atari(name: str) -> bool:
    """Whether a name means an Atari game: also one that there is not, or an older kind of id.

    Blackjack-v1 is not a game: their ids are of the versions 0, 4 and 5.
    """
    if name.startswith("ALE/"):
        return True
    version = re.search(r"-v(\d+)$", name)
    of_games = version is None or version[1] in _VERSIONS
    return of_games and game_key_of_id(name) in _games_by_key()


def known_names() -> list[str]:
    return [game.name for game in _games_by_key().values()]


@cache
def _games_by_key() -> dict[str, AtariGame]:
    """All games of the benchmark, and of ale-py where it is installed, by `game_key`."""
    games = dict(benchmark_games())
    if find_spec("ale_py") is not None:
        from ale_py import roms

        for rom in roms.get_all_rom_ids():
            name = rom.title().replace("_", "")  # Gymnasium's rule
            if rom not in _NOT_ALONE:
                games.setdefault(game_key(name), AtariGame(name, rom))
    return games
