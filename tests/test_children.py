"""Results of child processes: what their errors become in this one."""

import errno

import pytest

from valueshare.children import NOT_WRITTEN, REFUSED, ChildResult
from valueshare.errors import InvalidInput
from valueshare.files import DiskFull


def test_errors_of_a_child_are_those_of_its_parent() -> None:
    ChildResult(0, "").raise_if_fixable()
    with pytest.raises(InvalidInput, match=r"^too many$"):
        ChildResult(REFUSED, "too many").raise_if_fixable()
    with pytest.raises(DiskFull, match="no room"):
        ChildResult(NOT_WRITTEN, "no room", errno.ENOSPC).raise_if_fixable()
    with pytest.raises(PermissionError, match="not allowed"):
        ChildResult(NOT_WRITTEN, "not allowed", errno.EACCES).raise_if_fixable()
