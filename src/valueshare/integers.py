"""Division of whole numbers that rounds up."""


def ceil_div(count: int, by: int) -> int:
    return -(-count // by)


def round_up(count: int, multiple: int) -> int:
    """The smallest multiple that is not smaller than `count`."""
    return ceil_div(count, multiple) * multiple
