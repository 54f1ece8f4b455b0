"""The LunarLander study."""

import shlex
from typing import TYPE_CHECKING, Literal

from valueshare.commands.arguments import EngineArguments, Flag, OutFolder, writable
from valueshare.commands.training import holds_run, to_the_end, training_library
from valueshare.runs.options import Count
from valueshare.runs.signals import stop_on_signals

if TYPE_CHECKING:
    from valueshare.runs.run_folder import Run


def reproduce_lunarlander(
    engine: EngineArguments,
    scale: Literal["smoke", "small", "paper"] = "small",
    out: OutFolder = None,
    eval_episodes: Count = None,
    seeds: Count = None,
    device: str = "cpu",
    compile: Flag = False,  # noqa: A002 (the name of the option)
    tf32: Flag = False,
    threads: int = 0,
) -> None:
    """The paper's LunarLander figure: IB-DQN against k, with learning curves and value metrics.

    A run that was stopped goes on when the same command is given again.

    Args:
        engine: Where it runs.
        scale: smoke: seconds; small: 5 k x 8 seeds, minutes; paper: 17 k x 120 seeds, for a GPU.
        out: Folder of run, figures and report; left out: results/lunarlander-SCALE.
        eval_episodes: Episodes of an evaluation; left out: the scale's own.
        seeds: Agents of each k; left out: the scale's own.
        device: cpu, cuda or cuda:0.
        compile: Compile what agents do at a step; takes a minute, then it is faster.
        tf32: On CUDA, matrix products with 10-bit mantissas.
        threads: Of the environments; 0 is one a core.
    """
    training = training_library()
    from valueshare.experiments.lunarlander import ENV, lunarlander_study
    from valueshare.report.sensitivity import write_sweep_report
    from valueshare.runs.execution import Execution
    from valueshare.runs.plan import Plan
    from valueshare.runs.storage.copies import filled

    study = lunarlander_study(scale, eval_episodes=eval_episodes, seeds=seeds, tf32=tf32)
    plan = Plan(study.agents, {ENV: study.settings}, {ENV: "envpool"}, device, compile)
    whole = writable(f"results/lunarlander-{scale}" if out is None else out)
    plan, folder = training.placed(plan, whole, engine)
    words = ["valueshare", "reproduce", "lunarlander", "--scale", scale, "--device", device]
    for name, value in (("eval-episodes", eval_episodes), ("seeds", seeds)):
        words += [] if value is None else [f"--{name}", str(value)]
    words += ["--compile"] if compile else []
    words += ["--tf32"] if tf32 else []
    words += ["--shard", engine.shard] if engine.shard else []

    def work() -> "Run":
        run: Run
        if holds_run(folder, plan, engine):
            run = training.resume(whole, threads=threads or None, should_stop=stop, engine=engine)
        else:
            how = Execution(threads=threads or None, should_stop=stop, engine=engine)
            run = training.start(plan, folder, shlex.join(words), how)
        return run

    with stop_on_signals() as stop:
        to_the_end(work, folder, stop)
    if engine.shard:
        print(f"when all shards are there: valueshare report {shlex.quote(str(whole))}")
        return
    with filled(folder) as own:
        for line in write_sweep_report(own)["verdict"]:
            print(line)
    print(f"figure: {folder / 'figures' / 'sensitivity.png'}")
    print(f"page:   {folder / 'report.html'}")
