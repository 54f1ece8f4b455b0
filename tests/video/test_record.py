"""Videos: the episode is the environment's, the numbers are the network's, the file is whole."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ale_py
import ale_py.roms
import av
import gymnasium
import numpy as np
import pytest
from episodes import HIDDEN, SHORT, episode
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import valueshare
from valueshare.cli.play import play as command
from valueshare.envs import environment_spec
from valueshare.errors import InvalidInput
from valueshare.nn.torsos import NetworkShape
from valueshare.signals import Stopped
from valueshare.video import rendering
from valueshare.video.overlay import (
    HEIGHT,
    PANEL,
    Overlay,
)
from valueshare.video.record import check_video_path, play, write_video
from valueshare.video.rendering import make_rendered_env
from valueshare.video.rollouts import RolloutStep


def decoded(path: Path) -> NDArray[np.uint8]:
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames)


# Files


def test_a_video_of_cartpole(cartpole: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "new" / "out.mp4"
    command(cartpole, agent=0, video=path, episodes=2, seed=3)
    first, second, mean, wrote = capsys.readouterr().out.splitlines()
    shown = episode(cartpole, 0, episodes=2)
    steps = [taken.step for taken in shown if taken.ending]
    assert first.startswith(f"episode 1: score {steps[0]}, {steps[0]} steps, ")
    assert second.startswith(f"episode 2: score {steps[1]}, {steps[1]} steps, ")
    assert mean == f"mean score {sum(steps) / 2:g} of 2 episodes" or sum(steps) % 2
    frames = decoded(path)
    # One frame per decision, and a second of each end: 50 frames.
    assert frames.shape == (sum(steps) + 2 * 50, HEIGHT, 600 + PANEL, 3)
    assert f"{len(frames)} frames, {600 + PANEL}x{HEIGHT}, 50 frames per second" in wrote
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == 50
    starts = np.cumsum([0, *(50 if taken.ending else 1 for taken in shown[:-1])])
    check_frames(frames[starts, 120:520, :600], [taken.image for taken in shown])
    assert [entry.name for entry in path.parent.iterdir()] == ["out.mp4"]


def check_frames(frames: NDArray[np.uint8], pictures: list[Any]) -> None:
    """Each frame is nearer to its own picture than to all others; every eighth than to its own one changed.

    How near depends on the encoder, which rounds all colours: on some, white becomes 253.
    """

    def distances(one: Any, other: Any) -> NDArray[np.float32]:
        """Mean squared differences of every pair, as |a - b|^2 = |a|^2 + |b|^2 - 2 ab; white is 0."""
        a, b = (np.subtract(images, 255, dtype=np.float32).reshape(len(images), -1) for images in (one, other))
        means: NDArray[np.float32] = (np.square(a).sum(1)[:, None] + np.square(b).sum(1) - 2 * a @ b.T) / a.shape[1]
        return means

    to_pictures, bits = distances(frames, pictures), [picture.tobytes() for picture in pictures]
    for own, others, same in zip(to_pictures.diagonal(), to_pictures, bits, strict=True):
        assert own < min(other for other, its in zip(others, bits, strict=True) if its != same)
    for number in range(0, len(frames), 8):
        picture = pictures[number]
        moved = [np.roll(picture, by, axis) for by in (-1, 1) for axis in (0, 1)]  # by one pixel
        turned = [picture[::-1], picture[:, ::-1], picture[..., ::-1]]  # and blue for red
        empty = np.full_like(picture, picture[0, 0])
        *changed, to_empty = distances(frames[number : number + 1], [*moved, *turned, empty])[0]
        assert to_pictures[number, number] < min(*changed, to_empty / 10)


def test_a_video_of_pong(pong: Path, tmp_path: Path) -> None:
    played = play(pong, 0, tmp_path / "pong.mp4", episode_limit=10)
    assert played.episodes[0][1:] == (10, "cut off")
    assert played.has_screen
    frames = decoded(played.video.path)
    assert frames.shape == (10 + 15, HEIGHT, 480 + PANEL, 3)
    emulator: Any = ale_py.ALEInterface()
    emulator.loadROM(ale_py.roms.get_rom_path("pong"))
    emulator.reset_game()
    field = emulator.getScreenRGB()[100:130, 60:90].reshape(-1, 3).mean(0)
    seen = frames[0, 305:395, 180:270].reshape(-1, 3).mean(0)  # three times the size, 5 from above
    np.testing.assert_allclose(seen, field, atol=3)


def test_a_gif(cartpole: Path, tmp_path: Path) -> None:
    video = play(cartpole, 2, tmp_path / "out.gif", episode_limit=6).video
    with Image.open(video.path) as image:
        assert image.size == (video.width, video.height) == (600 + PANEL, HEIGHT)
        time = 0
        for number in range(getattr(image, "n_frames", 1)):
            image.seek(number)
            time += image.info["duration"]
    assert time == 20 * video.frames == 20 * (6 + 50)  # equal frames are one, shown for longer


def test_what_cannot_be_rendered_is_drawn_as_numbers(
    tmp_path: Path, cartpole: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    lake = make_rendered_env(environment_spec("FrozenLake-v1"))
    assert (lake.reset(0).image, lake.problem) == (None, "EnvPool: render not implemented for this environment")
    assert make_rendered_env(environment_spec("Catch-v0")).reset(0).image is None  # EnvPool has none
    bare: Any = lambda: gymnasium.make("CartPole-v1")  # noqa: E731 (of a type that Gymnasium does not declare)
    gymnasium.register("tests/NoRenderMode-v0", bare)
    _, problem = rendering._gymnasium_env("tests/NoRenderMode-v0")
    assert problem == "its constructor takes no render_mode"
    monkeypatch.setattr(rendering, "_checked_image", lambda _rendered: None)
    command(cartpole, agent=0, video=tmp_path / "bars.mp4", episode_limit=5)
    assert "cannot be rendered here (render() returns no RGB image): its obs" in capsys.readouterr().out
    frames = decoded(tmp_path / "bars.mp4")
    assert frames.shape[1:] == (HEIGHT, 480 + PANEL, 3)
    assert frames[0, :, :480].max() > 100  # something is there


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def frames() -> Iterator[NDArray[np.uint8]]:
        yield np.zeros((32, 32, 3), np.uint8)
        raise KeyboardInterrupt

    for suffix in ("mp4", "gif"):
        with pytest.raises(KeyboardInterrupt):
            write_video(tmp_path / f"out.{suffix}", frames(), 15)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError])
def test_an_error_of_the_frames_is_none_of_the_file(tmp_path: Path, kind: type[OSError]) -> None:
    def frames() -> Iterator[NDArray[np.uint8]]:
        yield np.zeros((32, 32, 3), np.uint8)
        raise kind("of the renderer")

    for suffix in ("mp4", "gif"):
        with pytest.raises(kind, match="of the renderer"):
            write_video(tmp_path / "new" / f"out.{suffix}", frames(), 15)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_leaves_nothing(cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Overlay.draw

    def signalled(overlay: Overlay, taken: RolloutStep) -> NDArray[np.uint8]:
        if taken.step == 2:
            signal.raise_signal(signal.SIGTERM)
        return draw(overlay, taken)

    monkeypatch.setattr(Overlay, "draw", signalled)
    with pytest.raises(Stopped, match="nothing was written"):
        command(cartpole, agent=0, video=tmp_path / "out.mp4", seed=3)
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, file = tmp_path / "there.gif", tmp_path / "out.mp4"
    there.write_bytes(b"mine")
    for message, arguments, options in (
        ("ends in .mp4 or .gif", (cartpole, 0, tmp_path / "out.avi"), {}),
        ("add `overwrite = True`", (cartpole, 0, there), {}),
        ("is a folder", (cartpole, 0, tmp_path.parent / "a.mp4"), {}),
        ("cannot write to /proc", (cartpole, 0, "/proc/none/out.gif"), {}),
        ("cannot write (/proc/out.mp4|to /proc): choose", (cartpole, 0, "/proc/out.mp4"), {"episode_limit": 2}),
        ("file name too long; choose another folder", (cartpole, 0, tmp_path.joinpath(*["a"] * 3_000, "b.gif")), {}),
        ("no agent 4 in .*: its agents are 0 to 3", (cartpole, 4, file), {}),
        ("no agent 4", (cartpole, 4, there), {}),  # what is to be played comes first
        ("no training run", (tmp_path, 0, file), {}),
        ("no training run", (tmp_path, 0, there), {}),
        ("none does not exist: give the folder", (tmp_path / "none", 0, file), {}),
        ("`episodes = 0`: write a number >= 1", (cartpole, 0, file), {"episodes": 0}),
        ("`epsilon = 2`: write a number from 0 to 1", (cartpole, 0, file), {"epsilon": 2}),
        ("`episode_limit = 0`: write a number >= 1", (cartpole, 0, file), {"episode_limit": 0}),
        ("uses a built-in network", (cartpole, 0, file), {"network": nn.Linear}),
    ):
        (tmp_path.parent / "a.mp4").mkdir(exist_ok=True)
        with pytest.raises(InvalidInput, match=message):
            play(*arguments, **options)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InvalidInput, match=r"\[video\].*\.gif"):
        check_video_path(file)
    check_video_path(tmp_path / "out.gif")  # needs no PyAV
    assert there.read_bytes() == b"mine"
    assert not file.exists()


def test_an_address_is_refused_by_its_name(tmp_path: Path, cli: Callable[..., Any]) -> None:
    words = ("--agent", "0", "--video", tmp_path / "out.gif")
    for given, shown in (
        ("s3://bucket/run", "s3://bucket/run"),
        ("gs://me:pw@bucket/run", "gs://bucket/run"),
    ):
        code, out, err = cli("play", given, *words)
        assert (code, out) == (2, "")
        assert err == (f"valueshare: {shown} is a URL: copy the run from there, and give its folder\n")


def test_before_the_first_phase_is_done(tmp_path: Path) -> None:
    out = tmp_path / "run"
    every: dict[str, Any] = {**SHORT, "hidden": HIDDEN, "should_stop": lambda: True}
    assert not valueshare.train("CartPole-v1", "dqn", seeds=1, out=out, **every).finished
    (tmp_path / "out.mp4").write_bytes(b"mine")
    with pytest.raises(InvalidInput, match="agent 0 has no checkpoint: valueshare resume"):
        play(out, 0, tmp_path / "out.mp4")


def own_network(shape: NetworkShape, k: float) -> nn.Module:
    return nn.Sequential(nn.Linear(4, shape.actions), valueshare.MeanExpansion(k))


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    out = tmp_path / "run"
    valueshare.train("CartPole-v1", "ib-dqn", k=2, seeds=1, out=out, network=own_network, **SHORT)
    with pytest.raises(InvalidInput, match="uses a custom network"):
        play(out, 0, tmp_path / "out.gif")
    assert play(out, 0, tmp_path / "out.gif", episode_limit=3, network=own_network).episodes
