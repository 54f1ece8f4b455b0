"""Steps a second on LunarLander-v3: a population against Stable-Baselines3's DQN, on two cores.

    python benchmarks/against_sb3.py        # with the Python that has valueshare

Both learn the same way: MLP 128-128, batch 64, one update every 4 steps, replay 100,000.
Stable-Baselines3 runs as one process a core, one thread each, which is its best use of a small
machine. The population runs in one process with a thread a core, and cut in two, one thread each,
as with `--workers 2`. Processes say when they are warm and compiled, begin together, and count the
steps of their whole loops over the same stretch of time.

Stable-Baselines3 gets a virtual environment of its own, benchmarks/.venv, made here on the first
run; it borrows PyTorch from the Python this runs with, so that both have the same one. Box2D has no
wheels for aarch64: there, give a Python that has it with --sb3-python. All alternate,
and every round is shown: how far the rounds of one are apart is the noise of the machine.
About four minutes, most of them measuring; the first run compiles longer.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent / ".venv"
PACKAGES = ("stable-baselines3==2.9.2", "Box2D==2.3.10", "pygame==2.6.1")
CORES = 2
# OpenMP's threads sleep while they wait: spinning, they take the cores from the environments.
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}

# Runs in the other virtual environment. Says "ready" after its first updates, then waits for "go".
LEARNER = """
import sys, time
import gymnasium, torch
torch.set_num_threads(1)
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

seed, seconds, warm_up = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])


class Until(BaseCallback):
    deadline = None
    steps = 0

    def _on_step(self):
        self.steps += 1
        return self.deadline is None or time.perf_counter() < self.deadline


# An object, not its id: given an id, Stable-Baselines3 turns rendering on.
model = DQN("MlpPolicy", gymnasium.make("LunarLander-v3"), policy_kwargs={"net_arch": [128, 128]}, seed=seed,
            learning_rate=5e-4, batch_size=64, buffer_size=100_000, learning_starts=1_000,
            train_freq=4, gradient_steps=1, target_update_interval=500, gamma=0.99,
            exploration_fraction=0.1, exploration_final_eps=0.05, device="cpu")
model.learn(warm_up)
print("ready", flush=True)
sys.stdin.readline()
until = Until()
began = time.perf_counter()
until.deadline = began + seconds
model.learn(10_000_000, callback=until, reset_num_timesteps=False)
print(until.steps / (time.perf_counter() - began), flush=True)
"""

# Runs with this Python, in a process of its own, so that neither side inherits the other's threads.
# Says "ready" and waits for "go", like the other one.
POPULATION = """
import sys, time
from valueshare.runs.workers.worker import prepare

agents, seconds, compiled = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "compiled"
threads = int(sys.argv[4])
prepare(threads)
from valueshare.benchmarks import population
from valueshare.envs.episodes import TrainingEpisodes

preset = population.preset_named("generic")
# Whatever the preset becomes, this comparison keeps its settings.
settings = preset.settings
assert (settings.hidden, settings.batch_size) == ((128, 128), 64)
assert (settings.update_interval, settings.replay_transitions) == (4, 100_000)
STRETCH = 100  # steps between looks at the clock


def loop(engine):
    episodes, t = TrainingEpisodes(agents), settings.learning_starts
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        engine.executor.run(range(t, t + STRETCH), lambda step: None, episodes)
        t += STRETCH
    print(agents * (t - settings.learning_starts) / (now - began), flush=True)


population.measure(agents, preset, compiled=compiled, threads=threads, seconds=2.0,
                   only=("whole loop",), trace=loop)  # warm by then, replay full
"""


def main() -> None:
    options = parsed()
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)  # children inherit it
    load = os.getloadavg()[0]
    python = options.sb3_python or other_python()
    kinds = [(count, how) for count in (1, CORES) for how in ("eager", "compiled")]
    names = {
        (count, how): f"valueshare, {options.agents} agents in "
        f"{'1 process' if count == 1 else f'{count} processes'}, {how}"
        for count, how in kinds
    }
    sb3: list[float] = []
    ours: dict[tuple[int, str], list[float]] = {kind: [] for kind in kinds}
    for number in range(options.rounds):
        sb3.append(sb3_rate(python, options.seconds))
        print(f"round {number + 1}: two SB3 processes {sb3[-1]:,.0f} steps/s", flush=True)
        for kind in kinds:
            ours[kind].append(our_rate(options.agents, options.seconds, *kind))
            print(f"round {number + 1}: {names[kind]} {ours[kind][-1]:,.0f} steps/s", flush=True)
    console = Console(width=120)
    table = Table(
        title=f"LunarLander-v3, {len(cores)} cores: steps/s of all agents together",
        caption="MLP 128-128, batch 64, an update every 4 steps, replay 100,000",
    )
    for heading in ("learner", "steps/s", "each round", "times SB3"):
        table.add_column(heading, justify="left" if heading == "learner" else "right")
    table.add_row(f"Stable-Baselines3 DQN, {CORES} processes", *shown(sb3, sb3))
    for kind in kinds:
        table.add_row(names[kind], *shown(ours[kind], sb3))
    console.print(table)
    console.print(versions(python), highlight=False)
    if load > 0.5:
        console.print(f"the machine was not quiet: a load of {load:.1f} before the start")
    best = max(mean(rates) for rates in ours.values()) / mean(sb3)
    console.print(f"{best:.1f} times")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=64, help="divided among processes")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sb3-python", type=Path, help="Python with Stable-Baselines3 and Box2D, if there is one")
    options = parser.parse_args()
    if options.agents < CORES or options.agents % CORES:
        parser.error(f"--agents {options.agents}: write a multiple of {CORES}")
    return options


def other_python() -> Path:
    """The Python of the other virtual environment, which is made if it is not there."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / "packages.txt"
    if stamp.is_file() and stamp.read_text() == "\n".join(PACKAGES):
        return python
    print(f"making {FOLDER.name} with {', '.join(PACKAGES)} (once)", flush=True)
    venv.create(FOLDER, with_pip=True, clear=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    borrowed = FOLDER / "lib" / version / "site-packages" / "borrowed.pth"
    borrowed.write_text(sysconfig.get_paths()["purelib"] + "\n")
    subprocess.run([python, "-m", "pip", "--quiet", "--quiet", "install", *PACKAGES], check=True)
    stamp.write_text("\n".join(PACKAGES))
    return python


def sb3_rate(python: Path, seconds: float) -> float:
    each = [str(seconds), "3000"]
    words = [[str(python), "-c", LEARNER, str(seed), *each] for seed in range(CORES)]
    return rate_together(words, {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"})


def our_rate(agents: int, seconds: float, processes: int, how: str) -> float:
    each = [str(agents // processes), str(seconds), how, str(CORES // processes)]
    words = [[sys.executable, "-c", POPULATION, *each]] * processes
    return rate_together(words, {"OMP_NUM_THREADS": "1"} if processes > 1 else {})


def rate_together(commands: Sequence[Sequence[str]], variables: dict[str, str]) -> float:
    """Steps a second of all processes together, over the same stretch of time."""
    processes = [
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **variables},
        )
        for words in commands
    ]
    for process in processes:
        line(process)  # "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    rate = sum(float(line(process)) for process in processes)
    for process in processes:
        process.wait()
    return rate


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        sys.exit(f"a learner ended early with {process.wait()}")
    return text


def shown(rates: list[float], base: list[float]) -> tuple[str, str, str]:
    each = "  ".join(f"{rate:,.0f}" for rate in rates)
    return f"{mean(rates):,.0f}", each, f"{mean(rates) / mean(base):.1f}"


def versions(python: Path) -> str:
    from valueshare.benchmarks.output import versions_line

    code = (
        "import stable_baselines3 as s, gymnasium as g, torch as t\n"
        "print(f'Stable-Baselines3 {s.__version__}, gymnasium {g.__version__}, '"
        " f'torch {t.__version__}')"
    )
    asked = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return f"{versions_line('cpu')}; beside it {asked.stdout.strip()}"


if __name__ == "__main__":
    main()
