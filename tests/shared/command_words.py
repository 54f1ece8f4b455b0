"""Words of a command with other values of some options: an option that is given twice is refused."""

from collections.abc import Iterable, Iterator


def replace_options(words: Iterable[object], *options: object) -> list[object]:
    """The words without the options that are given here, then those: --steps 60 --k 0 4 with --k 2."""
    named = {option for option in options if str(option).startswith("--")}
    return [*_without(words, named), *options]


def _without(words: Iterable[object], named: set[object]) -> Iterator[object]:
    skipping = False
    for word in words:
        if str(word).startswith("--"):
            skipping = word in named
        if not skipping:
            yield word
