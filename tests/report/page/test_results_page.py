"""The page's parts, each against arithmetic that can be followed by hand."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
from synthetic import RESAMPLES

from valueshare.analysis.importers.results import Results, read_results
from valueshare.report.page import elements
from valueshare.report.page.results import SCRIPTS, results_page


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


MARKUP = "</script><img src=x onerror=alert(1)><!--"
EVIL = f"{MARKUP}\u2028"


def test_names_in_json_stay_text() -> None:
    text = elements.embedded("x", {EVIL: [EVIL]})
    inside = text.split(">", 1)[1].rsplit("<", 1)[0]
    assert "<" not in inside
    assert json.loads(inside) == {EVIL: [EVIL]}


def test_names_from_data_stay_text_on_the_whole_page(tmp_path: Path) -> None:
    rows = [
        {"environment": env, "algorithm": MARKUP, "seed": seed, "step": step, "score": seed + step}
        for env in (MARKUP, "<script>alert(2)</script>")
        for seed in (0, 1)
        for step in (0, 10)
    ]
    file = tmp_path / "evil.csv"
    pl.DataFrame(rows).write_csv(file)
    seen = Seen(results_page(read_results(file), resamples=RESAMPLES))
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "img" not in seen.tags
    kinds = [attributes.get("type") for attributes, _ in seen.scripts]
    assert kinds == ["application/json", "application/json", *[None] * 5]
    views = json.loads(seen.scripts[0][1])["views"]
    assert {view["label"] for view in views} == {MARKUP, "<script>alert(2)</script>"}


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
    for name in ("page.css", "panel.html", *SCRIPTS):
        text = elements.asset(name).replace("https://github.com/leeoniya/uPlot", "")  # in a comment
        assert not re.search(r"https?:|//[a-z]+\.|@import|import\(|<link", text), name


def test_uplot_is_the_published_one_and_its_licence_is_in_the_page() -> None:
    folder = Path(elements.__file__).parent / "assets" / "uplot"
    listed = dict(re.findall(r"^\| `(\S+)` \| `([0-9a-f]{64})` \|$", (folder / "README.md").read_text(), re.MULTILINE))
    assert set(listed) == {file.name for file in folder.iterdir()} - {"README.md"}
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    assert "Permission is hereby granted" in elements.page("t", "l", [], scripts=SCRIPTS)


def test_the_page_of_2040_agents_is_small() -> None:
    scores = Path(__file__).parents[3] / "docs" / "reproduction" / "lunarlander-scores.parquet"
    results = read_results(scores)  # as it lies there
    text = results_page(results, resamples=RESAMPLES)
    assert results.table["agent"].n_unique() == 2_040
    assert len(text.encode()) < 2_000_000  # of 6 MB, with 4 left for figures
    (data,) = re.findall(r'id="curve-data">(.*?)</script>', text)
    curves = json.loads(data)["views"][0]["curves"]["score"]
    assert [curve[4] for curve in curves] == [120] * 17  # every seed is in it
    # 16 comparisons: six are open, the headline's first.
    shown, folded = text.split('<details id="more-findings-details"><summary>10 more comparisons</summary>')
    assert (
        len(re.findall("IB-DQN\\([0-9]+\\)</span> scores|</span> cannot be told", shown.split('id="findings"')[1])) == 6
    )
    assert shown.split('id="findings"')[1].split("<tbody>")[1].index("IB-DQN(4)") < 200
    assert folded.split("</details>")[0].count("<circle") == 10
    assert "IB-DQN(0)" not in text


def test_numbers_of_the_verdict_have_a_real_minus_and_names_a_hyphen() -> None:
    """DQN scores -3, -2 and -1, IB-DQN(4) 6 less: of resampled seeds, differences of means lie 4/3 to either side."""
    rows = [
        {"env": "Lake-v1", "algorithm": "ib-dqn", "k": k, "seed": seed, "step": step, "score": seed + score}
        for k, score in ((0.0, -3.0), (4.0, -9.0))
        for seed in (0, 1, 2)
        for step in (0, 1)
    ]
    page = results_page(Results(pl.DataFrame(rows), (), ()), resamples=200)
    verdict = page[page.index('id="verdict"') : page.index('id="curves"')]
    text = re.sub("<[^>]*>", "", verdict)
    assert "−8 against −2, a difference of −6.0 [−7.3, −4.7]" in text
    assert "IB-DQN(4)" in text
    assert "on Lake-v1" in text
    assert not re.search(r"[\s\[]-\d", text)
