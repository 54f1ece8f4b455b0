"""Where a run was stopped, and from where it resumes."""

from pathlib import Path
from typing import NamedTuple

from valueshare.population.checkpoints.loading import finished_phase_count
from valueshare.population.spec import PopulationSpec
from valueshare.records import CheckpointPaths, read_progress
from valueshare.runs.run_folder import open_plan


class StoppedAt(NamedTuple):
    """The step of a population when its run was stopped, and that of its last checkpoint (0: none)."""

    step: int
    saved: int
    population: str = ""  # its name, if the run has several and has begun

    def __str__(self) -> str:
        return f"step {self.step:,}{self.population and f' of {self.population}'}"


def stopped_at(folder: Path) -> StoppedAt | None:
    """Where a run was stopped, by its progress files; None if no population is unfinished.

    Of several populations, this is the least advanced of those that lose steps. Those that have not begun count only
    if no other is unfinished.
    """
    plan = open_plan(folder)
    found = {}
    for name, spec in plan.populations.items():
        saved = _saved_step(folder, spec)
        if saved < spec.settings.steps:
            found[name] = StoppedAt(max(saved, read_progress(folder, name).step), saved)
    begun = {name: at for name, at in found.items() if at.step} or found
    losing = {name: at for name, at in begun.items() if at.step > at.saved} or begun
    if not losing:
        return None
    least = min(losing, key=lambda name: losing[name].step / plan.populations[name].settings.steps)
    has_begun = len(found) < len(plan.populations) or losing[least].step > 0
    if len(plan.populations) == 1 or not has_begun:
        return losing[least]
    return losing[least]._replace(population=f"{least}, the least advanced" if len(losing) > 1 else least)


def _saved_step(folder: Path, spec: PopulationSpec) -> int:
    """The step of the last checkpoint, by its manifest."""
    settings = spec.settings
    phases = finished_phase_count(CheckpointPaths(folder, spec.name), settings.checkpoint_interval, spec.extended_from)
    return settings.phase_end(phases - 1)
