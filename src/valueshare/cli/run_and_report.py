"""Running a plan from the command line: what `train`, `resume` and the studies share."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from valueshare.cli.arguments import exit_with
from valueshare.errors import OTHER_OUT, CallbackFailed, EnvironmentFailed, InvalidInput
from valueshare.extras import install_command
from valueshare.files import DiskFull
from valueshare.host_memory import refuse_without_memory
from valueshare.printing import print_line
from valueshare.runs.launcher_options import LauncherOptions
from valueshare.runs.storage.locations import Location
from valueshare.signals import Stopped, StopRequest, exit_during_import
from valueshare.text import option_words, pluralize, resume_command

if TYPE_CHECKING:
    from valueshare.runs.plan import Plan
    from valueshare.runs.run import Run

FAILED = 1  # exit code of a command that could not do all of its work


def run_and_report(work: "Callable[[], Run]", folder: Location, stop: StopRequest, *, in_study: bool = False) -> int:
    """Run, then print how it ended; return an exit code, which is not 0 where populations failed.

    A run that ends early ends the command, with an exit code of its own where it can be resumed. A study is resumed by
    its own command, which writes its report too.
    """
    from valueshare.runs.storage.copies import checkpoint_status

    def resume_advice() -> str:
        """How to resume the run, which is there by then."""
        resuming = f"resume with: {pythonpath(folder, resuming=True)}{resume_command(folder)}"
        return "resume with the same command" if in_study else resuming

    try:
        run = work()
    except Stopped:
        run = None
    except (EnvironmentFailed, CallbackFailed) as error:
        if not stop():  # else who ended the run has ended its environments too
            exit_with(f"{error}; {checkpoint_status(folder)}; fix it, then {resume_advice()}", FAILED)
        run = None
    except OSError as error:
        advice = "; nothing was written"
        if _run_exists(folder):
            advice = f"{': make room, then' if isinstance(error, DiskFull) else ';'} {resume_advice()}"
        exit_with(f"{error.strerror or error}{advice}", FAILED)
    if run is not None and run.failures and not stop():
        for name, reason in run.failures.items():
            print_line(f"valueshare: {name} failed: {reason}", error=True)
        count = pluralize(len(run.failures), "population")
        print_line(f"valueshare: {count} failed; the others are finished; {resume_advice()}", error=True)
        return FAILED
    if run is None or not run.finished:
        if not _run_exists(folder):
            exit_with("stopped; nothing was written", stop.exit_code)
        # Without a signal, somebody else has ended it.
        status = _stop_status(folder, in_study=in_study)
        exit_with(status or f"stopped; {checkpoint_status(folder)}; {resume_advice()}", stop.exit_code or FAILED)
    from valueshare.runs.variants import summary

    print_line(*summary(run.agents, run.records), f"records: {run.folder / 'records'}")
    return 0


def stored_plan(location: Location, plan: "Plan", launcher: LauncherOptions) -> "Plan | None":
    """The plan with the device and compilation of the run of it that is there, finished or not; another is refused."""
    from valueshare.runs.plan import KIND, difference, to_config
    from valueshare.runs.storage.copies import stored_config
    from valueshare.starting import check_device

    stored = stored_config(location)
    if stored is None or stored.get("kind") != KIND:
        return None
    other = difference(stored, to_config(plan))
    if other is not None:
        check_device(plan, launcher)  # without it, other settings would not help
        raise InvalidInput(f"{location} holds a run with other settings ({other}): {OTHER_OUT}")
    return replace(plan, device=stored["device"], compiled=stored["compile"])


def pythonpath(location: Location, *, resuming: bool = False) -> str:
    """PYTHONPATH=. before a command that imports modules for a run, where it is set now.

    They are the modules of its environments, and those of its callbacks where it is resumed.
    """
    from valueshare.runs.callbacks import KEY
    from valueshare.runs.storage.copies import stored_config, stored_object
    from valueshare.runs.storage.remote import PROVENANCE

    path = os.environ.get("PYTHONPATH")
    try:
        imports = any(":" in env for env in (stored_config(location) or {}).get("settings", {}))
        imports |= resuming and bool((stored_object(location, PROVENANCE) or {}).get(KEY))
    except OSError:
        imports = False
    return f"PYTHONPATH={shlex.quote(path)} " if path and imports else ""


def _stop_status(location: Location, *, in_study: bool) -> str:
    """Where a run was stopped, from where it resumes, and the command that does; empty if that cannot be read.

    Of a run at a URL it is not read: the store may be what ended the run.
    """
    from valueshare.runs.stopped import stopped_at

    try:
        at = stopped_at(location) if isinstance(location, Path) else None
    except (OSError, InvalidInput):
        at = None
    if at is None:
        return ""
    interval = "" if in_study else " (train --checkpoint-interval sets how often there is one)"
    if at.step == at.saved:
        continues = "resume continues from there"
    elif at.saved:
        continues = f"resume continues from the checkpoint at step {at.saved:,}{interval}"
    else:
        continues = f"there is no checkpoint yet{interval}, so resume starts again from step 0"
    same = "run the same command again"
    command = same if in_study else f"{pythonpath(location, resuming=True)}{resume_command(location)}"
    return f"stopped at {at}; {continues}: {command}"


def _run_exists(location: Location) -> bool:
    """Whether a run is there; where a store does not respond, it is taken to be."""
    from valueshare.runs.storage.copies import stored_config

    try:
        return stored_config(location) is not None
    except OSError:
        return True


def require_training(extra: str = "train") -> None:
    """Import the package's training, which brings PyTorch, or say what to install."""
    set_passive_omp_wait()
    try:
        with exit_during_import():
            import valueshare.training  # noqa: F401
    except ModuleNotFoundError as missing:
        raise InvalidInput(f"training needs {missing.name}: {install_command(extra)}") from missing
    except ImportError as error:
        refuse_without_memory("PyTorch", error)
        raise


def set_passive_omp_wait() -> None:
    """OpenMP's threads wait asleep, unless the caller has said otherwise; before PyTorch loads.

    Spinning, as they do by default, they take the cores from the environments' threads and from each other: on two busy
    cores that made the whole loop almost five times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def command_line(command: str, options: Mapping[str, Any]) -> str:
    """The command that makes the same results; options that are None or empty are left out."""
    arguments = [
        option_words(name, value) for name, value in options.items() if value is not None and value not in ("", ())
    ]
    return shlex.join(["valueshare", *command.split(), *chain.from_iterable(arguments)])
