"""The command `evaluate`: more episodes of the trained agents of a run."""

from typing import Annotated

from valueshare.cli.arguments import RunFolder, Threads, persistent_location
from valueshare.cli.run_and_report import require_training
from valueshare.option_groups import in_group
from valueshare.printing import print_line
from valueshare.signals import stop_on_signals


def evaluate(
    run: RunFolder,
    /,
    *,
    episodes: Annotated[int, in_group("evaluation")] = 100,
    seeds_from: Annotated[int, in_group("evaluation")] = 10_000,
    agent: Annotated[tuple[int, ...], in_group("evaluation")] = (),
    epsilon: Annotated[float | None, in_group("exploration")] = None,
    episode_limit: Annotated[int | None, in_group("evaluation")] = None,
    device: Annotated[str, in_group("main", help="cpu, cuda or cuda:0; auto: that of the run, or the CPU.")] = "auto",
    threads: Threads = 0,
) -> None:
    """Let the trained agents of a run play more episodes, and print mean scores with 95 % intervals over agents.

    The episodes are added to evaluations.parquet in the run's folder. Its records and its report do not change.

    Args:
        run: The run's folder or URL; the agents have the weights of the last checkpoint.
        episodes: Episodes per agent.
        seeds_from: First environment seed; episode i of every agent has the seed --seeds-from + i.
        agent: Agent numbers (column `agent` of agents.parquet); default: all agents.
        epsilon: Probability of a random action; default: that of the run's evaluations.
        episode_limit: Maximum steps per episode; default: that of the run's evaluations, or the environment's own.
    """
    with stop_on_signals() as stop:
        require_training()
        from valueshare.records import EVALUATIONS
        from valueshare.runs.evaluation import EvaluationOptions, evaluate_run
        from valueshare.runs.variants import evaluation_lines

        location = persistent_location(run)
        options = EvaluationOptions(
            episodes=episodes,
            seeds_from=seeds_from,
            agent=agent or None,
            epsilon=epsilon,
            episode_limit=episode_limit,
            device=device,
            threads=threads or None,
            on_step=stop.raise_if_requested,
        )
        played = evaluate_run(location, options)
        print_line(*evaluation_lines(played.agents, played.episodes))
        print_line(f"episodes: {location / EVALUATIONS}")
