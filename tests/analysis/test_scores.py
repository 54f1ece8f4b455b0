"""Human-normalized scores and the published table."""

from collections.abc import Callable

import polars as pl
import pytest

from valueshare import InvalidInput
from valueshare.analysis import atari_baselines, human_normalized, iqm, paper_scores
from valueshare.analysis.scores import PAPER_AGENTS, game_name, has_human_score
from valueshare.cli.report import paper_table
from valueshare.envs import atari57, atari_game

# The IQM over game means of the published table, as the paper has it.
PUBLISHED = {
    "DQN": 1.19, "Dueling DQN": 1.18, "IB-DQN(1)": 1.20, "IB-DQN(n)": 1.42, "RDQ": 1.54,
    "IQN": 1.70, "IB-IQN(n)": 1.85,
}  # fmt: skip


def test_the_published_table() -> None:
    table = paper_scores()
    assert table.columns == ["game", "algorithm", "score"]
    assert table.height == 57 * 7
    assert table["score"].is_finite().all()
    assert set(table["algorithm"]) == set(PAPER_AGENTS)
    pong = table.filter(pl.col("game") == "Alien", pl.col("algorithm") == "IB-IQN(n)")
    assert pong["score"].item() == 4298.1


def test_the_published_iqm() -> None:
    table = human_normalized(paper_scores())
    for agent, level in PUBLISHED.items():
        own = table.filter(pl.col("algorithm") == agent)["human_normalized"].to_numpy()
        assert round(iqm(own), 2) == level


def test_normalized_by_hand() -> None:
    """Pong: random -20.7, human 14.6; a score of 0 is 20.7 / 35.3 of the way."""
    table = pl.DataFrame({"env": ["Pong"] * 4, "score": [-20.7, 14.6, 0.0, None]})
    found = human_normalized(table)["human_normalized"].to_list()
    assert found == pytest.approx([0.0, 1.0, 20.7 / 35.3, None])


def test_every_name_of_a_game() -> None:
    assert game_name("ALE/MsPacman-v5") == "MsPacman"
    assert game_name("MsPacmanNoFrameskip-v4") == "MsPacman"
    assert game_name("ms_pacman") == "MsPacman"
    assert all(game_name(game) == game for game in atari_baselines()["game"])
    assert atari_baselines()["game"].n_unique() == 57
    assert has_human_score("ALE/Pong-v5")
    assert not has_human_score("LunarLander-v3")


def test_a_game_is_called_the_same_everywhere() -> None:
    for name in atari57():
        game = atari_game(name)
        for other in (name, game.rom, game.env_id, f"{name}-v5"):
            assert atari_game(other).name == game_name(other) == name
        for old in (f"{name}NoFrameskip-v4", f"{name}Deterministic-v0", f"{name}-ram-v4"):
            assert game_name(old) == name
    assert not has_human_score("Adventure")  # a game without human scores


def test_what_is_no_atari_game_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no human score of 'Pog': did you mean Pong"):
        human_normalized(pl.DataFrame({"env": ["Pog"], "score": [1.0]}))
    with pytest.raises(InvalidInput, match="'LunarLander-v3': write one of the 57"):
        game_name("LunarLander-v3")
    with pytest.raises(InvalidInput, match="no column 'score'"):
        human_normalized(pl.DataFrame({"env": ["Pong"]}))


# The command.


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    return lambda: capsys.readouterr().out.splitlines()


def test_the_command_prints_games_iqm_and_the_caveat(said: Callable[[], list[str]]) -> None:
    paper_table()
    lines = said()
    assert lines[0].split() == [*("game", "DQN", "Dueling", "DQN", "IB-DQN(1)", "IB-DQN(n)", "RDQ", "IQN", "IB-IQN(n)")]
    assert lines[2].split()[:2] == ["Alien", "3,446.7"]
    assert len([line for line in lines[2:] if line[:1].isupper()]) == 57 + 1 + 3
    found = next(line for line in lines if line.startswith("IQM ")).split()[1:]
    assert [float(level) for level in found] == list(PUBLISHED.values())
    assert "not from sticky-action runs" in lines[-1]


def test_the_command_normalized_and_as_csv(said: Callable[[], list[str]]) -> None:
    paper_table(human_normalized=True)
    # Alien: (3446.7 - 227.8) / (7127.7 - 227.8) = 0.4665.
    assert said()[2].split()[:2] == ["Alien", "0.47"]
    paper_table(format="csv")
    lines = said()
    assert len(lines) == 58
    assert lines[1] == "Alien,3446.7,3686.3,3602.8,3751.2,5075.3,3886.3,4298.1"


def test_an_empty_table_has_an_empty_column() -> None:
    table = pl.DataFrame(schema={"env": pl.String, "score": pl.Float64})
    assert human_normalized(table).schema["human_normalized"] == pl.Float64
