"""The commands `train` and `resume`: populations of deep Q-learners, here or on a cluster."""

import os
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from tyro.conf import OmitArgPrefixes, Positional

from valueshare.commands.arguments import (
    EngineArguments,
    Flag,
    OutFolder,
    RunFolder,
    lasting,
    writable,
)
from valueshare.errors import EnvironmentFailed, InvalidInput
from valueshare.extras import install_command
from valueshare.host_memory import refuse_without_memory
from valueshare.runs.engines import EngineOptions, shard_folder
from valueshare.runs.options import Options
from valueshare.runs.signals import Stopped, StopRequest, loading, stop_on_signals
from valueshare.runs.storage.places import Place
from valueshare.text import exact, how_many

if TYPE_CHECKING:
    from types import ModuleType

    from valueshare.runs.plan import Plan
    from valueshare.runs.run_folder import Run

FAILED = 1


def train(
    env: tuple[str, ...],
    settings: OmitArgPrefixes[Options],
    engine: EngineArguments,
    algorithm: tuple[str, ...] = ("ib-dqn",),
    k: tuple[float, ...] = (0.0,),
    seeds: int = 8,
    first_seed: int = 0,
    out: OutFolder = None,
    device: str = "cpu",
    compile: Flag = False,  # noqa: A002 (the name of the option)
    backend: Literal["auto", "envpool", "gymnasium", "ale"] = "auto",
    threads: int = 0,
    groups: int = 0,
    tensorboard: Flag = False,
    plan: Flag = False,
) -> None:
    """Train every combination of environment, algorithm, k, settings and seed.

    Args:
        env: With Box observations and Discrete actions, like LunarLander-v3; or games, like Pong.
        settings: What is left out is the environment's preset; --plan shows it.
        engine: Where it runs.
        algorithm: dqn, double-dqn, ib-dqn, ib-double-dqn, dueling-dqn, rdq, iqn or ib-iqn.
        k: Mean-scaling coefficients of the ib- algorithms; 0 shares no value: ib-dqn is then dqn.
        seeds: How many agents of each combination ...
        first_seed: ... with this seed and those that follow it.
        out: Folder or address, like s3://bucket/run; left out: runs/ENVIRONMENT-ALGORITHM.
        device: cpu, cuda or cuda:0.
        compile: Compile what agents do at a step; takes a minute, then it is faster.
        backend: Of the environments; auto: ALE for Atari games, else EnvPool if it has them.
        threads: Of the environments; 0 is one a core.
        groups: Of agents, each at its own pace; 0: four where emulators run beside a GPU, else one.
        tensorboard: Write TensorBoard events too.
        plan: Print every setting and the memory needed, and run nothing.
    """
    with stop_on_signals() as stop:
        training = training_library()
        from valueshare.experiments.plans import default_folder, make_plan
        from valueshare.runs.execution import Execution

        made = make_plan(
            env,
            algorithm,
            k=k,
            seeds=seeds,
            first_seed=first_seed,
            device=device,
            compiled=compile,
            backend=None if backend == "auto" else backend,
            **settings.given(),
        )
        chosen = default_folder(made) if out is None else out
        place = lasting(chosen) if plan else writable(chosen)
        made, folder = training.placed(made, place, engine)
        how = Execution(
            threads=threads or None,
            tensorboard=tensorboard,
            should_stop=stop,
            groups=groups or None,
            engine=engine,
        )
        if plan:
            for line in training.planned(made, how):
                print(line, flush=True)  # before a refusal
            return
        shown: dict[str, Any] = {
            "env": env,
            "algorithm": algorithm,
            "k": k,
            "seeds": seeds,
            "first_seed": first_seed,
            "device": device,
            "compile": compile,
            "backend": backend,
            **settings.given(),
            **({"shard": engine.shard} if engine.shard else {}),
        }

        def run() -> "Run":
            started: Run = training.start(made, folder, _command(shown), how)
            return started

        to_the_end(run, folder, stop)


def resume(
    run: Positional[RunFolder],
    engine: EngineArguments,
    threads: int = 0,
    groups: int = 0,
    tensorboard: Flag = False,
) -> None:
    """Go on with a run from its last finished phase, to the same end to the bit.

    Args:
        run: The run's folder or address, or with --shard the one that holds its shards.
        engine: Where it runs.
        threads: Of the environments; 0 is one a core.
        groups: Of agents, each at its own pace; 0: four where emulators run beside a GPU, else one.
        tensorboard: Write TensorBoard events too.
    """
    with stop_on_signals() as stop:
        training = training_library()
        place = lasting(run)

        def go_on() -> "Run":
            resumed: Run = training.resume(
                place,
                threads=threads or None,
                tensorboard=tensorboard,
                should_stop=stop,
                groups=groups or None,
                engine=engine,
            )
            return resumed

        to_the_end(go_on, shard_folder(place, engine.own_shard), stop)


def to_the_end(
    work: "Callable[[], Run]", folder: Place, stop: StopRequest, *, in_study: bool = False
) -> bool:
    """Run, then say how it ended; one that can go on says how, with an exit code of its own.

    In a study others follow: populations that failed do not end the program, False is the answer.
    """
    way = f"go on with: valueshare resume {shlex.quote(str(folder))}"
    if in_study:
        way = "go on with the same command again"
    try:
        run = work()
    except Stopped:
        run = None
    except EnvironmentFailed as error:
        if not stop():  # else who ended the run has ended its environments too
            _say_and_exit(f"{error}; all finished phases are safe; mend it, then {way}", FAILED)
        run = None
    except OSError as error:
        if not _is_there(folder):
            way = "nothing was written"
        _say_and_exit(f"{error.strerror or error}; {way}", FAILED)
    if run is not None and run.failures and not stop():
        for name, reason in run.failures.items():
            print(f"valueshare: {name} failed: {reason}", file=sys.stderr)
        line = f"{how_many(len(run.failures), 'population')} failed; the others are finished; {way}"
        if not in_study:
            _say_and_exit(line, FAILED)
        print(f"valueshare: {line}", file=sys.stderr)
        return False
    if run is not None and run.finished:
        from valueshare.training import summary

        print("\n".join(summary(run)))
    elif not _is_there(folder):
        _say_and_exit("stopped; nothing was written", stop.exit_code)
    else:  # without a signal, somebody else has ended it
        _say_and_exit(f"stopped; all finished phases are safe; {way}", stop.exit_code or FAILED)
    return True


def holds_run(place: Place, plan: "Plan", engine: EngineOptions) -> bool:
    """Whether a run of this very plan is there, finished or not; another one is refused."""
    from valueshare.runs.checks import check_device
    from valueshare.runs.plan import KIND, config, difference
    from valueshare.runs.storage.copies import stored_config

    stored = stored_config(place)
    if stored is None or stored.get("kind") != KIND:
        return False
    other = difference(stored, config(plan))
    if other is not None:
        check_device(plan, engine)  # without it, other settings would not help
        raise InvalidInput(
            f"{place} holds a run with other settings ({other}): choose another --out"
        )
    return True


def _is_there(place: Place) -> bool:
    """Whether a run is there; of a store that does not answer, it is said to be."""
    from valueshare.runs.storage.copies import stored_config

    try:
        return stored_config(place) is not None
    except OSError:
        return True


def _say_and_exit(line: str, code: int) -> NoReturn:
    print(f"valueshare: {line}", file=sys.stderr)
    sys.exit(code)


def training_library(extra: str = "train") -> "ModuleType":
    """The package's training, imported once it is needed: it brings PyTorch."""
    let_threads_sleep()
    try:
        with loading():
            from valueshare import training
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"training needs {missing.name}: {install_command(extra)}") from missing
    except ImportError as error:
        refuse_without_memory("PyTorch", error)
        raise
    return training


def let_threads_sleep() -> None:
    """OpenMP's threads wait asleep, unless the caller has said otherwise; before PyTorch loads.

    Spinning, as they do by default, they take the cores from the environments' threads and from
    each other: on two busy cores that made the whole loop almost five times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _command(values: dict[str, Any]) -> str:
    """The command that makes the same run; no folder is in it."""
    words = ["valueshare", "train"]
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool) and name == "compile":
            words += [option] if value else []
        else:
            listed = value if isinstance(value, tuple) else (value,)
            words += [option, *(exact(i) if isinstance(i, float) else str(i) for i in listed)]
    return shlex.join(words)
