"""Commands of tests with other options: the command line refuses an option that is given twice."""

from itertools import pairwise


def replaced(given: list[str], options: list[str]) -> list[str]:
    """A command with more options at its end: each replaces one of the same name before it, as --X or --no-X."""
    starts = [i for i, word in enumerate(options) if word.startswith("--")]
    words = [*given, *options[: starts[0] if starts else None]]
    for first, end in pairwise([*starts, len(options)]):
        name, keeps, kept = options[first].replace("--no-", "--"), True, []
        for word in words:
            if word.startswith("--"):
                keeps = word.replace("--no-", "--") != name
            kept += [word] if keeps else []
        words = [*kept, *options[first:end]]
    return words
