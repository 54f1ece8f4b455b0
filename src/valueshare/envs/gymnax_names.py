"""Names of Gymnax's environments, known without importing JAX."""

MINATAR_GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
MINATAR_ACTIONS = 6  # of every game: no-op, left, up, right, down, fire


def is_minatar(env_id: str) -> bool:
    """Whether this is the name of a MinAtar game, like Breakout-MinAtar."""
    return env_id.endswith("-MinAtar")


def has_gymnax_name(env_id: str) -> bool:
    """Whether only Gymnax uses names like this one; its CartPole-v1 has the name that Gymnasium uses too."""
    return env_id.endswith(("-MinAtar", "-bsuite", "-misc"))
