"""Videos: the episode is the environment's, the numbers are the network's, the file is whole."""

import signal
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import ale_py
import ale_py.roms
import av
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import valueshare
from valueshare.commands.play import play as command
from valueshare.envs import environment_spec, make_environments
from valueshare.errors import InvalidInput
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.nn.torsos import NetworkShape
from valueshare.runs.run_folder import read_weights
from valueshare.runs.signals import Stopped
from valueshare.video import rendering
from valueshare.video.overlay import (
    HEIGHT,
    PANEL,
    ROWS_TOP,
    Axis,
    Captions,
    Overlay,
    fitted,
    number_text,
    scaled,
)
from valueshare.video.record import check_target, play, write_video
from valueshare.video.rendering import make_rendered_env
from valueshare.video.rollouts import RolloutStep, Values, load_agent, rollout, values_of

ALGORITHMS_PLAYED = ("ib-dqn", "dueling-dqn", "rdq", "ib-iqn")
HIDDEN = (16, 16)
K = 4.0
SHORT: dict[str, Any] = {
    "steps": 120,
    "eval_interval": 60,
    "eval_episodes": 1,
    "eval_episode_limit": 40,
    "batch_size": 8,
    "learning_starts": 20,
    "progress": False,
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent of each architecture: 0 ib-dqn, 1 dueling-dqn, 2 rdq, 3 ib-iqn."""
    out = tmp_path_factory.mktemp("runs") / "cartpole"
    valueshare.train(
        "CartPole-v1", ALGORITHMS_PLAYED, k=K, seeds=1, hidden=HIDDEN, out=out, **SHORT
    )
    return out


@pytest.fixture(scope="module")
def pong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "pong"
    small = {"steps": 24, "eval_interval": 24, "eval_episodes": 0, "eval_timesteps": 8}
    options = {"eval_envs": 1, "replay_capacity": 64, "learning_starts": 8, "batch_size": 2}
    every: dict[str, Any] = {**small, **options}
    valueshare.train("Pong", "ib-dqn", k=18, seeds=1, out=out, progress=False, **every)
    return out


def network_of(folder: Path, agent: int, algorithm: str) -> nn.Module:
    """One agent's own module with its weights: no population, no vmap."""
    shape = NetworkShape((4,), 2, HIDDEN, 1.0)
    module = ALGORITHMS[algorithm].build(shape, K)
    module.load_state_dict(read_weights(folder, agent))
    return module


def episode(folder: Path, agent: int, **options: Any) -> list[RolloutStep]:
    player = load_agent(folder, agent)
    env = player.population.env
    stage = make_rendered_env(env, player.population.settings.atari_protocol)
    given = {"episodes": 1, "seed": 3, "epsilon": 0.0, "max_steps": None, **options}
    shown = list(rollout(player, stage, **given))
    stage.close()
    return shown


def decoded(path: Path) -> NDArray[np.uint8]:
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames)


# What is drawn


def test_worked_example() -> None:
    # Figure 1 of the paper: z = (3, 1), k = 2: b = 2·mean(3, 1) = 4, q = (7, 5).
    values = values_of("plain", np.array([7.0, 5.0]), 2.0)
    assert values.baseline == pytest.approx(4)
    np.testing.assert_allclose(values.residuals, [3, 1])
    # Two quantiles around it: the same of their mean, (6, 8) -> 7 and (1, 9) -> 5.
    spread = values_of("quantile", np.array([[6.0, 1.0], [8.0, 9.0]]), 2.0)
    assert spread.baseline == pytest.approx(4)
    np.testing.assert_allclose(spread.residuals, [3, 1])
    assert spread.band is not None
    np.testing.assert_allclose(spread.band, [[6.2, 1.8], [7.8, 8.2]])  # a tenth from either end


def test_numbers_are_those_of_the_layers(cartpole: Path) -> None:
    """q, b and z against what the layers of one agent's own module give, caught on the way."""
    for agent, algorithm in enumerate(ALGORITHMS_PLAYED[:3]):
        module = network_of(cartpole, agent, algorithm)
        caught: dict[str, Any] = {}

        def keep(name: str, caught: dict[str, Any]) -> Any:
            return lambda _module, inputs, output: caught.update(
                {name: (inputs[0].numpy(), output.numpy())}
            )

        for name, layer in module.named_modules():
            layer.register_forward_hook(keep(name, caught))
        shown = episode(cartpole, agent)
        for moment in shown[:-1]:
            with torch.no_grad():
                outputs = module(torch.from_numpy(moment.observation)).numpy()
            if algorithm == "ib-dqn":
                z, q = caught["head.expansion"]
                b = K * z.mean()
            else:
                b = caught["head.baseline"][1][0]
                x = caught["head.residual"][1]
                z = x - x.mean() if algorithm == "dueling-dqn" else x
                q = outputs if algorithm == "dueling-dqn" else x + b
            np.testing.assert_allclose(moment.values.q, q, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(moment.values.residuals, z, rtol=1e-4, atol=1e-5)
            assert moment.values.baseline == pytest.approx(b, rel=1e-4, abs=1e-5)
            assert moment.action == moment.greedy == int(q.argmax())


def test_quantile_networks_are_shown_by_their_means(cartpole: Path) -> None:
    """8 random quantiles per action: their mean is near that of 2,000 evenly spaced ones."""
    module = network_of(cartpole, 3, "ib-iqn")
    assert load_agent(cartpole, 3).population.algorithm.samples.act == 8
    tau = (torch.arange(2_000) + 0.5) / 2_000
    for moment in episode(cartpole, 3)[:10]:
        with torch.no_grad():
            quantiles = module(torch.from_numpy(moment.observation), tau).numpy()  # [N, A]
        q, spread = quantiles.mean(0), quantiles.std(0)
        values = moment.values
        assert (abs(values.q - q) <= 5 * spread / 8**0.5 + 1e-6).all()
        np.testing.assert_allclose(values.q, values.baseline + values.residuals, atol=1e-9)
        assert values.baseline == pytest.approx(K * values.residuals.mean(), abs=1e-9)
        assert values.band is not None
        assert (values.band[0] <= values.q).all()
        assert (values.q <= values.band[1]).all()


# The episode


def test_the_episode_is_the_environments(cartpole: Path) -> None:
    """The same actions in Gymnasium's physics, by hand, from the first observation."""
    shown = episode(cartpole, 0)
    *decisions, last = shown
    assert [moment.step for moment in shown] == list(range(len(shown)))
    assert last.ending in ("game over", "time limit")
    assert last.score == last.step == len(decisions)  # CartPole: 1 a step
    for now, later in pairwise(shown):
        x, speed, angle, turning = (float(value) for value in now.observation)
        force = 10.0 if now.action == 1 else -10.0
        pull = (force + 0.05 * turning**2 * np.sin(angle)) / 1.1
        twist = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (
            0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
        )
        push = pull - 0.05 * twist * np.cos(angle) / 1.1
        after = np.array([speed, push, turning, twist]) * 0.02 + [x, speed, angle, turning]
        np.testing.assert_allclose(later.observation, after, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "backend", "limit"),
    [("CartPole-v1", "envpool", 90), ("LunarLander-v3", "envpool", 90),
     ("CartPole-v1", "gymnasium", 90), ("Breakout", "ale", 250)],
)  # fmt: skip
def test_a_stage_plays_as_the_environments_of_training(name: str, backend: Any, limit: int) -> None:
    stage = make_rendered_env(environment_spec(name, backend))
    environments = make_environments(name, 1, backend=backend, threads=1)
    for key in (5, -(2**60)):
        scene = stage.reset(key)
        np.testing.assert_array_equal(scene.observation, environments.reset([key])[0])
        for action in np.random.default_rng(0).integers(0, len(stage.actions), limit).tolist():
            scene, result = stage.step(action), environments.step([action])
            np.testing.assert_array_equal(scene.observation, result.final_observation[0])
            assert (scene.reward, scene.terminated) == (result.reward[0], result.terminated[0])
            if scene.terminated:
                break
    stage.close()


def test_the_screen_in_colour_is_what_the_agent_sees_in_grey() -> None:
    """At 84 x 84 in grey, by area averages over whole pixels made of the screen, within rounding.

    The brighter of two colours channel by channel is not always the brighter grey: a few pixels of
    what moves may differ.
    """
    stage = make_rendered_env(environment_spec("Breakout"))
    scenes = [stage.reset(1)]
    scenes += [stage.step(action) for action in [1, 1, *(3, 4) * 20]]
    for scene in scenes:
        assert scene.image is not None
        assert scene.image.shape == (210, 160, 3)
        grayscale = scene.image @ np.array([0.2989, 0.587, 0.114])  # [210, 160]
        rows = grayscale.repeat(2, 0).reshape(84, 5, 160).mean(1)  # 210·2 = 84·5
        small = rows.repeat(21, 1).reshape(84, 84, 40).mean(-1)  # 160·21 = 84·40
        assert (abs(small - scene.observation) <= 2).mean() > 0.995
    assert any((a.image != b.image).any() for a, b in pairwise(scenes))  # type: ignore[union-attr]
    assert stage.rate == 15
    assert stage.actions[:3] == ("nothing", "fire", "up")
    assert stage.actions[-1] == "down left fire"


def test_stacks_are_the_last_four_frames(pong: Path) -> None:
    shown = episode(pong, 0, max_steps=7)
    shape = NetworkShape((4, 84, 84), 18, (512,), 1.0)
    module = ALGORITHMS["ib-dqn"].build(shape, 18.0)
    module.load_state_dict(read_weights(pong, 0))
    frames = [shown[0].observation] * 3 + [moment.observation for moment in shown]
    for moment in shown[:-1]:
        stack = np.stack(frames[moment.step : moment.step + 4])
        with torch.no_grad():
            q = module(torch.from_numpy(stack)).numpy()
        np.testing.assert_allclose(moment.values.q, q, rtol=1e-4, atol=1e-5)
        assert moment.values.baseline == pytest.approx(18 / 19 * q.mean(), rel=1e-4)
    assert shown[-1].ending == "cut off"
    assert shown[-1].step == 7


def test_seeds_and_exploration(cartpole: Path) -> None:
    def actions(**options: Any) -> list[int]:
        return [moment.action for moment in episode(cartpole, 0, **options)]

    assert actions(seed=1, epsilon=0.5) == actions(seed=1, epsilon=0.5)
    starts = [episode(cartpole, 0, seed=seed)[0].observation for seed in (1, 2)]
    assert (starts[0] != starts[1]).any()
    explored = [m.action != m.greedy for m in episode(cartpole, 0, epsilon=1.0, episodes=20)]
    # A random action is not the best one half of the time; over about 400 steps, 5 deviations.
    assert abs(np.mean(explored) - 0.5) < 5 * 0.5 / len(explored) ** 0.5
    two = episode(cartpole, 0, episodes=2)
    assert [moment.episode for moment in two if moment.ending] == [1, 2]
    assert (two[0].observation != next(m for m in two if m.episode == 2).observation).any()


# Drawing


def moment_with(q: list[float], b: float, action: int, picture: Any = None) -> RolloutStep:
    values = Values(np.array(q), b, np.array(q) - b)
    return RolloutStep(1, 0, 0.0, values, action, int(np.argmax(q)), np.array([0.5, -2.0]), picture)


def orange(frame: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The bars of residuals, below the table's heads."""
    matches: NDArray[np.bool_] = np.all(frame[ROWS_TOP:] == (0xE6, 0x9F, 0x00), axis=-1)
    return matches


def test_the_bars_of_the_residuals_are_as_long_as_they_are() -> None:
    """b = 0, q = z = (1, 0.5, -0.5): orange pixels of the right column are as 2 : 1 : 1."""
    captions = Captions("title", "b", "q", ("one", "two", "three"))
    moment = moment_with([1.0, 0.5, -0.5], 0.0, action=0)
    frame = Overlay(captions, moment).draw(moment)
    assert frame.shape == (HEIGHT, 480 + PANEL, 3)
    column = orange(frame)[:, -230:]  # without the bars of q
    rows = [column[36 * n : 36 * (n + 1)].any(0).sum() for n in range(3)]
    # The scale goes from -0.5 to 1 over 94 pixels: 62, 31 and 31 for (1, 0.5, -0.5), and the line
    # of the zero hides one.
    np.testing.assert_allclose(rows, [62, 31, 31], atol=1)


def test_the_chosen_action_is_marked_and_exploration_told_apart() -> None:
    captions = Captions("title", "b", "q", ("one", "two"))
    green, purple = (0x00, 0x9E, 0x73), (0xCC, 0x79, 0xA7)
    for action, colour in ((0, green), (1, purple)):
        moment = moment_with([1.0, 0.5], 0.2, action)
        frame = Overlay(captions, moment).draw(moment)
        edge = (frame[ROWS_TOP:, 480 + 7] == colour).all(-1)
        assert edge.sum() == 35
        assert edge[36 * action : 36 * (action + 1)].sum() == 35


def test_values_that_are_not_finite_are_drawn_as_such() -> None:
    captions = Captions("title", "b", "q", ("one", "two"))
    moment = moment_with([float("nan"), float("inf")], float("nan"), 0)
    assert not orange(Overlay(captions, moment).draw(moment)).any()
    assert number_text(float("nan"), 2) == "nan"


def test_scales_grow_in_steps_and_never_shrink() -> None:
    axis = Axis()
    assert axis.pixel(3.0, 10) == 0
    for value, ends in ((0.9, (0, 1)), (-0.13, (-0.15, 1)), (0.1, (-0.15, 1)), (31, (-0.15, 40))):
        axis.include(np.array([value]))
        assert (axis.low, axis.high) == pytest.approx(ends)
    assert (axis.pixel(axis.low, 100), axis.pixel(axis.high, 100)) == (0, 99)
    assert number_text(12.345, axis.decimals) == "12.35"
    assert number_text(-0.001, axis.decimals) == "0.00"


def test_pictures_keep_their_pixels_or_shrink() -> None:
    assert fitted(210, 160) == (630, 480)
    assert fitted(400, 600) == (400, 600)
    assert fitted(1280, 640) == (640, 320)
    picture = np.random.default_rng(0).integers(0, 256, (4, 3, 3)).astype(np.uint8)
    np.testing.assert_array_equal(scaled(picture, 8, 6)[::2, 1::2], picture)
    assert scaled(picture, 2, 1).shape == (2, 1, 3)


def test_many_actions_fit() -> None:
    captions = Captions("title", "b", "q", tuple(f"action {n}" for n in range(60)))
    moment = moment_with([float(n) for n in range(60)], 0.0, 59)
    assert Overlay(captions, moment).draw(moment).shape[0] == HEIGHT


# Files


def test_a_video_of_cartpole(cartpole: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "new" / "out.mp4"
    command(cartpole, 0, path, episodes=2, seed=3)
    first, second, mean, wrote = capsys.readouterr().out.splitlines()
    shown = episode(cartpole, 0, episodes=2)
    steps = [moment.step for moment in shown if moment.ending]
    assert first.startswith(f"episode 1: score {steps[0]}, {steps[0]} steps, ")
    assert second.startswith(f"episode 2: score {steps[1]}, {steps[1]} steps, ")
    assert mean == f"mean score {sum(steps) / 2:g} of 2 episodes" or sum(steps) % 2
    frames = decoded(path)
    # A frame a decision, and a second of each end: 50 frames.
    assert frames.shape == (sum(steps) + 2 * 50, HEIGHT, 600 + PANEL, 3)
    assert f"{len(frames)} frames, {600 + PANEL}x{HEIGHT}, 50 a second" in wrote
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == 50
    starts = np.cumsum([0, *(50 if moment.ending else 1 for moment in shown[:-1])])
    check_frames(frames[starts, 120:520, :600], [moment.image for moment in shown])
    assert [entry.name for entry in path.parent.iterdir()] == ["out.mp4"]


def check_frames(frames: NDArray[np.uint8], pictures: list[Any]) -> None:
    """Each frame is nearer to its own picture than to all others, and to its own one changed.

    How near depends on the encoder, which rounds all colours: on some, white becomes 253.
    """

    def distance(frame: NDArray[np.uint8], picture: NDArray[np.uint8]) -> float:
        return float(np.square(frame.astype(np.float32) - picture).mean())

    for frame, picture in zip(frames, pictures, strict=True):
        own = distance(frame, picture)
        moved = [np.roll(picture, by, axis) for by in (-1, 1) for axis in (0, 1)]  # by one pixel
        turned = [picture[::-1], picture[:, ::-1], picture[..., ::-1]]  # and blue for red
        others = [other for other in pictures if not np.array_equal(other, picture)]
        assert own < min(distance(frame, other) for other in (*others, *moved, *turned))
        assert own < distance(frame, np.full_like(picture, picture[0, 0])) / 10  # nothing in it


def test_a_video_of_pong(pong: Path, tmp_path: Path) -> None:
    played = play(pong, 0, tmp_path / "pong.mp4", max_steps=10)
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
    video = play(cartpole, 2, tmp_path / "out.gif", max_steps=6).video
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
    assert (
        make_rendered_env(environment_spec("Catch-v0")).reset(0).image is None
    )  # EnvPool has none
    monkeypatch.setattr(rendering, "_checked_image", lambda _rendered: None)
    command(cartpole, 0, tmp_path / "bars.mp4", max_steps=5)
    assert "cannot be rendered here" in capsys.readouterr().out
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


def test_a_signal_leaves_nothing(
    cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Overlay.draw

    def signalled(overlay: Overlay, moment: RolloutStep) -> NDArray[np.uint8]:
        if moment.step == 2:
            signal.raise_signal(signal.SIGTERM)
        return draw(overlay, moment)

    monkeypatch.setattr(Overlay, "draw", signalled)
    with pytest.raises(Stopped, match="nothing was written"):
        command(cartpole, 0, tmp_path / "out.mp4", seed=3)
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, file = tmp_path / "there.gif", tmp_path / "out.mp4"
    there.write_bytes(b"mine")
    for message, arguments, options in (
        ("ends in .mp4 or .gif", (cartpole, 0, tmp_path / "out.avi"), {}),
        ("add --overwrite", (cartpole, 0, there), {}),
        ("is a folder", (cartpole, 0, tmp_path.parent / "a.mp4"), {}),
        ("cannot write to /proc", (cartpole, 0, "/proc/none/out.gif"), {}),
        ("cannot write /proc/out.mp4: choose", (cartpole, 0, "/proc/out.mp4"), {"max_steps": 2}),
        ("no agent 4 in .*: its agents are 0 to 3", (cartpole, 4, file), {}),
        ("no agent 4", (cartpole, 4, there), {}),  # what is to be played comes first
        ("no training run", (tmp_path, 0, file), {}),
        ("no training run", (tmp_path, 0, there), {}),
        ("episodes = 0", (cartpole, 0, file), {"episodes": 0}),
        ("epsilon = 2", (cartpole, 0, file), {"epsilon": 2}),
        ("max_steps = 0", (cartpole, 0, file), {"max_steps": 0}),
        ("no network of its own", (cartpole, 0, file), {"network": nn.Linear}),
    ):
        (tmp_path.parent / "a.mp4").mkdir(exist_ok=True)
        with pytest.raises(InvalidInput, match=message):
            play(*arguments, **options)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InvalidInput, match=r"\[video\].*\.gif"):
        check_target(file)
    check_target(tmp_path / "out.gif")  # needs no PyAV
    assert there.read_bytes() == b"mine"
    assert not file.exists()


def test_an_address_is_refused_by_its_name(tmp_path: Path, cli: Callable[..., Any]) -> None:
    words = ("--agent", "0", "--video", tmp_path / "out.gif")
    for given, shown in (
        ("s3://bucket/run", "s3://bucket/run"),
        ("ftp://me:pw@host", "ftp://host"),
    ):
        code, out, err = cli("play", given, *words)
        assert (code, out) == (2, "")
        assert err == (
            f"valueshare: {shown} is an address: copy the run from there, and give its folder\n"
        )


def test_before_the_first_phase_is_done(tmp_path: Path) -> None:
    out = tmp_path / "run"
    every: dict[str, Any] = {**SHORT, "hidden": HIDDEN, "should_stop": lambda: True}
    assert not valueshare.train("CartPole-v1", "dqn", seeds=1, out=out, **every).finished
    (tmp_path / "out.mp4").write_bytes(b"mine")
    with pytest.raises(InvalidInput, match="agent 0 has no finished phase yet"):
        play(out, 0, tmp_path / "out.mp4")


def own_network(shape: NetworkShape, k: float) -> nn.Module:
    return nn.Sequential(nn.Linear(4, shape.actions), valueshare.MeanExpansion(k))


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    out = tmp_path / "run"
    valueshare.train("CartPole-v1", "ib-dqn", k=2, seeds=1, out=out, network=own_network, **SHORT)
    with pytest.raises(InvalidInput, match="has a network of its own"):
        play(out, 0, tmp_path / "out.gif")
    assert play(out, 0, tmp_path / "out.gif", max_steps=3, network=own_network).episodes
