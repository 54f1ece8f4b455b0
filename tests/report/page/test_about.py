"""The title, the lead, and short names of folders."""

from synthetic import TWO, data_of

from valueshare.report.page.about import lead, short_names, shortened, title


def test_the_title_and_lead_count_what_there_is() -> None:
    found = data_of(TWO)
    assert title(found) == "Here: DQN and IB-DQN"
    assert lead(found) == ("4 agents: 1 environment, 2 algorithms, 2 seeds each; up to 10 timesteps, 2 evaluations.")


def test_notes_have_the_short_names_of_places() -> None:
    names = short_names(["/home/me/a/run", "/home/me/b/run"])
    notes = ["/home/me/b/run was trained otherwise than /home/me/a/run (x is 1, not 2)"]
    assert shortened(notes, names) == ["b/run was trained otherwise than a/run (x is 1, not 2)"]


def test_places_have_as_short_a_name_as_tells_them_apart() -> None:
    assert short_names(["/home/me/a"]) == {"/home/me/a": "a"}
    both = short_names(["/x/a/run", "/x/b/run"])
    assert list(both.values()) == ["a/run", "b/run"]
