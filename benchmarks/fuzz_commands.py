"""Command lines for `fuzz.py`: options of the commands, with values nobody should write."""

import random
import typing
from typing import Any, NamedTuple

from forks import SMALL

NUMBERS = [
    *("-1", "0", "1", "2", "3", "0.5", "1.5", "-0", "-0.0", "1e-320", "1e30", "1e308", "1e400"),
    *("nan", "inf", "-inf", "NaN", "9" * 19, "9" * 30, "9" * 5_000, "2147483648", "4294967296"),
    *("0x10", "1_000", "١٢", "½", "1,5", "1 2", "+1", "--1", "1e", "0b1", "1j", "", " ", "\t1\n"),
]
TEXTS = [
    *("", " ", "-", "--", "---", "=", "--=", "None", "True", "null", "[]", "{}", "%s", "{0}", "\\"),
    *("ü✓", "\u202eabc", "\ufeff", "🤖" * 50, "\udcff", "a\nb", "a\tb", "\x1b[31m", "x" * 5_000),
    *("\x1b]0;x\x07", "x\nError: x", "\rx", "\x9b2J", "\u2066x\u2069", "a\u200bb", "a:\x1b[2J-v0", "os:\nx-v0"),
    *("../x", ".", "a/../b", "~", "*", "a\\b", "CON", ":", "::", "a:b", "a:b:c", "a,b", ",", "'"),
    *("/dev/null", "/dev/full", "/proc/self/x", "/sys/x", "n" * 300, "a/" * 1_500, "$(id)", "`id`"),
    *(
        "memory://x",
        "memory:",
        "s3://",
        "s3:/b",
        "gs://b/x",
        "local://",
        "file:",
        "file:///",
        "x::y",
    ),
    *("nosuch://a/b", "http://", "ftp://", "sftp://:@/", "local:///dev/null/x", "abfs://a@b/c"),
    *("cuda", "cuda:0", "cuda:99", "cpu", "cpu:1", "meta", "mps", "auto", "xpu:0", "cuda:-1"),
    *("1/2", "2/2", "0/2", "3/2", "1/0", "-1/2", "1/99999999999", "1/2/3", "a/b", "/", "½/1"),
    *(
        "CartPole-v1",
        "CartPole-v99",
        "cartpole",
        "Pong",
        "ALE/Pong-v5",
        "os:system",
        "antigravity:X-v0",
    ),
    *(
        "Pendulum-v1",
        "Blackjack-v1",
        "FrozenLake-v1",
        "gridworld",
        "Taxi-v3",
        "valueshare.cli:x-v0",
    ),
    *("ib-dqn", "rdq", "ib-iqn", "dueling-dqn", "q-learning", "IB-DQN", "dqn:4,ib-dqn", "dqn,dqn"),
    *("ib-dqn:nan,dqn", "learning-curves", "geometry", "paper", "smoke", "adam", "rmsprop", "run"),
]
# A command starts from one of these, with its share of the cases; {run} is a folder of a run.
BASES: list[tuple[float, list[str]]] = [
    (30, [*SMALL, "--plan"]),
    (6, [*SMALL, "--out", "new"]),
    (6, ["train", "--env", "CartPole-v1", "--plan"]),
    (2, ["train", "--env", "Pong", "--seeds", "1", "--plan"]),
    (8, ["resume", "{run}"]),
    (4, ["report", "{run}", "--figures", "learning-curves", "--resamples", "50"]),
    (4, ["report", "{run}", "--resamples", "-1"]),
    (5, ["play", "{run}", "--agent", "0", "--video", "new.gif", "--episode-limit", "2"]),
    (3, ["watch", "{run}", "--port", "70000"]),
    (8, ["tabular", "--seeds", "1", "--steps", "2", "--k", "0", "--step-size", "-1"]),
    (2, ["tabular", "--seeds", "1", "--steps", "20", "--k", "0", "1", "--step-size", "0.5"]),
    (4, ["paper-table"]),
    (3, ["reproduce", "gridworld", "--workers", "2"]),
    (3, ["reproduce", "lunarlander", "--scale", "smoke", "--seeds", "0"]),
    (8, ["reproduce", "atari57", "--plan"]),
    (3, ["reproduce", "atari-sensitivity", "--plan"]),
    (2, ["reproduce", "atari-rmsprop", "--plan"]),
    (2, ["reproduce", "atari-rdq-beta", "--plan"]),
    (3, ["bench", "population", "--agents", "0"]),
    (3, ["bench", "atari", "--agents", "0"]),
    (1, ["bench", "layer", "now"]),
    (1, ["--version"]),
    (1, ["--help"]),
]
# A compiler works for minutes; a cluster is another program's to start.
LEFT_OUT = ("compile", "launcher", "ray-address")


class Option(NamedTuple):
    """An option of a command, as its declaration has it."""

    name: str
    values: list[str]  # that fit its type, and some that do not
    is_flag: bool


def options(command: str) -> list[Option]:
    """The options of a command, as its parser has them."""
    from valueshare.cli import COMMANDS, make_app

    if command not in COMMANDS:
        return []
    app = make_app()
    for word in command.split():
        app = app[word]
    arguments = app.assemble_argument_collection()
    named = [argument for argument in arguments if argument.name.startswith("--") and not argument.children]
    return [_option(argument.name[2:], argument.hint) for argument in named if argument.name[2:] not in LEFT_OUT]


def _option(name: str, hint: Any) -> Option:
    kinds = _kinds(hint)
    literals = [str(value) for kind in kinds for value in typing.get_args(kind)]
    pool = NUMBERS if {int, float} & set(kinds) else TEXTS
    return Option(name, [*literals * 4, *pool], bool in kinds)


def _kinds(hint: Any) -> list[Any]:
    """The types in a hint: of tuples and unions their members, literals as they are."""
    inner = typing.get_args(hint)
    if not inner or typing.get_origin(hint) is typing.Literal:
        return [hint]
    return [kind for member in inner if member is not Ellipsis for kind in _kinds(member)]


def random_command(rng: random.Random, known: dict[str, list[Option]]) -> list[str]:
    """A command with one to four changes."""
    weights = [weight for weight, _ in BASES]
    words = list(rng.choices([base for _, base in BASES], weights)[0])
    name = " ".join(words[:2]) if words[0] in ("reproduce", "bench") else words[0]
    if name not in known:
        known[name] = options(name)
    for _ in range(rng.choices((0, 1, 2, 3, 4), (1, 10, 5, 3, 1))[0]):
        _change(rng, words, known[name], len(name.split()))
    plain = [word.replace("\0", "") for word in words]
    return [word.encode(errors="surrogateescape").decode(errors="surrogateescape") for word in plain]


def _change(rng: random.Random, words: list[str], own: list[Option], first: int) -> None:
    kind = rng.random()
    at = rng.randrange(first, len(words) + 1) if len(words) >= first else len(words)
    if kind < 0.65 and own:
        _set(rng, words, rng.choice(own))
    elif kind < 0.75 and first < len(words):
        at = rng.randrange(first, len(words))
        words[at] = rng.choice([*NUMBERS, *TEXTS])
    elif kind < 0.8 and first < len(words):
        del words[rng.randrange(first, len(words))]
    elif kind < 0.85 and first < len(words):
        at = rng.randrange(first, len(words))
        words[at:at] = words[at : at + rng.randint(1, 3)]  # again
    elif kind < 0.9 and len(words) > first + 1:
        i, j = rng.sample(range(first, len(words)), 2)
        words[i], words[j] = words[j], words[i]
    elif kind < 0.95 and len(words) > first:
        at = rng.randrange(first, len(words))
        word = words[at]
        spot = rng.randrange(len(word) + 1)
        words[at] = word[:spot] + rng.choice("-=xX \u00e9'") + word[spot + rng.randint(0, 1) :]
    else:
        words.insert(at, rng.choice([*TEXTS, "--help", "-h", "--no-plan", "--" + "x" * 300]))


def _set(rng: random.Random, words: list[str], option: Option) -> None:
    """Give an option other values, in its place or once more."""
    flag = f"--{option.name}"
    values = [rng.choice(option.values) for _ in range(rng.choices((0, 1, 2, 3), (1, 12, 2, 1))[0])]
    if option.is_flag and rng.random() < 0.7:
        values = []
    given = [f"{flag}={values[0]}", *values[1:]] if values and rng.random() < 0.2 else [flag, *values]
    if flag in words and rng.random() < 0.85:
        start = words.index(flag)
        end = start + 1
        while end < len(words) and not words[end].startswith("--"):
            end += 1
        words[start:end] = given
    else:
        words.extend(given)
