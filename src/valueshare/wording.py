"""Counts with their nouns."""


def how_many(count: int, what: str) -> str:
    """1 agent, 2,040 agents."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
