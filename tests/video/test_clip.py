"""Clips for the page of a run: short and small."""

from pathlib import Path

import pytest
from episodes import rendered_clip

from valueshare.files import file_digest
from valueshare.runs.policies import read_policy
from valueshare.video.clip import MAX_FRAMES, WIDTH

av = pytest.importorskip("av", reason="PyAV is not installed")


def test_a_clip_is_short_and_small_and_the_run_is_not_touched(cartpole: Path, tmp_path: Path) -> None:
    before = {path: file_digest(path) for path in cartpole.rglob("*") if path.is_file()}
    result = rendered_clip(cartpole, tmp_path / "clip.mp4")
    assert result.code == 0, result
    assert (tmp_path / "clip.step").read_text() == str(read_policy(cartpole, 0).steps)
    with av.open(str(tmp_path / "clip.mp4")) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == MAX_FRAMES  # episodes of an untrained agent are short: it is more than one
    assert frames[0].shape[1] <= WIDTH
    assert any((frame != frames[0]).any() for frame in frames)
    assert (tmp_path / "clip.mp4").stat().st_size < 300_000
    assert {path: file_digest(path) for path in cartpole.rglob("*") if path.is_file()} == before
