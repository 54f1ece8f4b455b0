"""Videos of agents beside their curves: found in run folders, matched with their agents, played by the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import synthetic_results, write_synthetic_run

from valueshare.analysis.importers.results import read_results
from valueshare.report.data import report_data
from valueshare.report.page.results import results_page
from valueshare.report.page.videos import find_videos
from valueshare.video.record import write_video

Visiting = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One game, seven algorithms, two seeds: agent 13 is the second of the last, IB-IQN(n)."""
    run = write_synthetic_run(tmp_path / "run", synthetic_results(1, 2, 5))
    (run / "videos").mkdir()
    return run


def test_videos_are_those_of_their_agents(run: Path, tmp_path: Path) -> None:
    (run / "videos" / "agent-13.gif").write_bytes(b"a gif")
    (run / "videos" / "agent-0.mp4").write_bytes(b"a video")
    (run / "videos" / "agent-99.mp4").write_bytes(b"of nobody")
    (run / "videos" / "notes.txt").write_text("mine")
    (tmp_path / "secret").write_bytes(b"secret")
    (run / "videos" / "agent-1.mp4").symlink_to(tmp_path / "secret")
    other = write_synthetic_run(tmp_path / "other", synthetic_results(2, 1, 5).filter(env="Amidar"))
    (other / "videos").mkdir()
    (other / "videos" / "agent-2.gif").write_bytes(b"another")
    results = read_results([run, other])
    found, notes = find_videos(report_data(results, 200))
    assert [(own["env"], own["label"], own["src"]) for own in found] == [
        ("Alien", "DQN, seed 0 (agent 0)", "data:video/mp4;base64,YSB2aWRlbw=="),
        ("Alien", "IB-IQN(n), seed 1 (agent 13)", "data:image/gif;base64,YSBnaWY="),
        ("Amidar", "IB-DQN(1), seed 0 (agent 2)", "data:image/gif;base64,YW5vdGhlcg=="),
    ]
    assert notes == ()
    few, notes = find_videos(report_data(results, 200), room=8)
    assert [own["label"] for own in few] == ["DQN, seed 0 (agent 0)"]  # 7 bytes
    assert notes == ("2 videos of agents are not in the page: together they would make it large.",)


def test_the_page_plays_the_video_beside_its_curve(run: Path, tmp_path: Path, visit: Visiting) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    frames = [np.full((32, 48, 3), shade, np.uint8) for shade in (0, 90, 180, 255)]
    write_video(run / "videos" / "agent-13.mp4", frames, 4.0)
    write_video(run / "videos" / "agent-0.gif", frames, 4.0)
    file = tmp_path / "report.html"
    file.write_text(results_page(read_results(run), resamples=200, compare=["ib-iqn:18,iqn"]))
    seen = visit().open(file)
    page = seen.page
    assert not page.get_by_text("No agent plays here yet").is_visible()
    size = (
        "(v) => new Promise((done) => { v.onloadedmetadata = v.onerror = () => done([v.videoWidth, v.videoHeight]);"
        "v.load(); })"
    )
    assert page.locator("#panel video").evaluate(size) == [48, 32]
    assert page.locator("#panel img").count() == 0  # DQN is not shown
    page.locator("[data-key='DQN']").check(force=True)
    image = page.locator("#panel img")
    assert image.evaluate("async (i) => { await i.decode(); return i.naturalWidth; }") == 48
    assert page.locator("#panel figcaption").all_inner_texts() == [
        "DQN, seed 0 (agent 0)", "IB-IQN(n), seed 1 (agent 13)"
    ]  # fmt: skip
    plot, video = page.locator("#panel-plot").bounding_box(), page.locator("#panel video").bounding_box()
    assert video["x"] >= plot["x"] + plot["width"]
    assert seen.said == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_without_videos_says_how_to_make_one(run: Path, tmp_path: Path, visit: Visiting, width: int) -> None:
    results = read_results(run)
    file = tmp_path / "report.html"
    file.write_text(results_page(results, resamples=50))
    page = visit(viewport={"width": width, "height": 900}).open(file).page
    assert page.get_by_text("valueshare play RUN --agent 0 --video RUN/videos/agent-0.mp4").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate("() => { let one; while ((one = document.querySelector('.chip input:checked'))) one.click(); }")
    empty = "getComputedStyle(document.getElementById('panel-plot'), '::after').content"
    assert page.evaluate(empty) == '"No curve: tick an algorithm above"'
    file.write_text(results_page(results._replace(sources=()), resamples=50))  # of another program: no agent can play
    page.reload()
    assert not page.get_by_text("No agent plays here yet").is_visible()
