"""Time of `import valueshare` and of its mathematics, which load NumPy, in fresh interpreters."""

import statistics
import subprocess
import sys

from valueshare.benchmarks.output import Output, Row

REPEATS = 11


def seconds(statement: str) -> list[float]:
    """Seconds of one statement, each time in a new interpreter."""
    script = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    runs = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(REPEATS)
    )
    return [float(run.stdout) for run in runs]


def run(as_json: bool = False) -> None:
    output = Output("import", "imports", as_json=as_json)
    output.say(f"medians of {REPEATS} fresh interpreters")
    least = 0.0
    for statement in ("import numpy", "import valueshare.expansion"):
        times = seconds(statement)
        median = statistics.median(times)
        least = least or median
        spread = f"{1e3 * min(times):.0f} to {1e3 * max(times):.0f} ms"
        limit, share = ("", None) if median == least else ("import numpy", least / median)
        output.add(Row(statement, 1e3 * median, 1 / median, limit, share, spread))
    output.end()
