"""How long `import valueshare` takes, in fresh interpreters."""

import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table

from valueshare.runs.provenance import machine_line

REPEATS = 11


def seconds(statement: str, repeats: int = REPEATS) -> list[float]:
    """Seconds of one statement, each time in a new interpreter."""
    script = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    runs = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(repeats)
    )
    return [float(run.stdout) for run in runs]


def run() -> None:
    table = Table("statement", "median s", "fastest s", "slowest s", title=machine_line())
    for statement in ("import numpy", "import valueshare"):
        times = seconds(statement)
        shown = (statistics.median(times), min(times), max(times))
        table.add_row(statement, *(f"{value:.3f}" for value in shown))
    Console().print(table)
