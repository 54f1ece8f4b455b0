"""Clips of the newest agents for a page that is served, rendered one at a time in a process of low priority."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import polars as pl

from valueshare.analysis.run_values import by_last_score, without_diverged
from valueshare.analysis.tidy import VARIANT
from valueshare.children import Child
from valueshare.extras import install_command
from valueshare.records import CHECKPOINTS
from valueshare.report.data import ReportData
from valueshare.report.figures.series import game
from valueshare.report.figures.variants import Variant
from valueshare.report.page.videos import numbered_sources
from valueshare.runs.storage.copies import temporary_folder
from valueshare.text import format_number

RENDERER = "valueshare.video.clip"
NEEDED = ("torch", "av")
GROUP = ["source", "env", *VARIANT]
MAX_SECONDS = 300.0  # until a process that renders is ended


SKIPPED = "Some evaluations have no clip: rendering one takes longer than training until the next."


class Clip(NamedTuple):
    """A clip, or a line on why there is none."""

    text: str
    number: int = 0  # of the clip; 0: there is none
    content: bytes = b""
    note: str = ""  # on the next clip, and on those that were skipped


class Best(NamedTuple):
    """The agent with the highest score in its last evaluation."""

    folder: str
    agent: int  # its number there
    env: str
    step: int  # of that evaluation
    text: str


class Clips:
    """The clip of the newest best agent: `request` is called with new results, and `poll` every second or so."""

    def __init__(self, replace_paths: Callable[[str], str] = lambda text: text) -> None:
        """`replace_paths` replaces a copy's folder by its URL."""
        self._shown: Clip | None = None
        self._failure = ""  # why the last clip could not be rendered, while an earlier one is shown
        self._has_skipped = False
        self._replace_paths = replace_paths
        self._stack = ExitStack()
        self._file = self._stack.enter_context(temporary_folder()) / "clip.mp4"
        self._counts: pl.DataFrame | None = None  # evaluations by GROUP, when the last agent was chosen
        self._wanted: Best | None = None
        self._last: Best | None = None  # that was rendered, or is being
        self._child: Child | None = None
        self._due = 0.0

    @property
    def now(self) -> Clip | None:
        """The newest clip, or why there is none; with a note on the next one, and whether any were skipped."""
        rendering = None if self._child is None else self._last
        if self._shown is None:
            return None if rendering is None else Clip(f"The first clip is being rendered: {rendering.text}")
        notes = [self._failure]
        if rendering is not None and self._shown.number:
            notes = [f"The clip of step {rendering.step:,} is being rendered."]
        notes += [SKIPPED] if self._has_skipped else []
        return self._shown._replace(note=" ".join(filter(None, notes)))

    def request(self, data: ReportData, variant: Variant) -> None:
        """Choose the agent of the next clip: the best of a variant, in the environment with the newest evaluations.

        Without new evaluations of the variant, it is the best of those that have some. Agents that diverged are left
        out, as by `Run.best`.
        """
        runs = [s.path for s in data.results.sources if s.kind == "run" and (Path(s.path) / CHECKPOINTS).is_dir()]
        if not runs:
            return
        rows = without_diverged(data.main.filter(pl.col("source").is_in(runs)))
        counts = rows.drop_nulls("score").group_by(GROUP, maintain_order=True).agg(count=pl.len().cast(pl.Int64))
        before = counts.clear() if self._counts is None else self._counts
        grown = counts.join(before, on=GROUP, how="left", suffix="_before", maintain_order="left").with_columns(
            new=pl.col("count") - pl.col("count_before").fill_null(0)
        )
        newest = grown.filter(pl.col("new") > 0)
        if newest.is_empty():
            return
        self._counts = counts
        of_variant = variant.rows(newest)
        newest = newest if of_variant.is_empty() else of_variant
        sums = newest.group_by("env", maintain_order=True).agg(pl.col("new").sum())
        env = sums.sort("new", descending=True, maintain_order=True)["env"][0]
        ranked = by_last_score(rows.join(newest.filter(env=env), on=GROUP, how="semi"))
        if ranked.is_empty():
            return
        best = ranked.row(0, named=True)
        first = next(first for source, first in numbered_sources(data.results) if source.path == best["source"])
        agent = best["agent"] - first
        scored = f"score {format_number(best['score'])} at step {best['step']:,}"
        key = best["algorithm"], best["k"]
        label = next(v.style.label for v in data.variants if (v.algorithm, v.k) == key)
        text = f"{label} on {game(env)}, agent {agent}: {scored}"
        candidate = Best(best["source"], agent, env, best["step"], text)
        if reason := self._why_not(candidate):
            self._shown = Clip(f"No clip: {reason}")
        elif candidate != self._last:
            self._has_skipped = self._has_skipped or self._wanted is not None
            self._wanted = candidate

    def poll(self) -> None:
        """Take over a clip that is ready, and start to render the next one."""
        if self._child is not None:
            if not self._child.has_ended() and time.monotonic() < self._due:
                return
            self._finish(self._child)
        if self._wanted is not None:
            self._last, self._wanted = self._wanted, None
            arguments = {"folder": self._last.folder, "agent": self._last.agent, "video": str(self._file)}
            self._child, self._due = Child(RENDERER, json.dumps(arguments)), time.monotonic() + MAX_SECONDS

    def close(self) -> None:
        """End the process that renders, and remove its folder."""
        self._wanted = None
        if self._child is not None:
            self._child.kill()
            self._child.close()
        self._stack.close()

    def _finish(self, child: Child) -> None:
        reason = child.result().reason if child.has_ended() else f"rendering took longer than {MAX_SECONDS:.0f} s"
        child.kill()
        child.close()
        self._child = None
        assert self._last is not None
        with suppress(OSError):
            content = self._file.read_bytes()
            self._file.unlink()
            number = 1 if self._shown is None else self._shown.number + 1
            self._shown = Clip(self._last.text + self._later_weights(self._last), number, content)
            self._failure = ""
            return
        if self._shown is None or not self._shown.number:
            self._shown = Clip(self._replace_paths(f"No clip: {reason}"))
        else:  # the clip before it stays
            self._failure = self._replace_paths(f"No clip of step {self._last.step:,}: {reason.rstrip('.')}.")

    def _later_weights(self, best: Best) -> str:
        """Of which step the weights are, if the agent was trained on before it was rendered."""
        with suppress(OSError, ValueError):
            step = int(self._file.with_suffix(".step").read_text())
            return f"; it plays as of step {step:,}" if step != best.step else ""
        return ""

    def _why_not(self, best: Best) -> str:
        """Why there can be no clip; empty if there can."""
        module, colon, _ = best.env.partition(":")
        if colon:
            return f"{best.env} needs the module {module}, which is not imported for a page; use valueshare play"
        if self._replace_paths(best.folder) != best.folder:
            return "the weights of a run at a URL are not copied"
        if any(find_spec(name) is None for name in NEEDED):
            return f"it needs PyTorch and PyAV; {install_command('train', 'video')}"
        return ""
