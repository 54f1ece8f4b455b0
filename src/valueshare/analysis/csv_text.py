"""CSV without spreadsheet formulas, and its inverse.

A text cell that begins with = + - @ or a control character is a formula to a spreadsheet, and may run a program there.
Some spreadsheets first remove white space and characters without a width, and take full-width signs like ＝ for the
plain ones. Names of environments and algorithms can come from anybody's run folder, so such cells are written with an
apostrophe in front, which makes them text in a spreadsheet. Numbers stay unchanged.
"""

import re

import polars as pl

# With apostrophes in front too: so that taking off one is always the way back.
_REMOVED = (
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]*"
)
_SIGN = r"[=+\-@\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20]"
_FORMULA = rf"^'*([\t\r\n]|{_REMOVED}{_SIGN})"
_GUARDED = rf"^''*([\t\r\n]|{_REMOVED}{_SIGN})"


def csv_text(table: pl.DataFrame) -> str:
    """A table as CSV."""
    text = pl.col(pl.String)
    guarded = table.with_columns(
        pl.when(text.str.contains(_FORMULA)).then(pl.lit("'") + text).otherwise(text).name.keep()
    )
    names = {name: f"'{name}" for name in table.columns if re.match(_FORMULA, name)}
    return guarded.rename(names).write_csv()


def without_guards(table: pl.DataFrame) -> pl.DataFrame:
    """A table that was read from CSV, without the apostrophes that `csv_text` puts in front."""
    text = pl.col(pl.String)
    plain = table.with_columns(pl.when(text.str.contains(_GUARDED)).then(text.str.slice(1)).otherwise(text).name.keep())
    names = {name: name[1:] for name in table.columns if re.match(_GUARDED, name)}
    return plain.rename(names)
