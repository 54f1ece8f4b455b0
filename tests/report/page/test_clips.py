"""Clips of the newest best agent in a page that is served: which agent, when, and why there is none."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from served import ask, end_phase, make_run, running

from valueshare.children import ChildResult
from valueshare.report.page import clips
from valueshare.report.page.clips import Clips
from valueshare.report.page.live import PageUpdater
from valueshare.video.record import write_video

Visiting = Callable[..., Any]


class Renderer:
    """Stands in for the process: ready at once, unless it is `busy`, or refused for a reason."""

    requests: list[dict[str, Any]]
    busy, reason, step = False, "", 10

    def __init__(self, module: str, text: str) -> None:
        assert module == "valueshare.video.clip"
        self.requests.append(json.loads(text))
        if not self.reason:
            frames = [np.full((32, 48, 3), shade, np.uint8) for shade in (0, 90, 180, 255)]
            write_video(Path(self.requests[-1]["video"]), frames, 4.0)
            Path(self.requests[-1]["video"]).with_suffix(".step").write_text(str(self.step))

    def has_ended(self) -> bool:
        return not self.busy

    def result(self) -> ChildResult:
        return ChildResult(2 if self.reason else 0, self.reason)

    def kill(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def renderer(monkeypatch: pytest.MonkeyPatch) -> type[Renderer]:
    pytest.importorskip("av", reason="PyAV is not installed")
    own = type("Own", (Renderer,), {"requests": []})
    monkeypatch.setattr(clips, "Child", own)
    return own


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Scores are agent * step: of IB-DQN(4), agents 2 and 3, agent 3 is the best."""
    return make_run(tmp_path / "run")


@pytest.fixture
def follower(run: Path) -> Iterator[PageUpdater]:
    rendered = Clips()
    folder = rendered._file.parent
    assert folder.is_dir()
    yield PageUpdater([run], resamples=50, clips=rendered)
    rendered.close()
    assert not folder.exists()


@pytest.fixture
def all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """These runs have no checkpoints: a folder of records stands in for them."""
    monkeypatch.setattr("valueshare.report.page.clips.CHECKPOINTS", "records")


@pytest.mark.usefixtures("all_records")
def test_the_best_agent_of_the_headline_is_rendered_after_each_evaluation(
    run: Path, follower: PageUpdater, renderer: type[Renderer]
) -> None:
    follower.refresh()
    follower.show_clip()
    assert [(one["folder"], one["agent"]) for one in renderer.requests] == [(str(run), 3)]
    clip = follower.view.clip
    assert clip is not None
    first = "IB-DQN(4) on Here, agent 3: score 30.0 at step 10"
    assert (clip.number, clip.text, clip.note) == (0, f"The first clip is being rendered: {first}", "")
    renderer.busy = True
    end_phase(run, 1)
    follower.refresh()
    follower.show_clip()
    assert len(renderer.requests) == 1  # one at a time
    renderer.busy, renderer.step = False, 20
    follower.show_clip()
    clip = follower.view.clip
    assert clip is not None
    assert (clip.number, clip.text, clip.note) == (1, first, "The clip of step 20 is being rendered.")
    assert len(renderer.requests) == 2
    for _ in range(3):
        follower.show_clip()
    assert follower.view.clip is not None
    assert (follower.view.clip.number, follower.view.clip.note, len(renderer.requests)) == (2, "", 2)
    assert follower.view.clip.text.endswith("score 60.0 at step 20")
    assert not [path for path in run.rglob("*") if path.suffix == ".mp4"]


@pytest.mark.usefixtures("all_records")
def test_a_clip_of_later_weights_says_so(follower: PageUpdater, renderer: type[Renderer]) -> None:
    """Training goes on while the clip waits for the processor: its checkpoint is newer than the evaluation."""
    renderer.step = 30
    follower.refresh()
    for _ in range(2):
        follower.show_clip()
    assert follower.view.clip is not None
    assert follower.view.clip.text.endswith("score 30.0 at step 10; it plays as of step 30")


@pytest.mark.usefixtures("all_records")
def test_the_page_says_that_clips_were_skipped_or_not_rendered(
    run: Path, follower: PageUpdater, renderer: type[Renderer]
) -> None:
    """While the clip of step 10 is rendered, those of steps 20 and 30 are wanted: 20 has none, and that of 30 fails."""

    def clip() -> tuple[str, str]:
        follower.refresh()
        follower.show_clip()
        assert follower.view.clip is not None
        return follower.view.clip.text.rpartition(" ")[2], follower.view.clip.note

    clip()
    renderer.busy = True
    for phase in (1, 2):
        end_phase(run, phase)
        clip()
    renderer.busy, renderer.reason = False, "no screen"
    skipped = "Some evaluations have no clip: rendering one takes longer than training until the next."
    assert clip() == ("10", f"The clip of step 30 is being rendered. {skipped}")
    assert len(renderer.requests) == 2
    assert clip() == ("10", f"No clip of step 30: no screen. {skipped}")


@pytest.mark.usefixtures("all_records")
def test_an_agent_that_diverged_is_not_the_best(run: Path, follower: PageUpdater, renderer: type[Renderer]) -> None:
    """The score of its frozen weights is the highest by chance; agent 2 is the other one of IB-DQN(4)."""
    (file,) = (run / "records").iterdir()
    records = pl.read_parquet(file)
    step = pl.when(pl.col("agent") == 3).then(pl.lit(7, pl.Int64))
    records.with_columns(diverged_at=step).write_parquet(file)
    follower.refresh()
    follower.show_clip()
    assert [one["agent"] for one in renderer.requests] == [2]


@pytest.mark.usefixtures("all_records")
def test_an_agent_without_a_new_score_is_not_the_best(
    run: Path, follower: PageUpdater, renderer: type[Renderer]
) -> None:
    """Agent 3 has an older score alone, which is the highest."""
    end_phase(run, 1)
    for phase, score in ((0, 1e3), (1, None)):
        file = run / "records" / f"p-{phase}.parquet"
        of_agent = pl.when(pl.col("agent") == 3).then(pl.lit(score, pl.Float64)).otherwise("score")
        pl.read_parquet(file).with_columns(score=of_agent).write_parquet(file)
    follower.refresh()
    follower.show_clip()
    assert [one["agent"] for one in renderer.requests] == [2]


@pytest.mark.usefixtures("all_records")
def test_agents_of_the_second_run_have_its_own_numbers(tmp_path: Path, run: Path, renderer: type[Renderer]) -> None:
    other = make_run(tmp_path / "other", env="There", phases=2)  # more evaluations: it is the newest
    rendered = Clips()
    follower = PageUpdater([run, other], resamples=50, clips=rendered)
    follower.refresh()
    follower.show_clip()
    end_phase(run, 1)
    follower.refresh()
    follower.show_clip()
    assert [(one["folder"], one["agent"]) for one in renderer.requests] == [(str(other), 3), (str(run), 3)]
    rendered.close()


@pytest.mark.usefixtures("all_records")
def test_the_newest_agents_play_where_those_of_the_headline_have_ended(
    tmp_path: Path, run: Path, renderer: type[Renderer]
) -> None:
    """The headline is IB-DQN(4) against DQN; then DQN alone goes on, with seeds 4 and 5 in a run of its own."""
    other = make_run(tmp_path / "other", phases=0, ks=(0.0,), first_seed=4)
    rendered = Clips()
    follower = PageUpdater([tmp_path], resamples=50, clips=rendered)
    for _ in range(2):
        follower.refresh()
        follower.show_clip()
        rows = [{"agent": agent, "step": 10, "score": 1.0 + agent} for agent in range(2)]
        pl.DataFrame(rows).write_parquet(other / "records" / "p-0.parquet")
    follower.show_clip()
    assert [(one["folder"], one["agent"]) for one in renderer.requests] == [(str(run), 3), (str(other), 1)]
    assert follower.view.clip is not None
    assert follower.view.clip.text == "DQN on Here, agent 1: score 2 at step 10"
    rendered.close()


@pytest.mark.usefixtures("all_records")
def test_a_clip_that_cannot_be_made_is_one_line(
    tmp_path: Path, run: Path, follower: PageUpdater, renderer: type[Renderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(own: PageUpdater) -> str:
        own.refresh()
        own.show_clip()
        own.show_clip()
        assert own.clips is not None
        own.clips.close()
        assert own.view.clip is not None
        assert not own.view.clip.number
        return own.view.clip.text

    renderer.reason = "Here cannot be rendered here"
    assert line(follower) == "No clip: Here cannot be rendered here"
    renderer.requests.clear()
    module = make_run(tmp_path / "module", env="evil:Env-v0")
    own = PageUpdater([module], resamples=50, clips=Clips())
    assert line(own) == (
        "No clip: evil:Env-v0 needs the module evil, which is not imported for a page; use valueshare play"
    )
    at_address = PageUpdater([run], resamples=50, clips=Clips(lambda text: text.replace(str(run), "s3://run")))
    assert "at a URL" in line(at_address)
    monkeypatch.setattr(clips, "NEEDED", ("torch", "no_such_module"))
    assert "install" in line(PageUpdater([run], resamples=50, clips=Clips()))
    assert renderer.requests == []


def test_results_without_weights_have_none(run: Path, follower: PageUpdater, renderer: type[Renderer]) -> None:
    follower.refresh()
    follower.show_clip()
    assert (follower.view.clip, renderer.requests) == (None, [])


@pytest.mark.usefixtures("all_records")
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 390])
def test_the_page_shows_the_newest_clip(
    run: Path, follower: PageUpdater, renderer: type[Renderer], visit: Visiting, width: int
) -> None:
    follower.refresh()
    for _ in range(2):
        follower.show_clip()
    seen = visit(viewport={"width": width, "height": 900}, reduced_motion="no-preference")
    with running(follower) as port:
        assert json.loads(ask(port, "/state.json")[1])["clip"]["number"] == 1
        response, body = ask(port, "/clip-1.mp4")
        assert (response.status, response.getheader("Content-Type"), body[4:8]) == (200, "video/mp4", b"ftyp")
        assert ask(port, "/clip-2.mp4")[0].status == 404
        assert ask(port, "/clip-1.mp4", Host="evil.example")[0].status == 403
        page = seen.page
        page.goto(f"http://127.0.0.1:{port}/")
        video = page.locator("#clip video")
        video.wait_for()
        video.scroll_into_view_if_needed()
        video.evaluate("(v) => new Promise((done) => { v.ontimeupdate = () => v.paused || done(); })")  # it plays
        assert video.evaluate("(v) => [v.videoWidth, v.videoHeight, v.loop, v.muted]") == [48, 32, True, True]
        assert page.inner_text("#clip").strip() == "IB-DQN(4) on Here, agent 3: score 30.0 at step 10"
        # A note comes and goes without another request for the clip, which plays on.
        clip, playing = follower.view.clip, video.element_handle()
        assert clip is not None
        follower.view = follower.view._replace(clip=clip._replace(note="The next one."))
        page.locator("#clip", has_text="The next one.").wait_for()
        follower.view = follower.view._replace(clip=clip)
        page.locator("#clip small", has_not_text="The").wait_for(state="attached")
        assert playing.evaluate("(v) => v.isConnected && !v.paused")
        assert len([url for url in seen.asked if url.endswith("/clip-1.mp4")]) == 1
        # A new start of watch counts its clips from 1 again.
        follower.view = follower.view._replace(clip=clip._replace(text="Another run"))
        page.locator("#clip", has_text="Another run").wait_for()
        assert not playing.evaluate("(v) => v.isConnected")
        plot, box = page.locator("#panel-plot").bounding_box(), video.bounding_box()
        assert box["x"] >= plot["x"] + plot["width"] if width == 1280 else box["y"] >= plot["y"] + plot["height"]
        assert page.evaluate("document.documentElement.scrollWidth") == width
        end_phase(run, 1)
        follower.refresh()
        for _ in range(2):
            follower.show_clip()
        page.locator("#clip", has_text="at step 20").wait_for()
        assert page.locator("#clip video").count() == 1
        assert seen.said == []
