"""Steps per second on LunarLander-v3: a population against other libraries' DQN, on two cores.

    python benchmarks/against_peers.py        # with the Python that has valueshare

All learn the same way: MLP 128-128, batch 64, one update every 4 steps, replay 100,000.
Stable-Baselines3 and CleanRL run as one process per core, one thread each, which is their best use of
a small machine. The population runs in one process with one thread per core, and divided in two, one
thread each, as with `--workers 2`. On Arm, matrix products are OpenBLAS's for all of them, which is faster there than
PyTorch's own choice. Processes report when they are warm and compiled, begin together,
and count the steps of their whole loops over the same interval.

The others get a virtual environment each, benchmarks/.venv-*, made here on the first run; it borrows
PyTorch from the Python this runs with, so that all have the same one. Box2D has no wheels for
aarch64: there it is built, which needs SWIG and a C++ compiler; or give a Python that has it with
--sb3-python, and one with --cleanrl-python. CleanRL's
dqn.py is the file of its wheel, with 128 units instead of 120 and 84; its newest release needs
Gymnasium 0.29, which calls the same environment LunarLander-v2. All alternate, and every round is
shown: how far the rounds of one are apart is the noise of the machine. About six minutes, most of
them measuring; the first run compiles longer.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

# Both are the same library; the second has its source on PyPI.
BOX2D = "Box2D==2.3.10" if platform.machine() in ("x86_64", "AMD64") else "box2d-py==2.3.8"
PEERS = {
    "sb3": ("stable-baselines3==2.9.2", BOX2D, "pygame==2.6.1"),
    "cleanrl": (
        "stable-baselines3==2.3.2",
        "gymnasium==0.29.1",
        BOX2D,
        "pygame==2.6.1",
        "tensorboard==2.21.0",
    ),
}
CLEANRL = "cleanrl==1.2.0"  # without its dependencies, which ask for much older versions of everything
HERE = Path(__file__).resolve().parent
CORES = 2
# OpenMP's threads sleep while they wait: spinning, they take the cores from the environments.
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore"}

# These run in their own virtual environments. They say "ready" after their first updates, then wait for "go".
SB3 = """
import platform, sys, time
import gymnasium, torch
torch.set_num_threads(1)
torch.backends.mkldnn.enabled = platform.machine() not in ("aarch64", "arm64")
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
            exploration_fraction=0.001, exploration_final_eps=0.05, device="cpu")
model.learn(warm_up)
print("ready", flush=True)
sys.stdin.readline()
until = Until()
began = time.perf_counter()
until.deadline = began + seconds
model.learn(10_000_000, callback=until, reset_num_timesteps=False)
print(until.steps / (time.perf_counter() - began), flush=True)
"""

CLEANRL_STEPS = """
import os, platform, sys, time
import gymnasium, torch
torch.set_num_threads(1)
torch.backends.mkldnn.enabled = platform.machine() not in ("aarch64", "arm64")
script, seed, seconds, warm_up = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
count, began, step = 0, None, gymnasium.vector.SyncVectorEnv.step


def counted(environments, actions):
    global count, began
    count += 1
    if began is None and count == warm_up:
        print("ready", file=sys.__stdout__, flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
    elif began is not None and (now := time.perf_counter()) > began + seconds:
        print((count - warm_up) / (now - began), file=sys.__stdout__, flush=True)
        os._exit(0)
    return step(environments, actions)


gymnasium.vector.SyncVectorEnv.step = counted
text = open(script).read().replace(", 120)", ", 128)").replace("(120, 84)", "(128, 128)").replace("(84, ", "(128, ")
assert "120" not in text and "84" not in text.split("class QNetwork")[1].split("def linear_schedule")[0]
sys.argv = [script, "--env-id", "LunarLander-v2", "--seed", seed, "--total-timesteps", "10000000", "--batch-size", "64",
            "--buffer-size", "100000", "--learning-starts", "1000", "--train-frequency", "4",
            "--learning-rate", "5e-4", "--exploration-fraction", "0.001", "--cuda", "False"]
sys.stdout = open(os.devnull, "w")
exec(compile(text, script, "exec"), {"__name__": "__main__", "__file__": script})
"""

# Runs with this Python, in a process of its own, so that neither side inherits the other's threads.
POPULATION = HERE / "against_peers_population.py"


def main() -> None:
    options = parsed()
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    os.sched_setaffinity(0, cores)  # children inherit it
    load = os.getloadavg()[0]
    pythons = {
        peer: given or other_python(peer)
        for peer, given in (("sb3", options.sb3_python), ("cleanrl", options.cleanrl_python))
    }
    learners = {
        f"Stable-Baselines3 DQN, {CORES} processes": [[pythons["sb3"], "-c", SB3]] * CORES,
        f"CleanRL DQN, {CORES} processes": [[pythons["cleanrl"], "-c", CLEANRL_STEPS, cleanrl_script()]] * CORES,
    }
    commands = {
        name: [[*map(str, words), str(seed), str(options.seconds), "3000"] for seed, words in enumerate(processes)]
        for name, processes in learners.items()
    }
    for count in (1, CORES):
        for how in ("eager", "compiled"):
            name = (
                f"valueshare, {options.agents} agents in {'1 process' if count == 1 else f'{count} processes'}, {how}"
            )
            arguments = [str(options.agents // count), str(options.seconds), how, str(CORES // count)]
            commands[name] = [[sys.executable, str(POPULATION), *arguments]] * count
    rates: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(options.rounds):
        for name, processes in commands.items():
            variables = {"OMP_NUM_THREADS": "1"} if len(processes) > 1 else {}
            rates[name].append(rate_together(processes, variables))
            print(f"round {number + 1}: {name} {rates[name][-1]:,.0f} steps/s", flush=True)
    console = Console(width=120)
    table = Table(
        title=f"LunarLander-v3, {len(cores)} cores: steps/s of all agents together",
        caption="MLP 128-128, batch 64, an update every 4 steps, replay 100,000, epsilon to 0.05 in 10,000 steps",
    )
    for heading in ("learner", "steps/s", "each round", *(f"times {peer.split()[0]}" for peer in learners)):
        table.add_column(heading, justify="left" if heading == "learner" else "right")
    for name, measured in rates.items():
        ratios = (f"{mean(measured) / mean(rates[peer]):.1f}" for peer in learners)
        table.add_row(name, f"{mean(measured):,.0f}", "  ".join(f"{rate:,.0f}" for rate in measured), *ratios)
    console.print(table)
    console.print(versions(pythons), highlight=False)
    if load > 0.5:
        console.print(f"the machine was not quiet: a load of {load:.1f} before the start")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agents", type=int, default=64, help="divided among processes")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sb3-python", type=Path, help="Python with Stable-Baselines3 and Box2D, if there is one")
    parser.add_argument("--cleanrl-python", type=Path, help="Python with what CleanRL's dqn.py imports, and Box2D")
    options = parser.parse_args()
    if options.agents < CORES or options.agents % CORES:
        parser.error(f"--agents {options.agents}: write a multiple of {CORES}")
    return options


def other_python(peer: str) -> Path:
    """The Python of another virtual environment, which is made if it is not there."""
    folder, packages = HERE / f".venv-{peer}", PEERS[peer]
    python, stamp = folder / "bin" / "python", folder / "packages.txt"
    if stamp.is_file() and stamp.read_text() == "\n".join(packages):
        return python
    print(f"making {folder.name} with {', '.join(packages)} (once)", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    borrowed = folder / "lib" / version / "site-packages" / "borrowed.pth"
    borrowed.write_text(sysconfig.get_paths()["purelib"] + "\n")
    # Its warnings are of the borrowed packages, which ask for other versions.
    done = subprocess.run([python, "-m", "pip", "install", *packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    stamp.write_text("\n".join(packages))
    return python


def cleanrl_script() -> Path:
    """CleanRL's dqn.py, from its wheel."""
    script = HERE / ".venv-cleanrl" / f"{CLEANRL}.py"
    if not script.is_file():
        script.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            download = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--ignore-requires-python"]
            subprocess.run([*download, "--dest", folder, CLEANRL], check=True)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                script.write_bytes(archive.read("cleanrl/dqn.py"))
    return script


def rate_together(commands: Sequence[Sequence[str]], variables: dict[str, str]) -> float:
    """Steps per second of all processes together, over the same interval."""
    folder = tempfile.mkdtemp()  # CleanRL writes its logs to the current one
    processes = [
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **variables},
            cwd=folder,
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
    shutil.rmtree(folder)
    return rate


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        sys.exit(f"a learner ended early with {process.wait()}")
    return text


def versions(pythons: dict[str, Path]) -> str:
    from valueshare.benchmarks.output import versions_line

    code = (
        "import stable_baselines3 as s, gymnasium as g, torch as t\n"
        "print(f'Stable-Baselines3 {s.__version__}, gymnasium {g.__version__}, torch {t.__version__}')"
    )
    others = [
        f"{peer}: {subprocess.run([python, '-c', code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()}"
        for peer, python in pythons.items()
    ]
    return "; ".join([versions_line("cpu"), CLEANRL.replace("==", " "), *others])


if __name__ == "__main__":
    main()
