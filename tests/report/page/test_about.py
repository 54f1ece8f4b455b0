"""The title, the subtitle, and short names of folders."""

from synthetic import TWO, data_of

from valueshare.report.notes import short_names, shortened
from valueshare.report.page.about import agent_rows, subtitle, title


def test_the_title_and_lead_count_what_there_is() -> None:
    found = data_of(TWO)
    assert title(found) == "Here: DQN and IB-DQN"
    assert subtitle(found) == (
        "4 agents: 1 environment, 2 algorithms, 2 seeds each; up to 10 timesteps, 2 evaluations."
    )


def test_notes_have_the_short_names_of_places() -> None:
    names = short_names(["/home/me/a/run", "/home/me/b/run"])
    notes = ["/home/me/b/run was trained otherwise than /home/me/a/run (x is 1, not 2)"]
    assert shortened(notes, names) == ["b/run was trained otherwise than a/run (x is 1, not 2)"]


def test_places_have_as_short_a_name_as_tells_them_apart() -> None:
    assert short_names(["/home/me/a"]) == {"/home/me/a": "a"}
    both = short_names(["/x/a/run", "/x/b/run"])
    assert list(both.values()) == ["a/run", "b/run"]


def test_an_agent_of_ib_dqn_with_k_0_is_one_of_dqn() -> None:
    zero = {(env, "ib-dqn", k, seed): own for (env, _, k, seed), own in TWO.items()}
    found = agent_rows(data_of(zero))
    assert [row[1] for row in found["rows"]] == ["DQN", "DQN", "IB-DQN", "IB-DQN"]
    both = agent_rows(data_of({**zero, **TWO}))["rows"]  # told apart, as their curves are
    assert {row[1] for row in both if row[2] == 0} == {"DQN", "DQN (ib-dqn)"}
