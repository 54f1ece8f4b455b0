"""The drawn intervals: their axis, against positions that can be computed by hand."""

import re

from synthetic import THREE, data_of

from valueshare.report.findings import compare_all
from valueshare.report.page.tables import findings


def test_intervals_have_an_axis_with_units() -> None:
    """AUC 1, 2 and 3 against 11, 12 and 13: a difference of 10, its interval within [8, 12]."""
    (found,) = compare_all(data_of(THREE)).comparisons
    assert found.difference is not None
    (text,) = findings([found])
    low, high = found.difference.low, found.difference.high
    assert low is not None
    assert high is not None
    foot = text.split("<tfoot>")[1]
    assert "difference of the mean AUC, in points of the score" in foot
    marks = {float(name): float(at) for at, name in re.findall(r'<text x="([\d.]+)%" y="17">([\d.]+)</text>', foot)}
    assert 0.0 in marks
    assert len(marks) >= 3
    # The dot and the dotted line lie where the axis says.
    (dot,) = (float(at) for at in re.findall(r'<circle cx="([\d.]+)%"', text))
    (zero,) = (float(at) for at in re.findall(r'class="zero" x1="([\d.]+)%"', text))
    first, *_, last = sorted(marks)
    per_point = (marks[last] - marks[first]) / (last - first)
    assert abs(zero - marks[0.0]) < 0.02
    assert abs(dot - (marks[0.0] + per_point * found.difference.value)) < 0.05
