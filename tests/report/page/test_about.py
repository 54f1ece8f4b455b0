"""The title, the subtitle, and short names of folders."""

import re
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
from synthetic import RESAMPLES, TWO, data_of, tidy

from valueshare.analysis.importers.results import Source
from valueshare.report.notes import short_names, shortened
from valueshare.report.page.about import about_parts, agent_rows, subtitle, title
from valueshare.report.page.results import results_page


def test_the_title_and_lead_count_what_there_is() -> None:
    found = data_of(TWO)
    assert title(found) == "Here: DQN and IB-DQN"
    assert subtitle(found) == (
        "4 agents: 1 environment, 2 algorithms, 2 seeds each; up to 10 timesteps, 2 evaluations."
    )


def test_settings_and_runs_are_no_algorithms() -> None:
    """DQN and IB-DQN(4), both with two step sizes, or in two runs."""

    def named(detail: str) -> dict[tuple[str, str, float, int], Sequence[float | None]]:
        return {(env, f"ib-dqn {detail}", k, seed): scores for (env, _, k, seed), scores in TWO.items()}

    swept = data_of(named("step_size=0.1") | named("step_size=0.2"))
    assert title(swept) == "Here: IB-DQN"
    assert "1 environment, 2 values of k, 4 combinations of settings, 2 seeds each" in subtitle(swept)
    apart = replace(data_of(named("run=a") | named("run=b")), runs=("a", "b"), names_include_run=True)
    assert title(apart) == "Here: IB-DQN"
    assert "1 environment, 2 values of k, 2 runs, 2 seeds each" in subtitle(apart)


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


def test_an_extended_run_has_the_commands_of_both() -> None:
    train, extended = "valueshare train --env Here", {"command": "valueshare extend --steps 22"}

    def commands(entries: object) -> list[str]:
        origin = {"command": train, "extended": entries}
        results = tidy(TWO)._replace(sources=(Source("run", "run", 4, {}, origin),))
        return re.findall(
            r"valueshare \w+ [^<]*", "".join(about_parts(replace(data_of(TWO), results=results), {"run": "run"}))
        )

    assert commands([extended, "?"]) == [train, "valueshare extend RUN --steps 22"]
    assert commands(None) == commands("?") == commands([{"command": 1}]) == [train]


def test_the_settings_of_a_source_include_its_atari_protocol() -> None:
    """Stored as its name."""
    settings = {"Here": {"steps": 20, "atari_protocol": "nature-2015"}}
    results = tidy(TWO)._replace(sources=(Source("run", "run", 4, {"settings": settings}, None),))
    section = "".join(about_parts(replace(data_of(TWO), results=results), {"run": "run"}))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", section)
    assert cells[cells.index("atari_protocol") + 1] == "nature-2015"


def test_a_page_notes_that_evaluations_are_not_evenly_spaced() -> None:
    """At 0, 10, 20, and at 22 after an extension."""
    results = tidy({key: [*own, 5.0, 5.0] for key, own in TWO.items()})
    extended = results._replace(table=results.table.with_columns(pl.col("step").replace(30, 22)))
    pages = [results_page(one, resamples=RESAMPLES) for one in (results, extended)]
    note = "Here: evaluations are not evenly spaced, and AUC counts each of them equally"
    assert [note in page for page in pages] == [False, True]


def test_auc_is_explained_where_it_is_first_mentioned() -> None:
    page = results_page(tidy(TWO), resamples=RESAMPLES)
    assert "mean score over training (AUC)" in page[: page.index("AUC") + 5]
