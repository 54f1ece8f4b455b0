"""The notes of a report: one for each kind, with the names of all algorithms that it is about; short names of runs."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from valueshare.analysis.tidy import ONE_SEED, group_label
from valueshare.report.figures.variants import Variant

MAX_NAMES = 12  # in one note
AFTER_NAME = (": ", " has ", " lacks ")  # how a note may continue after the name of an algorithm


def merged_notes(notes: Iterable[str], variants: Sequence[Variant], *, one_seed: bool = False) -> list[str]:
    """Notes that say the same of several algorithms as one, where the first of them is.

    Where the verdict says that comparisons have `one_seed`, no note repeats it.

    `ib-dqn k=1: 2 rows ...` and `ib-dqn k=4: 2 rows ...` become `IB-DQN(1); IB-DQN(4): 2 rows ...`.
    """
    labels = {group_label(variant.selection()): variant.style.label for variant in variants}
    kinds: dict[str, dict[str, str]] = {}  # notes by label, by the text after the name
    for note in notes:
        if one_seed and note.endswith(ONE_SEED):
            continue
        name = next((name for name in labels if note.startswith(tuple(f"{name}{after}" for after in AFTER_NAME))), None)
        text = note if name is None else note[len(name) :]
        kinds.setdefault(text, {})["" if name is None else labels[name]] = note
    return [
        next(iter(by_label.values())) if len(by_label) == 1 else _of_all(list(by_label), text)
        for text, by_label in kinds.items()
    ]


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest last components that tell folders apart: pages go to other people."""
    longest = max((len(Path(path).parts) for path in paths), default=1)
    for count in range(1, longest + 1):
        names = {path: "/".join(Path(path).parts[-count:]) for path in paths}
        if len(set(names.values())) == len(names):
            return names
    return {path: path for path in paths}


def shortened(notes: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """Notes with the short names of folders in them."""
    for path in sorted(names, key=len, reverse=True):
        notes = [note.replace(path, names[path]) for note in notes]
    return list(notes)


def _of_all(names: Sequence[str], text: str) -> str:
    """Several names, with semicolons: a text after a verb becomes one on each of them."""
    more = len(names) - MAX_NAMES
    listed = "; ".join(names[:MAX_NAMES]) + (f"; and {more:,} more" if more > 0 else "")
    if text == ONE_SEED:
        return f"one seed each of {' and '.join(names) if len(names) == 2 else listed}: no interval"
    return f"{listed}{text}" if text.startswith(":") else f"{listed}: each{text}"
