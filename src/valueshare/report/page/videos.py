"""Videos of agents for the page: `videos/agent-N.mp4` or `.gif` in a run folder, as `valueshare play` wrote them."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from valueshare.analysis.importers.results import Results, Source
from valueshare.report.data import ReportData
from valueshare.text import pluralize

FOLDER = "videos"
NAME = re.compile(r"agent-(0|[1-9]\d{0,8})\.(mp4|gif)")
TYPES = {"mp4": "video/mp4", "gif": "image/gif"}
MAX_BYTES = 12_000_000  # bytes of all videos in a page; further ones are left out, and noted


def find_videos(data: ReportData, room: int = MAX_BYTES) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The videos in the run folders of results, each with the environment and the curve of its agent; and notes."""
    numbers = {(v.algorithm, v.k): index for index, v in enumerate(data.variants)}
    videos, left = list[dict[str, Any]](), 0
    for source, first in numbered_sources(data.results):
        for file, agent, suffix in _files(Path(source.path)) if source.kind == "run" else ():
            rows = data.main.filter(pl.col("agent") == first + agent)
            if rows.is_empty():
                continue
            if (size := file.stat().st_size) > room:
                left += 1
                continue
            room -= size
            env, algorithm, k, seed = rows.select("env", "algorithm", "k", "seed").row(0)
            variant = numbers[algorithm, k]
            label = f"{data.variants[variant].style.label}, seed {seed} (agent {agent})"
            content = f"data:{TYPES[suffix]};base64,{base64.b64encode(file.read_bytes()).decode()}"
            videos.append({"env": env, "variant": variant, "label": label, "src": content})
    note = f"{pluralize(left, 'video')} of agents are not in the page: together they would make it large."
    return videos, (note,) if left else ()


def numbered_sources(results: Results) -> Iterator[tuple[Source, int]]:
    """Every source, and the number of its agent 0: agents are numbered one source after the other."""
    first = 0
    for source in results.sources:
        yield source, first
        agents = results.table.filter(pl.col("source") == source.path)["agent"]
        first = max([first - 1, *agents]) + 1


def _files(folder: Path) -> list[tuple[Path, int, str]]:
    """The videos of a run folder, by agent; links are not followed."""
    subfolder = folder / FOLDER
    if subfolder.is_symlink() or not subfolder.is_dir():
        return []
    files = [(file, match) for file in subfolder.iterdir() if (match := NAME.fullmatch(file.name))]
    videos = [(file, int(match[1]), match[2]) for file, match in files if file.is_file() and not file.is_symlink()]
    return sorted(videos, key=lambda video: (video[1], video[2]))
