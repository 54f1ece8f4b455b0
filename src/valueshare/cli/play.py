"""The command `play`: a video of a trained agent, with its values beside the screen."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from valueshare.cli.run_and_report import set_passive_omp_wait
from valueshare.errors import InvalidInput
from valueshare.extras import install_command
from valueshare.printing import print_line
from valueshare.signals import stop_on_signals


def play(
    run: Path,
    /,
    *,
    agent: int,
    video: Annotated[Path, Parameter(metavar="FILE")],
    episodes: int = 1,
    seed: int = 0,
    epsilon: float | None = None,
    episode_limit: int | None = None,
    overwrite: bool = False,
) -> None:
    """Record a video of a trained agent with its action-values, baseline and residuals.

    Args:
        run: The run's folder; the agent has the weights of the last checkpoint.
        agent: Agent number (column `agent` of agents.parquet); 0 is the first.
        video: File to write: .mp4 (H.264) or .gif.
        episodes: Episodes to record, one after the other.
        seed: Seed of environment and exploration; the same seed gives the same video.
        epsilon: Probability of a random action; default: that of the run's evaluations.
        episode_limit: Maximum steps per episode; default: that of the run's evaluations, or the environment's own.
        overwrite: Replace what is there: an existing file.
    """
    set_passive_omp_wait()
    with stop_on_signals() as stop:
        try:
            from valueshare.video import record as videos
        except ModuleNotFoundError as missing:
            needed = install_command("train", "video")
            raise InvalidInput(f"playing needs {missing.name}: {needed}") from missing

        played = videos.play(
            run,
            agent,
            video,
            episodes=episodes,
            seed=seed,
            epsilon=epsilon,
            episode_limit=episode_limit,
            overwrite=overwrite,
            on_step=stop.raise_if_requested,
        )
    from valueshare.text import pluralize
    from valueshare.video.overlay import score_text

    for number, episode in enumerate(played.episodes, start=1):
        steps = f"{pluralize(episode.steps, 'step')}, {episode.ending}"
        print_line(f"episode {number}: score {score_text(episode.score)}, {steps}")
    if len(played.episodes) > 1:
        mean = sum(episode.score for episode in played.episodes) / len(played.episodes)
        print_line(f"mean score {score_text(mean)} of {len(played.episodes)} episodes")
    if not played.has_screen:
        why = f" ({played.problem})" if played.problem else ""
        print_line(f"note: this environment cannot be rendered here{why}: its observations are drawn instead")
    recorded = played.video
    size = recorded.path.stat().st_size / 1e6
    print_line(
        f"{recorded.path}: {pluralize(recorded.frames, 'frame')}, {recorded.width}x{recorded.height}, "
        f"{recorded.rate:g} frames per second, {size:.1f} MB"
    )
