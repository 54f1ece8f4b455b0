"""Videos of a trained agent: `play` makes one, `write_video` writes frames to a file."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from valueshare.algorithm_info import algorithm_label
from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.files import make_parents, reason, remove_empty, remove_temporary_files, temporary_file
from valueshare.population.evaluate import check_episode_options, most_steps
from valueshare.population.networks import NetworkFactory
from valueshare.population.policy import Policy
from valueshare.runs.directory import refuse_links_in_run
from valueshare.runs.policies import read_policy
from valueshare.runs.storage.locations import Location, Url, resolve_location
from valueshare.setting import as_count
from valueshare.text import either, pluralize
from valueshare.video.overlay import Captions, Overlay
from valueshare.video.rendering import Frame, make_rendered_env
from valueshare.video.rollouts import BAND, RolloutStep, rollout

SUFFIXES = (".mp4", ".gif")
LEFT_SECONDS = 3_600.0  # without a write: another process may be writing the same video now
LAST_SECONDS = 1.0  # that the last frame of an episode is shown
QUALITY = {"crf": "20", "preset": "veryfast"}  # of H.264: small text stays sharp


class Episode(NamedTuple):
    """The end of an episode."""

    score: float
    steps: int
    ending: str  # terminated, time limit, or cut off: by the caller's episode_limit


class Video(NamedTuple):
    """A file that was written."""

    path: Path
    frames: int
    width: int
    height: int
    rate: float  # frames per second


class PlayResult(NamedTuple):
    """Episodes, and the video of them."""

    episodes: tuple[Episode, ...]
    video: Video
    has_screen: bool  # False: the observations are drawn in its place
    problem: str = ""  # why there is no screen


def play(
    folder: str | Location,
    agent: int,
    video: str | Path,
    *,
    episodes: int = 1,
    seed: int = 0,
    epsilon: float | None = None,
    episode_limit: int | None = None,
    overwrite: bool = False,
    network: NetworkFactory | None = None,
    on_step: Callable[[RolloutStep], None] | None = None,
) -> PlayResult:
    """Roll out an agent of a run, and write a video with its values beside the screen.

    The agent is as it was after its last finished phase, and acts as in evaluation. `epsilon` is that of the run's
    evaluations unless given. `episode_limit` is the most steps of an episode, instead of that of the run's
    evaluations or the environment's own. `network` is the factory of a run that has its own. `on_step` is called with
    every step before it is drawn. A line is printed before a module that the run names is imported.
    """
    location, path = resolve_location(folder), Path(video)
    if isinstance(location, Url):
        raise InvalidInput(f"{location} is a URL: copy the run from there, and give its folder")
    episodes = as_count("episodes", episodes)
    check_episode_options(epsilon, episode_limit)
    trained = read_policy(location, agent, network)
    settings, env = trained.population.settings, trained.population.env
    most_steps(settings, env, episode_limit)  # or refuse, before anything is made
    check_video_path(path, overwrite=overwrite)
    rendered = make_rendered_env(env, settings.atari_protocol)
    epsilon = settings.eval_epsilon if epsilon is None else epsilon
    done: list[Episode] = []
    has_screen = True

    def frames() -> Iterator[Frame]:
        nonlocal has_screen
        overlay = None
        for step in rollout(
            trained, rendered, episodes=episodes, seed=seed, epsilon=epsilon, episode_limit=episode_limit
        ):
            if on_step is not None:
                on_step(step)
            if overlay is None:
                overlay = Overlay(_captions(trained, rendered.actions), step)
                has_screen = step.image is not None
            frame = overlay.draw(step)
            yield frame
            if step.ending is not None:
                done.append(Episode(step.score, step.step, step.ending))
                for _ in range(round(LAST_SECONDS * rendered.rate) - 1):
                    yield frame

    try:
        written = write_video(path, frames(), rendered.rate)
    finally:
        rendered.close()
    return PlayResult(tuple(done), written, has_screen, rendered.problem)


def check_video_path(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a file that cannot or must not be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInput(f"{path}: write a name that ends in {either(SUFFIXES)}")
    try:
        exists = path.exists()
    except OSError as error:  # of a name that is too long, say
        raise InvalidInput(f"cannot write {path}: {reason(error)}; choose another folder") from error
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder: give the name of a file in it")
    if exists and not overwrite:
        raise InvalidInput(f"{path} already exists: choose another name, or add `overwrite = True`")
    refuse_links_in_run(path)
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InvalidInput(f"cannot write to {above}: choose another folder")
    if path.suffix.lower() == ".mp4":
        _av()


def write_video(path: Path, frames: Iterable[Frame], rate: float) -> Video:
    """Frames [H, W, 3] as a video, H and W even: H.264 in .mp4, or .gif; written atomically.

    A frame is drawn when the one before it is written. A GIF counts in hundredths of a second: 15 frames per second
    become 14.3.
    """
    ordered = iter(frames)
    first = next(ordered)
    try:
        new_parents = make_parents(path)
    except OSError as error:
        raise InvalidInput(f"cannot write to {path.parent}: {reason(error)}") from error
    write = _write_gif if path.suffix.lower() == ".gif" else _write_mp4
    remove_temporary_files(path.parent, re.compile(re.escape(path.name)), LEFT_SECONDS)
    try:
        with ExitStack() as stack:
            try:
                partial, _ = stack.enter_context(temporary_file(path))
            except (FileNotFoundError, PermissionError) as error:  # as in /proc and /sys
                raise InvalidInput(f"cannot write {path}: choose another folder") from error
            count = write(partial, chain([first], ordered), rate)
    except BaseException:
        remove_empty(new_parents)
        raise
    return Video(path, count, first.shape[1], first.shape[0], rate)


def _write_mp4(path: Path, frames: Iterator[Frame], rate: float) -> int:
    """Encode frames as H.264; returns their number."""
    av, first, count = _av(), next(frames), 0
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        exact = Fraction(rate).limit_denominator(1001)
        stream = container.add_stream("libx264", rate=exact, options=QUALITY)
        stream.height, stream.width = first.shape[:2]
        stream.pix_fmt = "yuv420p"  # which every player supports
        for frame in chain([first], frames):
            count += 1
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return count


def _write_gif(path: Path, frames: Iterator[Frame], rate: float) -> int:
    """Write frames as a GIF; returns their number."""
    from PIL import Image

    count = 0

    def reduced() -> Iterator[Image.Image]:
        nonlocal count
        before, image = None, None
        for frame in frames:
            count += 1
            if image is None or frame is not before:  # the last frame is repeated
                # A palette per frame, as colours change. No dithering: it would flicker.
                method, dither = Image.Quantize.FASTOCTREE, Image.Dither.NONE
                before, image = frame, Image.fromarray(frame).quantize(255, method, dither=dither)
            yield image

    images = reduced()
    duration = max(20, 10 * round(100 / rate))  # ms; players slow down shorter ones
    with path.open("wb") as file:
        next(images).save(file, format="GIF", duration=duration, save_all=True, append_images=images, loop=0)
    return count


def _av() -> Any:
    """PyAV, imported on first use: it is an extra."""
    try:
        import av
    except ImportError as missing:
        raise InvalidInput(f"an .mp4 needs PyAV: {install_command('video')}, or write a .gif") from missing
    return av


def _captions(agent: Policy, actions: tuple[str, ...]) -> Captions:
    env, algorithm = agent.population.env, agent.population.algorithm
    baseline = algorithm.baseline_caption.format(k=agent.k)
    low, high = (100 * share for share in BAND)
    values = f"q = b + z, {low:.0f}–{high:.0f} % of the return" if algorithm.is_quantile else "q = b + z"
    name, label = env.name.removeprefix("ALE/"), algorithm_label(agent.algorithm, agent.k)
    title = f"{name} · {label} · agent {agent.number}, {pluralize(agent.steps, 'step')}"
    return Captions(title, baseline, values, actions)
