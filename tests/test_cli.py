"""The command line as its users meet it: another process, its words, its exit code."""

import contextlib
import errno
import io
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium
import polars as pl
import pytest
from undrawn import undrawn

import valueshare
from valueshare import __main__ as program
from valueshare import extras
from valueshare.cli import COMMANDS, main, make_app
from valueshare.cli.arguments import with_options
from valueshare.errors import InvalidInput
from valueshare.extras import install_command

Cli = Callable[..., tuple[int, str, str]]

QUICK = ("--k", "0", "1.6", "--step-size", "0.1", "0.3", "--seeds", "2", "--steps", "200")


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "valueshare", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=240,
    )


def refused(*words: str, cwd: Path) -> str:
    """The one line that a command answers when it exits with 2."""
    done = run(*words, cwd=cwd)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert lines[0].startswith("valueshare: ")
    return lines[0]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


# Help.

TABULAR_OPTIONS = [
    "--env", "--algorithm", "--k", "--step-size", "--seeds", "--steps", "--regimes", "--epsilon",
    "--step-size-power", "--discount", "--step-reward", "--measure", "--out", "--overwrite",
    "FrozenLake-v1", "expected-sarsa",
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("", ["train", "reproduce Reproduce the paper, and additional studies", "bench Benchmarks: tabular"]),
        ("tabular", TABULAR_OPTIONS),
    ],
)
def test_help_of_the_process(command: str, named: list[str]) -> None:
    done = run(*command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    flowing = " ".join(done.stdout.replace("│", " ").split())
    for name in named:
        assert name in flowing


@pytest.mark.parametrize(
    ("command", "named"),
    [
        *((command, [f"Usage: valueshare {command}"]) for command in COMMANDS),
        ("reproduce", ["gridworld The paper's gridworld figure", "atari-rdq-beta RDQ"]),
        ("reproduce gridworld", ["--scale", "[choices: paper, smoke]", "--out", "--overwrite"]),
        ("bench", ["tabular Timesteps", "layer Time of a forward and backward pass", "import Time"]),
        ("bench tabular", ["Timesteps per second"]),
        ("bench layer", ["Nature network"]),
        ("bench import", ["import valueshare"]),
    ],
)
def test_help_names_everything(command: str, named: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*command.split(), "--help"])
    flowing = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name in named:
        assert name in flowing
    for unsaid in ("None", "()", '""', ""):  # what is left out is said in words
        assert f"[default: {unsaid}]" not in flowing


def test_lines_of_help_end_at_the_width_and_not_where_the_source_has_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["watch", "--help"])
    assert "agent. It is served on this machine only, until Ctrl-C." in capsys.readouterr().out


def test_without_a_command_there_is_help() -> None:
    done = run()
    assert done.returncode == 0
    assert "gridworld" in done.stdout


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version(option: str) -> None:
    done = run(option)
    assert (done.returncode, done.stdout) == (0, f"valueshare {valueshare.__version__}\n")


# What is not installed.

ROOT = Path(__file__).resolve().parents[1]
WITHOUT_PYTORCH = """
import sys
from valueshare.cli import main

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Absent())
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("train --env CartPole-v1", "train"),
        ("resume runs/first", "train"),
        ("reproduce atari57", "atari"),
        ("bench layer", "torch"),
    ],
)
def test_without_pytorch_a_command_says_what_to_type(words: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYTORCH, *words.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.endswith(f" needs torch: {install_command(extra)}\n")
    assert f"-m pip install -c constraints.txt -e '.[{extra}]'" in done.stderr


def test_without_pytorch_training_from_python_says_what_to_type() -> None:
    program = WITHOUT_PYTORCH.replace("main(sys.argv[1:])", "import valueshare; valueshare.train")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: valueshare.train needs torch: ")
    assert done.stderr.endswith("[train]'\n")


def test_what_to_type_is_in_the_readme_and_holds_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (ROOT / "README.md").read_text()
    assert ".venv/bin/python -m pip install -c constraints.txt -e '.[train]'" in readme
    monkeypatch.chdir(tmp_path)  # not in the clone
    words = shlex.split(install_command("train", "video"))
    assert words[0] == sys.executable
    assert words[-3:] == [str(ROOT / "constraints.txt"), "-e", f"{ROOT}[train,video]"]
    monkeypatch.chdir(Path(sys.executable).parent)  # where its name alone would be looked for
    assert shlex.split(install_command("train"))[0] == sys.executable
    monkeypatch.setattr(extras, "CLONE", tmp_path)  # none
    assert install_command("train", "video") == "pip install 'valueshare[train,video]'"


# Bad input.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nonsense", r"nonsense.*reproduce gridworld.*tabular"),
        ("tabular --k one two", r"--k.*one"),
        ("tabular --seeds -3", r"--seeds -3: an interval needs at least 2 runs"),
        (
            "tabular --k 1e5 --step-size 1 --seeds 2 --steps 2000",
            r"every run diverged within 2,000 timesteps: write a smaller --step-size",
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(words: str, message: str, tmp_path: Path) -> None:
    """Of the process itself; more of it in this one, below."""
    assert re.search(message, refused(*words.split(), cwd=tmp_path))
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("reproduce nonsense", r"nonsense.*reproduce gridworld"),
        ("reproduce lunarlander --seeds 0", r"--seeds 0: write a number >= 1"),
        ("reproduce lunarlander --eval-episodes 0", r"--eval-episodes 0: write a number >= 1"),
        ("tran --env CartPole-v1", r"unknown command 'tran': did you mean train\?"),
        ("bnech population", r"unknown command 'bnech': did you mean bench population\?"),
        ("train --env A --sede 3", r"train has no option --sede: did you mean --seeds\?"),
        ("train --env A -- --plan", r"options are not read after --: write --plan before it"),
        (
            "reproduce atari-57",
            r"'reproduce atari-57': did you mean reproduce atari57\?",
        ),
        ("bench poplation", r"unknown command 'bench poplation': did you mean bench population\?"),
        (
            "train --evn A",
            r"missing required argument --env, and train has no option --evn: .* mean --env.*\?",
        ),
        ("train --evn=A --eval_interval 3", r"train has no option --evn: did you mean --env.*\?"),
        (
            "train --eval_interval 3",
            r"missing required argument --env, for example --env CartPole-v1; see valueshare train --help",
        ),
        ("play x --agnet 3 --video a.mp4", r"play has no option --agnet: did you mean --agent\?"),
        ("play --agnet 3", r"play has no option --agnet: did you mean --agent\?"),
        (
            "play --agent 3 --video a.mp4",
            r"missing required argument RUN, for example runs/CartPole-v1-ib-dqn; see valueshare play --help",
        ),
        ("play x", r"missing required arguments --agent and --video, for example --agent 0 --video agent\.mp4; see"),
        ("play x --agent=0", r"missing required argument --video, for example --video agent\.mp4; see"),
        ("bench population --agnets 3", r"bench population has no .*: did you mean --agents\?"),
        ("train --env A --qqq 3", r"train has no option --qqq: valueshare train --help has all"),
        ("train --env A --foo", r"train has no option --foo: valueshare train --help has all"),
        ("train --env A --sede", r"train has no option --sede: did you mean --seeds\?"),
        (
            "resume x --batch-size=16",
            r"a run resumes with its own settings: leave out --batch-size",
        ),
        ("resume x --therads 2", r"resume has no option --therads: did you mean --threads\?"),
        ("resume x --seeds 2", r"a run resumes with its own settings: leave out --seeds"),
        ("train --env A --seeds x", r"--seeds: invalid value 'x': write a whole number"),
        ("train --env A --seeds", r"--seeds: write a value after it"),
        ("train --env A --adam-betas 1", r"--adam-betas: write 2 values after it"),
        ("train --env A --hidden 8 x", r"--hidden: invalid value 'x': write a whole number"),
        ("train --env A --compile yes", r"train: unexpected argument 'yes': write --compile or --no-compile"),
        ("train --env A --no-compile yes --k 1", r"train: unexpected argument 'yes': write --compile or --no-compile"),
        ("train --env A --plan x", r"train: unexpected argument 'x': leave it out, as --plan takes no value"),
        ("train --env A --tensorboard", r"train has no option --tensorboard: it is called --log here"),
        ("train --env A --k x", r"--k: invalid value 'x': write a number or n"),
        ("train --env A --tf32=x", r"--tf32: invalid value 'x': write True or False"),
        ("train --env A --no-plan", r"train has no option --no-plan: did you mean --plan"),
        ("bench layer now", r"bench layer: unexpected argument 'now': leave it out"),
        ("train --env A --steps 1.5", r"--steps: invalid value '1\.5': write a whole number"),
        ("train --env A --steps 1.5555k", r"--steps: invalid value '1\.5555k': write a whole number"),
        ("train --env A --steps k", r"--steps: invalid value 'k': write a whole number"),
        ("train --env A --steps 100g", r"--steps: invalid value '100g': write a whole number"),
        ("train --env A --steps 1e400", r"--steps: invalid value '1e400': write a whole number"),
        ("train --env A --learning-rate 3", r"train has no option --learning-rate: it is called --step-size here"),
        ("train --env A --gamma=3", r"train has no option --gamma: it is called --discount here"),
        ("tabular --gamma=3", r"tabular has no option --gamma: it is called --discount here"),
        (
            "train --env my/Env-v0",
            r"no environment 'my/Env-v0': put its module before its name, like",
        ),
        ("train --env A --k 0 x", r"--k: invalid value 'x': write a number or n"),
        ("train --env A --reward-scale x", r"--reward-scale: invalid value 'x': write a number"),
        ("train --env A --loss l3", r"--loss: invalid value 'l3': write one of half-squared, huber"),
        ("reproduce gridworld --scale big", r"'big'.*paper.*smoke"),
        ("tabular --nonsense 3", r"--nonsense"),
        ("tabular --env Nonsense-v1", r"no environment 'Nonsense-v1'.*FrozenLake-v1"),
        ("tabular --env Taxi-v3", r"no environment 'Taxi-v3': did you mean Taxi-v4\?"),
        ("tabular --algorithm dqn", r"no tabular algorithm 'dqn': write one of q-learning, sarsa"),
        ("tabular --algorithm q-lerning", r"no tabular algorithm 'q-lerning': did you mean q-learning\?"),
        ("tabular --k nan", r"--k nan: .*finite number >= 0"),
        ("tabular --step-size 0", r"--step-size 0: write a number above 0"),
        ("tabular --step-size -1", r"--step-size -1: write a number above 0"),
        ("tabular --step-size 0.1 1.5", r"--step-size 1\.5: write a number above 0"),
        ("tabular --env CartPole-v1", r"CartPole-v1 does not publish its transition table"),
        ("tabular --k", r"--k: write a value after it"),
        ("tabular --k 0 -2", r"--k -2: .*finite number >= 0"),
        ("tabular --k inf", r"--k inf: .*finite number >= 0"),
        ("train --env CartPole-v1 --k 0 --k 2", r"--k is given twice: write --k 0 2$"),
        ("train --env A --env A", r"--env is given twice: write --env A$"),
        ("train --env A --k 0 1 --k 1", r"--k is given twice: write all of its values after one --k$"),
        ("train --env A --seeds 1 --seeds 2", r"--seeds is given twice: write it once$"),
        ("reproduce minatar --seeds 3 --seeds=3", r"--seeds is given twice: write it once$"),
        ("report r --figures iqm --figures auc-change", r"--figures is given twice: write --figures iqm auc-change$"),
        ("train --env A --plan --plan", r"--plan is given twice: write it once$"),
        ("train --env A --compile --no-compile", r"--compile and --no-compile contradict each other: leave one out$"),
        ("train --env A --hidden 64,64", r"--hidden: values are separated by spaces: write --hidden 64 64$"),
        ("train --env A --hidden [64,64]", r"--hidden: values are separated by spaces: write --hidden 64 64$"),
        ("train --env A,B --seeds 2", r"--env: values are separated by spaces: write --env A B$"),
        ("tabular --k 0, n", r"--k: values are separated by spaces: write --k 0 n$"),
        ("train --env A --discount 1.5", r"--discount 1\.5: write a number >= 0 and <= 1$"),
        ("train --env CartPole-v1 --first-seed -1", r"--first-seed -1: write a whole number from 0 to \d+$"),
        ("train --env A --ray-cpus 2", r"--ray-cpus is for a cluster: add --launcher ray, or leave it out$"),
        ("tabular --k 0 0", r"--k: 0 is given more than once; write each value once"),
        ("tabular --step-size", r"--step-size: write a value after it"),
        ("tabular --step-size nan", r"--step-size nan: write a number above 0"),
        ("tabular --seeds 2.5", r"--seeds.*2\.5"),
        ("tabular --seeds 1", r"--seeds 1: an interval needs at least 2 runs"),
        ("tabular --steps 0", r"--steps 0: write a number >= 1"),
        ("tabular --steps 1e30", r"--steps 10{30}: write a number <= 1,000,000,000,000$"),
        ("tabular --regimes 9000", r"--regimes holds a number outside 1 to 5000"),
        ("tabular --epsilon 2", r"--epsilon 2: a probability"),
        ("tabular --step-size-power -1", r"--step-size-power -1: it lies in \[0, 1\]"),
        ("tabular --discount 1.01", r"--discount 1\.01: it lies in \[0, 1\]"),
        ("tabular --step-reward nan", r"--step-reward nan: write a finite number"),
        ("tabular --env Taxi-v4 --step-reward -1", r"--step-reward is for the gridworld"),
        ("tabular --measure smiles", r"invalid value 'smiles': write one of auto, episodes, reward"),
    ],
)
def test_more_bad_input(
    words: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    said, complaint = capfd.readouterr()
    assert (ended.value.code, said) == (2, "")
    assert re.fullmatch(rf"valueshare: .*{message}.*\n", complaint)
    assert contents(tmp_path) == {}


def test_numbers_and_names_as_others_write_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "train --env CartPole-v1 --steps 1e3 --eval-interval 2.5E2 --algorithm DQN IB_DQN --k 2 --seeds 2 --plan"
    main([*words.split(), "--out", str(tmp_path / "run")])
    said = capsys.readouterr().out
    assert "4 agents" in said
    assert "1,000 steps" in said
    assert "ib-dqn" in said


def test_the_plan_of_a_study_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["reproduce", "lunarlander", "--scale", "smoke", "--plan"])
    said = capsys.readouterr().out
    assert "--algorithm ib-dqn" in said
    assert "resources: " in said
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("a file", "a file is a file: choose another --out"),
        ("a file/out", "cannot write to .*a file"),
        ("/proc/nope", "cannot write to /proc/nope: no folder .* there; choose another --out"),
        ("/proc/nope/deeper", "cannot write to /proc/nope/deeper: "),
        ("", "'' is not a folder: write its name, like runs/first"),
        ("full", "full holds files that are not results of valueshare"),
        (".", "contains the current working directory"),
        ("new/" + "n" * 300, "file name too long"),
        ("/".join(["new"] * 2_000), "file name too long"),
    ],
)
def test_places_that_cannot_be_written(
    out: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a file").write_text("stays")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "photo").write_text("stays")
    before = contents(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["tabular", *QUICK, "--out", out])
    assert ended.value.code == 2
    assert re.fullmatch(rf"valueshare: .*{message}.*\n", capfd.readouterr().err)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "command", ["train --env CartPole-v1 --steps 1000 --seeds 1", "tabular", "reproduce lunarlander --scale smoke"]
)
def test_a_plan_for_a_folder_that_cannot_be_written(command: str, cli: Cli) -> None:
    message = "valueshare: cannot write to /proc/nope: no folder can be made there; choose another --out\n"
    assert tuple(cli(*command.split(), "--plan", "--out", "/proc/nope")) == (2, "", message)


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs to become another user")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    """As nobody, in a folder of root's."""
    (tmp_path / "locked").mkdir(mode=0o700)
    script = f"""
import os, pathlib
from valueshare.errors import InvalidInput
from valueshare.runs.directory import results_folder
os.setgid(65534); os.setuid(65534)
for name in ("locked/out", "out"):
    try:
        with results_folder(pathlib.Path({str(tmp_path)!r}) / name, {{}}):
            print("written")
    except InvalidInput as error:
        print(error)
"""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    assert [line.rpartition(": ")[2] for line in said] == ["permission denied"] * 2, done.stderr
    assert contents(tmp_path) == {"locked": None}


# A study, its repetition, and others in its place.


def test_a_study_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """In a process of its own first, and then in this one."""
    monkeypatch.chdir(tmp_path)
    words = ("tabular", *QUICK, "--algorithm", "sarsa", "--step-reward", "-1", "--out", "my out")
    first = run(*words, cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[0] == "8 runs, 1,600 timesteps"
    out = tmp_path / "my out"
    written = contents(out)
    assert [path.name for path in tmp_path.iterdir()] == ["my out"]
    records = pl.read_parquet(out / "records" / "runs.parquet")
    assert records["algorithm"].unique().to_list() == ["sarsa"]
    assert records["step"].unique().sort().to_list() == [20, 40, 100, 200]

    # The same again, by the command that the page gives: it is there, and only the same report is made again.
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    (given,) = re.findall(r"<pre><code>(.*?)</code></pre>", page)
    assert str(tmp_path) not in given
    code, said, complaint = cli(*shlex.split(given)[1:], "--out", "my out")
    assert (code, complaint) == (0, "")
    assert said.startswith("these results are there already (--overwrite runs again)")
    assert said.splitlines()[1:] == first.stdout.splitlines()[2:]
    assert contents(out) == written

    # Other settings are refused, unless asked for.
    changed = [word if word != "200" else "300" for word in words]
    code, _, complaint = cli(*changed)
    assert (code, complaint.count("\n")) == (2, 1)
    assert "my out holds results of other settings" in complaint
    assert "--overwrite" in complaint
    assert contents(out) == written
    (out / "note").write_text("of the old")
    with undrawn():
        code, _, complaint = cli(*changed, "--overwrite")
    assert (code, complaint) == (0, "")
    assert contents(out).keys() == written.keys()  # the note went with the old
    assert contents(out)["config.json"] != written["config.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["my out"]


def test_a_full_standard_output_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(SystemExit):
        main(["paper-table"])
    assert capsys.readouterr().err == "valueshare: cannot write to standard output: No space left on device\n"


def test_warnings_are_notes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("valueshare.cli.main", lambda: logging.getLogger("valueshare.records").warning("a is damaged"))
    monkeypatch.setattr(program, "COMMAND_EXIT_CODES", {})
    monkeypatch.setattr(program, "exit_code_on_signal", lambda code: None)
    program.run()
    assert capsys.readouterr().err == "note: a is damaged\n"


def test_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """FrozenLake: rewards are compared, and there is no step reward to tell apart."""
    words = ("tabular", "--env", "FrozenLake-v1", *QUICK, "--algorithm", "expected-sarsa")
    monkeypatch.chdir(tmp_path)
    code, said, complaint = cli(*words)
    assert (code, complaint) == (0, "")
    out = tmp_path / "results" / "FrozenLake-v1-expected-sarsa"
    assert said.splitlines()[-2:] == [
        "results/FrozenLake-v1-expected-sarsa/report/figures: increase, norms",
        "results/FrozenLake-v1-expected-sarsa/report/report.html: all of it as one page, with notes on how to read it",
    ]
    assert (out / "report" / "figures" / "increase.svg").is_file()
    assert '"mean_reward"' in (out / "report" / "report.json").read_text()
    assert "NaN" not in (out / "report" / "report.json").read_text()


# Ctrl-C.


def test_ctrl_c_ends_cleanly(tmp_path: Path) -> None:
    """A second into the paper's sweep: one line, 130, and nothing is left."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "valueshare", "reproduce", "gridworld", "--out", "new/out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,  # a group of its own, as a terminal gives to a command
        # Where the tests themselves run in the background, Ctrl-C is ignored: not by this child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "140,544 runs, 702,720,000 timesteps\n"
        time.sleep(1)
        assert process.poll() is None
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            os.killpg(process.pid, signal.SIGINT)  # again and again: it changes nothing
            time.sleep(0.02)
        said, complaint = process.communicate(timeout=30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 130
    assert said == ""
    assert complaint == "valueshare: interrupted; nothing was written to new/out\n"
    assert contents(tmp_path) == {}


def test_ctrl_c_after_the_end_changes_nothing() -> None:
    """While the interpreter puts its things away, which takes PyTorch a second."""
    script = """
import atexit, os, signal, sys
from valueshare.__main__ import run
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv[1:] = ["--version"]
run()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Environments of one's own.

TABLE = """
import gymnasium
import numpy as np


class Own(gymnasium.Env):
    def __init__(self, slip):
        self.observation_space = self.action_space = gymnasium.spaces.Discrete(2)
        self.initial_state_distrib = np.array([1.0, 0.0])
        self.P = {
            0: {0: [(slip, 0, 0.0, False), (0.5, 1, 1.0, True)], 1: [(1.0, 1, 0.0, True)]},
            1: {0: [(1.0, 1, 0.0, True)], 1: [(1.0, 1, 0.0, True)]},
        }


gymnasium.register("Sound-v0", lambda **_: Own(0.5))
gymnasium.register("Leaky-v0", lambda **_: Own(0.4))
"""


def test_a_table_of_ones_own_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    (tmp_path / "tables.py").write_text(TABLE)
    assert "there is no module 'tables'" in refused(  # of the current folder: no module is imported there
        "tabular", "--env", "tables:Sound-v0", *QUICK, cwd=tmp_path
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    code, _, complaint = cli("tabular", "--env", "tables:Leaky-v0", *QUICK)
    assert (code, complaint.count("\n")) == (2, 1)
    assert "state 0, action 0 sum to 0.9, not 1" in complaint
    assert not (tmp_path / "results").exists()
    code, _, complaint = cli("tabular", "--env", "tables:Sound-v0", *QUICK, "--shard", "1/1")  # draws nothing
    assert (code, complaint) == (0, "")
    del sys.modules["tables"]


@pytest.mark.parametrize(
    ("written", "steps"),
    [("100k", 100_000), ("1M", 1_000_000), ("1.5m", 1_500_000), ("2e3", 2_000), ("16.1k", 16_100), ("8.2m", 8_200_000)],
)
def test_a_whole_number_may_have_a_suffix(written: str, steps: int) -> None:
    words = ["train", "--env", "A", "--steps", written]
    _, bound, _ = make_app().parse_args(words, exit_on_error=False, print_error=False)
    assert bound.arguments["steps"] == steps


@pytest.mark.parametrize("written", ["1.5", "0.0001k", "infm", "nank", "1e400", "k"])
def test_a_whole_number_is_refused_otherwise(written: str, cli: Cli) -> None:
    code, _, said = cli("train", "--env", "A", "--steps", written)
    assert (code, said.count("\n")) == (2, 1), said
    assert "whole number" in said


def test_the_plan_of_a_shard_names_games_of_other_shards(cli: Cli) -> None:
    games = ("--env", "ALE/Pong-v5", "ALE/Breakout-v5", "--seeds", "1", "--replay-capacity", "1000")
    code, out, said = cli("train", *games, "--shard", "1/2", "--plan")
    assert (code, said) == (0, "")
    assert "note: ALE/Breakout-v5 is Breakout by the protocol" in out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "`eval_interval = 5` is not a multiple of `checkpoint_interval = 2`: write",
            "--eval-interval 5 is not a multiple of --checkpoint-interval 2: write",
        ),
        ("`replay_device = 'cuda'` needs", "--replay-device cuda needs"),
        ("set `eval_episode_limit`, or", "set --eval-episode-limit, or"),
        ("`clip_rewards = False`: these", "--no-clip-rewards: these"),
        ("write `overwrite = True`", "write --overwrite"),
        ("`k = 1, 1`: duplicate", "--k 1, 1: duplicate"),
        ("runs/step_size holds a run (`step_size` is 1", "runs/step_size holds a run (--step-size is 1"),
        ("in step_size, first_seed = -1", "in step_size, first_seed = -1"),  # perhaps a folder that is called so
        ("`valueshare train` made it", "`valueshare train` made it"),
    ],
)
def test_messages_name_options(text: str, shown: str) -> None:
    assert with_options(InvalidInput(text)) == shown


@pytest.mark.parametrize("wrong", ["--steps 0", "--algorithm ppo", "--seeds 0", "--step-size 0.1 -1", "--loss l3"])
def test_what_is_wrong_by_itself_is_refused_before_pytorch_is_imported(wrong: str) -> None:
    program = f"""import sys
from valueshare.cli import main
try:
    main(['train', '--env', 'CartPole-v1', *{wrong.split()}])
except SystemExit as ended:
    print(ended.code, 'torch' in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n", done.stderr
