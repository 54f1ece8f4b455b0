"""Numbers as text: counts with their nouns, and words of a command."""


def how_many(count: int, what: str) -> str:
    """1 agent, 2,040 agents."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def exact(number: float) -> str:
    """A number that reads back as the very same: 4.0 is 4, and no digit is lost."""
    return repr(float(number)).removesuffix(".0")
