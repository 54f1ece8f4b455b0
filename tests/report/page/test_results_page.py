"""The page's parts, each against arithmetic that can be followed by hand."""

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synthetic import synthetic_results

from valueshare.analysis.importers.results import Results, read_results
from valueshare.errors import InvalidInput
from valueshare.report.data import ReportData, report_data
from valueshare.report.findings import (
    Comparison,
    Interval,
    asked_pairs,
    compare,
    headlines,
    in_numbers,
    sentence,
    verdict,
    written,
)
from valueshare.report.page import elements
from valueshare.report.page.about import lead, short_names, shortened, title
from valueshare.report.page.curve_data import NONE, curve_data, exact_ends, quantised
from valueshare.report.page.results import results_page

RESAMPLES = 200
Scores = Mapping[tuple[str, str, float, int], Sequence[float | None]]


def tidy(scores: Scores) -> Results:
    """Results from (env, algorithm, k, seed) -> scores at steps 0, 10, 20, ..."""
    rows = [
        {"env": env, "algorithm": algorithm, "k": k, "seed": seed, "step": 10 * i, "score": score}
        for (env, algorithm, k, seed), own in scores.items()
        for i, score in enumerate(own)
    ]
    return Results(pl.DataFrame(rows, infer_schema_length=None), (), ())


def data_of(scores: Scores) -> ReportData:
    return report_data(tidy(scores), RESAMPLES)


def compared(found: ReportData, number: int = 0) -> Comparison:
    answer = compare(found, asked_pairs(found)[number])
    assert isinstance(answer, Comparison)
    return answer


# Two seeds each: AUC of DQN 1 and 3, of IB-DQN(4) 11 and 13.
TWO: Scores = {
    ("Here", "dqn", 0.0, 0): [0.0, 2.0],
    ("Here", "dqn", 0.0, 1): [2.0, 4.0],
    ("Here", "ib-dqn", 4.0, 0): [10.0, 12.0],
    ("Here", "ib-dqn", 4.0, 1): [12.0, 14.0],
}


def test_numbers_are_packed_to_a_scale_of_their_own() -> None:
    codes, low, unit = quantised(np.array([0.0, 1.0, np.nan, 2.0]))
    assert codes.tolist() == [0, 32_767, NONE, 65_534]
    assert (low, unit) == (0.0, 2 / 65_534)
    codes, low, unit = quantised(np.array([7.0, 7.0]))  # one value: nothing to divide by
    assert (codes.tolist(), low, unit) == ([0, 0], 7.0, 0.0)
    assert quantised(np.array([np.nan]))[0].tolist() == [NONE]


def test_packed_numbers_come_back_within_half_a_step() -> None:
    row = np.random.default_rng(0).normal(0, 1e6, 500)
    codes, low, unit = quantised(row)
    assert np.abs(low + unit * codes - row).max() <= unit / 2 * (1 + 1e-9)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_exact_interval_is_that_of_all_resamples(n: int) -> None:
    values = np.random.default_rng(n).normal(size=(6, n))
    low, high = exact_ends(values)
    for row, a, b in zip(values, low, high, strict=True):
        # All n^n ordered resamples, each as likely as another; no weights, no multisets.
        means = np.sort([np.mean(drawn) for drawn in itertools.product(row, repeat=n)])
        for share, end in ((0.025, a), (0.975, b)):
            first = int(np.ceil(share * len(means) - 1e-9)) - 1  # the first that reaches the share
            assert end == pytest.approx(means[max(first, 0)])


def decoded(data: dict[str, object], curve: list[int], row: int, length: int) -> list[float]:
    """A row of a curve, as the page's script reads it."""
    values = np.frombuffer(base64.b64decode(str(data["values"])), "<u2")
    scales = np.frombuffer(base64.b64decode(str(data["scales"])), "<f8").reshape(-1, 2)
    codes = values[curve[2] + row * length :][:length].astype(float)
    low, unit = scales[curve[1] + row]
    return [float(v) for v in np.where(codes == NONE, np.nan, low + unit * codes)]


def test_curves_hold_means_intervals_and_seeds() -> None:
    ragged = {**TWO, ("Here", "dqn", 0.0, 1): [2.0, None]}
    data = curve_data(data_of(ragged)).data
    (view,) = data["views"]
    assert (view["label"], data["grids"][view["grid"]]) == ("Here", [0, 10])
    plain, layered = view["curves"]["score"]
    names = [variant["label"] for variant in data["variants"]]
    assert names == ["DQN", "IB-DQN(4)"]
    assert [plain[0], layered[0]] == [0, 1]
    assert decoded(data, plain, 0, 2) == pytest.approx([1.0, 2.0])  # mean of 0, 2; then of 2 alone
    assert decoded(data, plain, 1, 2) == pytest.approx([0.0, np.nan], nan_ok=True)  # no interval
    assert decoded(data, plain, 4, 2) == pytest.approx([2.0, np.nan], nan_ok=True)  # the 2nd seed
    assert decoded(data, layered, 0, 2) == pytest.approx([11.0, 13.0])
    assert decoded(data, layered, 2, 2) == pytest.approx([12.0, 14.0])  # high: both times the best
    assert data["variants"][1]["dashed"]


def test_environments_of_one_game_are_told_apart() -> None:
    both = {(f"ALE/Pong-v{v}", *key[1:]): own for v in (4, 5) for key, own in TWO.items()}
    labels = [view["label"] for view in curve_data(data_of(both)).data["views"]]
    assert labels == ["All 2 games", "Pong", "Pong (2)"]


def test_all_games_together_are_the_interquartile_mean() -> None:
    table = synthetic_results(games=3, seeds=2, points=2)
    found = report_data(Results(table, (), ()), RESAMPLES)
    data = curve_data(found).data
    view = data["views"][0]
    assert view["label"] == "All 3 games"
    own = found.normalised.filter((pl.col("algorithm") == "dqn") & (pl.col("step") == 25_000_000))
    six = np.sort(own["human_normalized"].to_numpy())  # 3 games x 2 seeds: one is cut at each end
    assert decoded(data, view["curves"]["score"][0], 0, 2)[0] == pytest.approx(
        six[1:5].mean(), 1e-4
    )


def test_a_verdict_in_numbers() -> None:
    found = compared(data_of(TWO))
    # AUC 12 against 2. The lowest resample of the first is 11, the highest of the second 3.
    assert found.difference == Interval(10.0, 8.0, 12.0)
    assert found.improvement == Interval(1.0, 1.0, 1.0)
    assert sentence(found) == "IB-DQN(4) scores higher than DQN."
    assert in_numbers(found) == (
        "IB-DQN(4) scores higher than DQN: mean AUC 12.0 against 2, a difference of +10.0 "
        "[8.0, 12.0]; a run of it is the better one with probability 1.00 [1.00, 1.00], on Here."
    )
    back = compare(data_of(TWO), asked_pairs(data_of(TWO), ["dqn,ib-dqn:4"])[0])
    assert isinstance(back, Comparison)
    assert sentence(back) == "DQN scores lower than IB-DQN(4)."


def test_pairs_are_asked_for_by_every_digit_of_k() -> None:
    """To six digits, the two k here are equal."""
    near = {("Here", "ib-dqn", k, seed): [k, k] for k in (1234567.0, 1234568.0) for seed in (0, 1)}
    found = data_of(near)
    for asked in ("ib-dqn:1234568,ib-dqn:1234567", "ib-dqn:1234568.0,ib-dqn:1.234567e6"):
        (pair,) = asked_pairs(found, [asked])
        assert [variant.k for variant in pair] == [1234568.0, 1234567.0]
    known = "write one of ib-dqn:1234567, ib-dqn:1234568"
    for asked, problem in (("ib-dqn:1.23457e+06", "is not in these"), ("ib-dqn", "is several")):
        with pytest.raises(InvalidInput, match=f"{re.escape(asked)} {problem}.*: {known}"):
            asked_pairs(found, [f"{asked},ib-dqn:1234567"])


def test_equals_and_single_seeds_cannot_be_told_apart() -> None:
    same = {**TWO, ("Here", "ib-dqn", 4.0, 0): [0.0, 2.0], ("Here", "ib-dqn", 4.0, 1): [2.0, 4.0]}
    assert sentence(compared(data_of(same))) == "IB-DQN(4) cannot be told from DQN."
    alone = {key: own for key, own in TWO.items() if key[3] == 0}
    found = compared(data_of(alone))
    assert found.difference == Interval(10.0, None, None)
    assert found.direction == 0
    assert "(one seed: no interval)" in in_numbers(found)


def test_environments_without_a_common_scale_are_compared_by_who_wins() -> None:
    other = {("There", *key[1:]): [1000 * (v or 0) for v in own] for key, own in TWO.items()}
    found = compared(data_of({**TWO, **other}))
    assert found.difference is None
    assert found.improvement.value == 1.0
    assert found.direction == 1
    assert "of 2 environments it is clearly higher on 2 and clearly lower on 0" in in_numbers(found)


def test_runs_under_way_are_compared_as_far_as_both_have_come() -> None:
    ahead = {key: [*own, 1e9] if key[1] == "dqn" else own for key, own in TWO.items()}
    found = compared(data_of(ahead))
    assert found.difference == Interval(10.0, 8.0, 12.0)  # as before: step 20 of one counts not
    assert "compared at the evaluations that both have: Here 2 of 3" in " ".join(found.notes)


def test_what_cannot_be_compared_is_said_in_the_verdict() -> None:
    """Two algorithms are not one, whatever is missing of them."""
    apart = {("There" if key[1] == "dqn" else "Here", *key[1:]): own for key, own in TWO.items()}
    found = verdict(data_of(apart))
    assert found.sentences == [
        "IB-DQN(4) and DQN have no evaluation at the same step of the same environment."
    ]
    ragged = {key: [own[0], None] if key[3] else [None, own[1]] for key, own in TWO.items()}
    assert verdict(data_of(ragged)).sentences == [
        "IB-DQN(4) and DQN cannot be compared: no run of one has all evaluations that both have."
    ]


def test_another_grid_of_evaluations_is_compared_where_both_have_one() -> None:
    """DQN at 0 and 20, IB-DQN at 0, 10 and 20: its AUCs are 11 and 13 without step 10."""
    often = {("Here", "ib-dqn", 4.0, s): [10.0 + 2 * s, 99.0, 12.0 + 2 * s] for s in (0, 1)}
    seldom = {("Here", "dqn", 0.0, s): [2.0 * s, None, 2.0 + 2 * s] for s in (0, 1)}
    results = tidy({**often, **seldom})
    results = results._replace(table=results.table.filter(pl.col("score").is_not_null()))
    assert compared(report_data(results, RESAMPLES)).difference == Interval(10.0, 8.0, 12.0)


def test_headlines_count_all_comparisons() -> None:
    scores = {
        ("Here", "ib-dqn", k, seed): [base + seed] * 2
        for k, base in ((0.0, 0.0), (1.0, 10.0), (2.0, 20.0), (4.0, 0.0), (8.0, -9.0))
        for seed in (0, 1)
    }
    found = data_of(scores)
    first, second = headlines([compared(found, number) for number in range(4)])
    assert first.startswith("The largest gain: IB-DQN(2) scores higher than IB-DQN(0)")
    assert second == (
        "Of 4 comparisons with IB-DQN(0): higher 2 times (k = 1, 2); lower once (IB-DQN(8)); "
        "unclear once (IB-DQN(4))."
    )
    assert headlines([]) == ["There is one algorithm, and nothing to compare it with."]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(49.83, 24.04, 75.71), "+50 [24, 76]"),
        (Interval(-0.01234, -0.02345, -0.00123), "−0.012 [−0.023, −0.001]"),
        (Interval(1234.5, 1000.2, 9000.7), "+1,234 [1,000, 9,001]"),
        (Interval(0.0, 0.0, 0.0), "0.00 [0.00, 0.00]"),
    ],
)
def test_intervals_are_written_with_the_digits_they_are_worth(
    interval: Interval, text: str
) -> None:
    assert written(interval) == text


@pytest.mark.parametrize("asked", ["dqn", "dqn,rainbow", "dqn,ib-dqn:5", "a,b,c"])
def test_comparisons_that_cannot_be_are_refused(asked: str) -> None:
    with pytest.raises(InvalidInput, match=r"write"):
        asked_pairs(data_of(TWO), [asked])


def test_the_title_and_lead_count_what_there_is() -> None:
    found = data_of(TWO)
    assert title(found) == "Here: DQN and IB-DQN"
    assert lead(found) == (
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


class Seen(HTMLParser):
    """Scripts, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and self.scripts:
            self.scripts[-1] = (self.scripts[-1][0], data)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")


EVIL = "</script><img src=x onerror=alert(1)>\u2028<!--"


def test_names_in_json_stay_text() -> None:
    text = elements.embedded("x", {EVIL: [EVIL]})
    inside = text.split(">", 1)[1].rsplit("<", 1)[0]
    assert "<" not in inside
    assert json.loads(inside) == {EVIL: [EVIL]}


def test_names_from_data_stay_text_on_the_whole_page(tmp_path: Path) -> None:
    rows = [
        {"environment": env, "algorithm": EVIL, "seed": seed, "step": step, "score": seed + step}
        for env in (EVIL, "<script>alert(2)</script>")
        for seed in (0, 1)
        for step in (0, 10)
    ]
    file = tmp_path / "evil.csv"
    pl.DataFrame(rows).write_csv(file)
    seen = Seen(results_page(read_results(file), resamples=RESAMPLES))
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "img" not in seen.tags
    kinds = [attributes.get("type") for attributes, _ in seen.scripts]
    assert kinds == ["application/json", "application/json", None, None, None]
    views = json.loads(seen.scripts[0][1])["views"]
    assert {view["label"] for view in views} == {EVIL, "<script>alert(2)</script>"}


def test_the_browser_is_told_to_load_nothing_and_run_these_scripts_alone() -> None:
    text = elements.page("t", "l", [], scripts=["page.js"])
    (policy,) = re.findall(r'Security-Policy" content="([^"]*)"', text)
    (script,) = [own for _, own in Seen(text).scripts]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy
    assert "script-src 'none'" in elements.page("t", "l", [])
    assert "connect-src 'self'" in elements.page("t", "l", [], online=True)


def test_assets_load_nothing() -> None:
    for name in ("page.css", "page.js", "panel.js", "curves.js", "panel.html"):
        text = elements.asset(name).replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.|@import|import\(|<link", text), name


def test_the_page_of_2040_agents_is_small() -> None:
    scores = Path(__file__).parents[3] / "docs" / "reproduction" / "lunarlander-scores.parquet"
    results = read_results(scores)  # as it lies there
    text = results_page(results, resamples=RESAMPLES)
    assert results.table["agent"].n_unique() == 2_040
    assert len(text.encode()) < 2_000_000  # of 6 MB, with 4 left for figures
    (data,) = re.findall(r'id="curve-data">(.*?)</script>', text)
    curves = json.loads(data)["views"][0]["curves"]["score"]
    assert [curve[4] for curve in curves] == [120] * 17  # every seed is in it
