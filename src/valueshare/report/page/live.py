"""The page of unfinished runs: built again after every phase, never in between."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import NamedTuple

import polars as pl

from valueshare.analysis.importers.formats import read_config_and_agents
from valueshare.analysis.importers.results import Results, read_results
from valueshare.analysis.importers.sources import refuse_tabular
from valueshare.errors import InvalidInput
from valueshare.files import checksum
from valueshare.population.run_config import read_agents
from valueshare.population.spec import PopulationSpec
from valueshare.printing import print_line
from valueshare.records import AGENTS, PROGRESS, RECORDS, read_progress
from valueshare.report.data import ReportData, report_data
from valueshare.report.figure_registry import FIGURES, draw_figures, unmet_needs
from valueshare.report.findings import Verdict, compare_all
from valueshare.report.page.clips import Clip, Clips
from valueshare.report.page.results import Live, data_page, headline_variants, waiting_page
from valueshare.runs.plan import from_config
from valueshare.schema import CONFIG, Invalid
from valueshare.text import pluralize, resume_command, shorten_list

RESULTS = (".parquet", ".csv", ".npz", ".txt")
MANIFEST = re.compile(r"checkpoint-\d+\.json")
RESAMPLES = 2_000  # of intervals that the next phase replaces
POLL_SECONDS = 1.0  # between two checks of the folders
SHARE = 0.2  # of a core, at most, is spent on pages
IDLE_SECONDS = 120.0  # without a new file, after which a run may have been stopped; compiling takes less


class View(NamedTuple):
    """A page and its version, with what changes in between: a clip to show in it, and a notice."""

    version: str
    content: bytes
    clip: Clip | None = None
    notice: str = ""


class PageUpdater:
    """Keeps the page of runs up to date; `view` is always a complete page."""

    def __init__(
        self,
        paths: Sequence[Path],
        resamples: int = RESAMPLES,
        *,
        fetch: Callable[[], None] = lambda: None,
        replace_paths: Callable[[str], str] = lambda text: text,
        limit: str | None = None,
        clips: Clips | None = None,
    ) -> None:
        """`fetch` is called before every check; `replace_paths` replaces a copy's folder by its URL.

        Results that take more memory than `limit` (None: 2 GB) are refused. `clips` renders those of the newest agents.
        """
        self.paths = check(paths)
        self.resamples = resamples
        self.fetch, self.replace_paths, self.limit, self.clips = fetch, replace_paths, limit, clips
        self.shown_state = ""
        self.unfinished: list[Path] = []  # runs that are, as of the page
        self.view = self._waiting("0", "Reading the records.")

    def follow(self, stop: Event) -> None:
        """Check until `stop` is set; after a page, wait in proportion to the time it took."""
        due = 0.0
        last_error: str | None = None
        while not stop.is_set():
            began = time.monotonic()
            try:
                if began >= due:
                    self.refresh()
                self.show_clip()
                self.show_notice()
                last_error = None
            except Exception as error:  # the page before it stays, and is tried again
                if last_error != (last_error := str(error)):  # once, and not every second
                    print_line(f"valueshare: the page was not refreshed: {error}", error=True)
            except KeyboardInterrupt:  # Polars raises it in the thread that it works for, too
                return
            if began >= due:
                due = began + (time.monotonic() - began) / SHARE
            stop.wait(POLL_SECONDS)

    def refresh(self) -> bool:
        """Build the page again if the runs' files have changed; returns whether they have.

        A change counts as shown when its page is there: one that could not be built is tried again.
        """
        self.fetch()
        current = fingerprint(self.paths)
        if current == self.shown_state:
            return False
        try:
            results = read_results(self.paths, max_result_size=self.limit, repeated=True)
        except InvalidInput as error:  # no records yet, or a file that is being moved: wait
            self.view = self._waiting(current, self.replace_paths(str(error)), "Waiting for the first records")
            self.unfinished = [file.parent for path in self.paths for file in sorted(path.rglob(AGENTS))]
        else:
            self._build(results, current)
        self.shown_state = current
        return True

    def _build(self, results: Results, version: str) -> None:
        steps, data = progress(results), report_data(results, self.resamples)
        done = share_done(steps)
        verdict = compare_all(data)
        text = live_page(data, verdict, Live(version, _message(done), done))
        self.view = self.view._replace(version=version, content=text.encode())
        self.unfinished = [path for path, (finished, planned) in steps.items() if finished < planned]
        if self.clips is not None:
            self.clips.request(data, [*headline_variants(data, verdict), *data.variants][0])

    def show_clip(self) -> None:
        """Show the newest clip that is ready, if there are any."""
        if self.clips is not None:
            self.clips.poll()
            self.view = self.view._replace(clip=self.clips.now)

    def show_notice(self) -> None:
        """Show which runs may have been stopped: records of a killed run look like those of one that trains."""
        self.view = self.view._replace(notice=self.replace_paths(idle_notice(self.unfinished, time.time())))

    def _waiting(self, version: str, message: str, title: str = "Reading the records") -> View:
        """A page without results, which asks for the next one as the others do."""
        names = ", ".join(self.replace_paths(str(path)) for path in self.paths)
        return View(version, waiting_page(title, names, Live(version, message)).encode())


def check(paths: Sequence[Path]) -> list[Path]:
    """Refuse paths that can never hold readable records; others may hold them later."""
    if not paths:
        raise InvalidInput("no runs are given: name run folders")
    for path in paths:
        refuse_tabular(path)
        runs = [file.parent for file in path.rglob("agents.parquet")]
        refusals = [error for error in map(_refusal, runs) if error is not None]
        if refusals and len(refusals) == len(runs):
            raise refusals[0]
        if not runs and not (path / CONFIG).is_file():
            read_results(path)  # refuses it with the reason
    return list(paths)


def _refusal(folder: Path) -> InvalidInput | None:
    """Why a run cannot be read: it is damaged, or of a newer version."""
    try:
        read_config_and_agents(folder)
    except InvalidInput as error:
        return error
    return None


def fingerprint(paths: Sequence[Path]) -> str:
    """A checksum of names, sizes and times of files of records and manifests, and of the number of timed evaluations.

    A phase counts when its manifest is there, which comes after its records. The time of its evaluation comes last.
    Evaluations that are made again are told apart: they are of steps after the present one.
    """
    entries = []
    for path in paths:
        files = [path] if path.is_file() else path.rglob("*")
        for file in files:
            if file.suffix in RESULTS or MANIFEST.fullmatch(file.name):
                try:
                    about = file.stat()
                except FileNotFoundError:
                    continue  # being replaced: the next check sees its successor
                entries.append(f"{file} {about.st_size} {about.st_mtime_ns}")
            elif file.parent.name == PROGRESS and file.suffix == ".json":  # written every second
                written = read_progress(file.parents[1], file.stem)
                entries.append(f"{file} {[step <= written.step for step, _ in written.evaluations]}")
    return checksum("\n".join(sorted(entries)).encode()).hexdigest()[:16]


def live_page(data: ReportData, verdict: Verdict, live: Live) -> str:
    """The page of `valueshare report` for the records so far; figures that need more are left out, and noted."""
    pictures, notes, unmet = [], list[str](), unmet_needs(data)
    for name in FIGURES:
        if name not in unmet:
            try:
                pictures += [drawn.picture() for drawn in draw_figures(data, [name])]
            except InvalidInput as error:
                notes.append(f"The figure {name} is not shown: {error}")
    return data_page(data, verdict, pictures, notes=notes, live=live)


def progress(results: Results) -> dict[Path, tuple[int, int]]:
    """The agent-steps of each run that are done, and those that are planned, of runs whose settings say so.

    A run whose checkpoints were deleted is trained again while the records of later steps are still there.
    """
    steps = {}
    for source in results.sources:
        if not source.config:
            continue
        run = Path(source.path)
        try:
            plan = from_config(source.config, read_agents(run))
        except (Invalid, InvalidInput):
            continue
        specs = plan.populations.values()
        last = results.table.filter(pl.col("source") == source.path).group_by("agent").agg(pl.col("step").max())
        reached = sum(spec.agents.height * _step(run, spec) for spec in specs)
        steps[run] = min(int(last["step"].sum()), reached), sum(spec.agent_steps for spec in specs)
    return steps


def _step(run: Path, spec: PopulationSpec) -> int:
    """The step of a population by its progress file; its last one where there is none."""
    written = read_progress(run, spec.name)
    return written.step if written.attempts else spec.settings.steps


def share_done(steps: Mapping[Path, tuple[int, int]]) -> float | None:
    """The share of all agent-steps that is done; None where no settings say how many there are."""
    done, planned = (sum(column) for column in zip(*steps.values(), strict=True)) if steps else (0, 0)
    return min(1.0, done / planned) if planned else None


def idle_notice(unfinished: Sequence[Path], now: float) -> str:
    """What to do about runs that are not finished, and have no new file since IDLE_SECONDS; empty without such runs."""
    idle = {run: now - newest for run in unfinished if (newest := _newest_time(run)) < now - IDLE_SECONDS}
    if not idle:
        return ""
    minutes = pluralize(int(min(idle.values()) // 60), "minute")
    commands = shorten_list([resume_command(run) for run in idle], most=3)
    return f"No new file for {minutes}. If training was stopped, this resumes it: {commands}"


def _newest_time(run: Path) -> float:
    """When a run's newest file was written, which training does about once a second; 0 if the run is gone."""
    times = [0.0]
    for file in (run / CONFIG, *(run / PROGRESS).glob("*.json"), *(run / RECORDS).glob("*.parquet")):
        with suppress(FileNotFoundError):
            times.append(file.stat().st_mtime)
    return max(times)


def _message(done: float | None) -> str:
    if done == 1.0:
        return "Finished."
    share = "" if done is None else f"{done:.0%} of all steps. "
    return f"{share}This page was made at {datetime.now():%H:%M:%S}."
