"""Learning curves of the examples of docs/integrations.md: plain DQN (k = 0) against k = n in each library.

    python benchmarks/integrations.py --out results/integrations --seeds 0 4 --python pfrl=.venv-pfrl/bin/python

Runs examples/*.py on CartPole-v1, one process per library, k and seed, one thread each and `nice -n 10`. A library runs
in the Python given with --python, or in this one; a library that is missing there is left out, with a note. Writes one
CSV file per run into --out and skips those that are finished, so the same command resumes. Then draws curves.png (mean
of the seeds, and their range) and writes table.md. --draw only draws. Seeds are the outer loop: what an interrupted
benchmark has finished is spread over all libraries.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import polars as pl

from valueshare.report.figures.style import BLUE, ORANGE, rc_style
from valueshare.text import pluralize

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
KS = ("0", "n")


class Library(NamedTuple):
    name: str
    example: str
    package: str  # its version is shown


LIBRARIES = {
    "sb3": Library("Stable-Baselines3", "sb3.py", "stable_baselines3"),
    "sb3-contrib": Library("sb3-contrib (QR-DQN)", "sb3_qrdqn.py", "sb3_contrib"),
    "cleanrl": Library("CleanRL's loop", "cleanrl_dqn.py", "torch"),
    "pfrl": Library("PFRL", "pfrl_dqn.py", "pfrl"),
    "torchrl": Library("TorchRL", "torchrl_dqn.py", "torchrl"),
    "tianshou": Library("Tianshou", "tianshou_dqn.py", "tianshou"),
    "flax": Library("Flax", "flax_dqn.py", "flax"),
    "equinox": Library("Equinox", "equinox_dqn.py", "equinox"),
}


class Run(NamedTuple):
    library: str
    k: str
    seed: int

    def path(self, folder: Path) -> Path:
        return folder / f"{self.library}-k{self.k}-seed{self.seed}.csv"


def main() -> None:
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    versions = {name: version(LIBRARIES[name].package, options.python[name]) for name in options.libraries}
    for name in (name for name in options.libraries if not versions[name]):
        print(f"{name}: {LIBRARIES[name].package} is not installed in {options.python[name]}: left out", flush=True)
    if not options.draw:
        first, count = options.seeds
        runs = [Run(name, k, seed) for seed in range(first, first + count) for name in options.libraries for k in KS]
        due = [run for run in runs if versions[run.library] and not run.path(options.out).exists()]
        print(f"{len(due)} runs due, {len(runs) - len(due)} finished or left out", flush=True)
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda run: train(run, options), due))
    scores = read(options.out, options.libraries)
    draw(scores, options.out / "curves.png")
    text = table(scores, versions)
    (options.out / "table.md").write_text(text)
    print(text, end="")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/integrations"))
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--python", nargs="+", action="extend", default=[], metavar="LIBRARY=PYTHON")
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 4), metavar=("FIRST", "COUNT"))
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--eval-interval", type=int, default=2_500)
    parser.add_argument("--eval-episodes", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--draw", action="store_true", help="only draw what is finished")
    options = parser.parse_args()
    known = ", ".join(LIBRARIES)
    given = dict(word.partition("=")[::2] for word in options.python)
    for name, python in given.items():
        if name not in LIBRARIES or not Path(python).is_file():
            parser.error(f"--python {name}={python}: write one of {known}, = and its Python")
    options.python = {name: given.get(name, sys.executable) for name in LIBRARIES}
    return options


def version(package: str, python: str) -> str:
    """The installed version; empty where the package is missing."""
    program = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=False).stdout.strip()


def train(run: Run, options: argparse.Namespace) -> None:
    path = run.path(options.out)
    words = ["--k", run.k, "--seed", run.seed, "--steps", options.steps]
    words += ["--eval-interval", options.eval_interval, "--eval-episodes", options.eval_episodes]
    command = ["nice", "-n", "10", options.python[run.library], EXAMPLES / LIBRARIES[run.library].example, *words]
    unfinished, began = path.with_suffix(".part"), time.perf_counter()
    with unfinished.open("w") as file:
        ended = subprocess.run(
            [str(word) for word in command],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    if ended.returncode:
        print(f"{path.stem}: failed: {ended.stderr.strip().splitlines()[-1:]}", flush=True)
        return
    unfinished.rename(path)
    print(f"{path.stem}: {time.perf_counter() - began:.0f} s", flush=True)


def read(folder: Path, libraries: list[str]) -> pl.DataFrame:
    """Columns library, k, seed, step, score of the seeds that are finished for both k."""
    tables = []
    for name in libraries:
        for path in sorted(folder.glob(f"{name}-k0-seed*.csv")):
            runs = [Run(name, k, int(path.stem.rpartition("seed")[2])) for k in KS]
            if all(run.path(folder).exists() for run in runs):
                tables += [
                    pl.read_csv(run.path(folder), schema_overrides={"score": pl.Float64}).select(
                        pl.lit(name).alias("library"), pl.lit(run.k).alias("k"), "seed", "step", "score"
                    )
                    for run in runs
                ]
    if not tables:
        sys.exit(f"{folder} has no library that is finished for both k")
    return pl.concat(tables)


def draw(scores: pl.DataFrame, path: Path) -> None:
    names = scores["library"].unique(maintain_order=True).to_list()
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    with rc_style():
        figure, axes = plt.subplots(
            rows,
            columns,
            figsize=(2.4 * columns, 2.2 * rows + 0.3),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for axis, name in zip(axes.flat, names, strict=False):
            for k, colour in zip(KS, (BLUE, ORANGE), strict=True):
                score = pl.col("score")
                by_step = scores.filter(library=name, k=k).group_by("step", maintain_order=True)
                curve = by_step.agg(score.mean().alias("mean"), score.min().alias("low"), score.max().alias("high"))
                axis.plot(curve["step"], curve["mean"], color=colour, label="k = n = 2" if k == "n" else "k = 0")
                axis.fill_between(curve["step"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0)
            seeds = scores.filter(library=name)["seed"].n_unique()
            axis.set_title(f"{LIBRARIES[name].name}, {pluralize(seeds, 'seed')}")
        for axis in axes.flat[len(names) :]:
            axis.remove()
        axes[0, 0].legend()
        figure.supxlabel("steps", fontsize=9)
        figure.supylabel("mean return of greedy episodes", fontsize=9)
        figure.savefig(path)
        plt.close(figure)


def table(scores: pl.DataFrame, versions: dict[str, str]) -> str:
    """Per library: score of the last evaluation, and mean of all evaluations; means of the seeds, with their range."""
    lines = [
        "| Library | Seeds | Last, k = 0 | Last, k = n | Mean, k = 0 | Mean, k = n |",
        "|---|---|---|---|---|---|",
    ]
    for name in scores["library"].unique(maintain_order=True):
        own_scores = scores.filter(library=name)
        cells = []
        for part in (own_scores.filter(step=own_scores["step"].max()), own_scores):
            for k in KS:
                seeds = part.filter(k=k).group_by("seed").agg(pl.col("score").mean())["score"].to_numpy()
                cells.append(f"{seeds.mean():.0f} ({seeds.min():.0f} to {seeds.max():.0f})")
        library = LIBRARIES[name]
        version = f"{'PyTorch ' if library.package == 'torch' else ''}{versions.get(name, '')}".strip()
        lines.append(f"| {library.name} {version} | {own_scores['seed'].n_unique()} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
