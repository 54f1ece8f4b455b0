"""The LunarLander study."""

import shlex
from functools import partial
from typing import Literal

from valueshare.cli.arguments import LOCAL, Compile, Device, LauncherArguments, Out, Tf32, Threads, writable_location
from valueshare.cli.training import command_line, holds_run, run_and_report, training_library
from valueshare.signals import stop_on_signals


def reproduce_lunarlander(
    *,
    scale: Literal["smoke", "small", "paper"] = "small",
    eval_episodes: int | None = None,
    seeds: int | None = None,
    out: Out = None,
    device: Device = "cpu",
    compile: Compile = False,  # noqa: A002 (the name of the option)
    tf32: Tf32 = False,
    threads: Threads = 0,
    launcher: LauncherArguments = LOCAL,
) -> None:
    """The paper's LunarLander figure: IB-DQN against k, with learning curves and value metrics.

    To resume a stopped run, give the same command again.

    Args:
        scale: smoke takes seconds; small, 5 k x 8 seeds, minutes; paper, 17 k x 120 seeds, needs a GPU.
        eval_episodes: Episodes per evaluation; left out: the scale's own.
        seeds: Agents per k; left out: the scale's own.
        out: Folder of run, figures and report; left out: results/lunarlander-SCALE.
    """
    training = training_library()
    from valueshare import starting
    from valueshare.experiments.lunarlander import ENV, lunarlander_study
    from valueshare.report.sensitivity import write_sweep_report
    from valueshare.runs.execution import ExecutionOptions
    from valueshare.runs.plan import Plan
    from valueshare.runs.storage.copies import synced_folder

    study = lunarlander_study(scale, eval_episodes=eval_episodes, seeds=seeds, tf32=tf32)
    plan = Plan(study.agents, {ENV: study.settings}, {ENV: "envpool"}, device, compile)
    whole = writable_location(f"results/lunarlander-{scale}" if out is None else out)
    plan, folder = starting.select_shard(plan, whole, launcher)
    given = {"scale": scale, "device": device, "eval_episodes": eval_episodes, "seeds": seeds}
    flags = {"compile": compile or None, "tf32": tf32 or None, "shard": launcher.shard}
    command = command_line("reproduce lunarlander", {**given, **flags})

    with stop_on_signals() as stop:
        execution = ExecutionOptions(threads=threads or None, should_stop=stop, launcher=launcher)
        if holds_run(folder, plan, launcher):
            work = partial(training.resume, whole, threads=execution.threads, should_stop=stop, launcher=launcher)
        else:
            work = partial(starting.start, plan, folder, command, execution)
        run_and_report(work, folder, stop)
    if launcher.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with synced_folder(folder) as own:
        for line in write_sweep_report(own)["verdict"]:
            print(line)
    print(f"figure: {folder / 'figures' / 'sensitivity.png'}")
    print(f"page:   {folder / 'report.html'}")
