"""Where the time of training goes on a CPU: the parts of real steps, after agents have trained for a while.

    python benchmarks/where_time_goes.py --label now --json now.json                        # half a minute
    python benchmarks/where_time_goes.py --compile --label "now, compiled" --json compiled.json
    python benchmarks/where_time_goes.py --draw now.json compiled.json --figure where-time-goes.png

LunarLander-v3 with the generic preset, 32 agents, one thread (pin it to a core with `taskset -c 0`). `valueshare bench
population` measures each part alone, with new agents; here agents train, and the parts are timed as they alternate in
the loop. To measure another version of the package, put its `src` on PYTHONPATH.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from valueshare.runs.workers.worker import set_up_process

PARTS = ("environments", "learning", "acting", "storing", "the rest")
COLOURS = ("#0072b2", "#d55e00", "#e69f00", "#009e73", "#bbbbbb")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=32)
    parser.add_argument("--steps", type=int, default=8_000, help="the last half of them is measured")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--label", default="this version")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--draw", type=Path, nargs="+", help="files to draw, from top to bottom, in place of measuring")
    parser.add_argument("--figure", type=Path, default=Path("where-time-goes.png"))
    options = parser.parse_args()
    if options.draw:
        draw([json.loads(path.read_text()) for path in options.draw], options.figure)
        return
    set_up_process(1)  # before PyTorch is imported
    measured = {"label": options.label, "us": measure(options.agents, options.steps, options.compile)}
    print(json.dumps(measured))
    if options.json:
        options.json.write_text(json.dumps(measured) + "\n")


def measure(agents: int, steps: int, compiled: bool) -> dict[str, float]:
    """Microseconds per step of one agent."""
    from valueshare.benchmarks import population
    from valueshare.envs.episodes import TrainingEpisodes

    spent: dict[str, float] = {}

    def loop(engine: Any) -> None:
        executor, episodes = engine.executor, TrainingEpisodes(agents)
        time_calls(executor, ("act", "acting"), ("learn", "learning"), ("store", "storing"), spent=spent)
        time_calls(executor.environments, ("send", "environments"), ("receive", "environments"), spent=spent)
        first = engine.population.settings.learning_starts
        executor.run(range(first, first + steps // 2), lambda step: None, episodes)
        spent.clear()
        began = time.perf_counter()
        executor.run(range(first + steps // 2, first + steps), lambda step: None, episodes)
        spent["all"] = time.perf_counter() - began

    preset = population.preset_named("generic")
    population.measure(agents, preset, compiled=compiled, threads=1, seconds=1.0, only=("whole loop",), trace=loop)
    spent["the rest"] = 2 * spent["all"] - sum(spent.values())
    return {part: round(spent[part] / agents / (steps - steps // 2) * 1e6, 2) for part in PARTS}


def time_calls(owner: Any, *names: tuple[str, str], spent: dict[str, float]) -> None:
    """Replace methods by ones whose time is added up, by part."""
    for name, part in names:
        setattr(owner, name, timed(getattr(owner, name), part, spent))


def timed(function: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def call(*words: Any) -> Any:
        began = time.perf_counter()
        result = function(*words)
        spent[part] = spent.get(part, 0.0) + time.perf_counter() - began
        return result

    return call


def draw(measured: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.6 * len(measured) + 1.2), layout="constrained")
    rows, ends = [each["label"] for each in measured], [0.0] * len(measured)
    for part, colour in zip(PARTS, COLOURS, strict=True):
        widths = [each["us"][part] for each in measured]
        bars = axes.barh(rows, widths, left=ends, color=colour, label=part)
        axes.bar_label(
            bars, [f"{width:.0f}" if width > 3 else "" for width in widths], label_type="center", color="white"
        )
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for row, end in enumerate(ends):
        axes.annotate(f"{end:.0f}", (end, row), (4, 0), textcoords="offset points", va="center")
    axes.invert_yaxis()
    axes.set_xlabel("µs per step of one agent, on one core")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=len(PARTS), loc="lower center", bbox_to_anchor=(0.45, 1.0), frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
