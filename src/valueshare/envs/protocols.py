"""Atari protocols: everything between the emulator and an agent, as one named value.

Scores under different protocols are not comparable, so a protocol is printed (`described`) and identified by its
`digest`.
"""

import dataclasses
import json
from dataclasses import dataclass
from hashlib import sha256

from valueshare.errors import InvalidInput
from valueshare.text import suggestion


@dataclass(frozen=True)
class AtariProtocol:
    """Rules by which an Atari game is played, observed and scored; the defaults are Machado et al.'s (2018)."""

    name: str

    # The emulator
    sticky: float = 0.25  # probability that a frame repeats the action of the frame before
    full_actions: bool = True  # all 18, in every game; False: those that the game reacts to
    frame_skip: int = 4  # frames per step, all with the step's action
    max_noops: int = 0  # a game starts with 0, ..., max_noops frames of no-op, uniformly
    fire_at_start: bool = False  # no FIRE is pressed for the agent
    mode: int = 0  # the game's own variants: its defaults
    difficulty: int = 0

    # Episodes
    terminal_on_life_loss: bool = False  # a lost life ends a training episode; evaluation plays on
    frame_limit: int = 108_000  # frames of a game until it is truncated: half an hour of play

    # Observations
    height: int = 84
    width: int = 84
    resize: str = "area"  # how 210 x 160 becomes height x width
    grayscale: bool = True
    frame_max_pool: bool = True  # a step's picture: the brighter of its last two frames
    stack: int = 4  # pictures that the network sees; the first one is repeated at a start

    # Rewards and episodes of training; scores are always sums of raw rewards over whole games
    clip_rewards: bool = True  # training rewards are -1, 0 or 1

    def __post_init__(self) -> None:
        if not 0 <= self.sticky < 1:
            raise InvalidInput(f"sticky = {self.sticky}: write a probability from 0 to below 1")
        for name in ("frame_skip", "height", "width", "stack", "frame_limit"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} = {getattr(self, name)}: write at least 1")
        if self.max_noops < 0:
            raise InvalidInput(f"max_noops = {self.max_noops}: write 0 for none, or more")
        if self.frame_limit % self.frame_skip:
            raise InvalidInput(
                f"frame_limit = {self.frame_limit} is not a multiple of frame_skip = "
                f"{self.frame_skip}: make it one, so that a limit ends a whole step"
            )
        for name, only in _ONLY.items():
            if getattr(self, name) != only:
                raise InvalidInput(f"{name} = {getattr(self, name)!r}: there is only {only!r} here")

    @property
    def step_limit(self) -> int:
        """Steps of an agent until a game is truncated: 108,000 / 4 = 27,000."""
        return self.frame_limit // self.frame_skip

    @property
    def digest(self) -> str:
        """A hash of the settings, without the name: 12 hexadecimal digits."""
        settings = {k: v for k, v in dataclasses.asdict(self).items() if k != "name"}
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
        return sha256(text.encode()).hexdigest()[:12]

    def for_evaluation(self) -> "AtariProtocol":
        """This protocol with whole games as episodes, which is what scores are made of."""
        return dataclasses.replace(self, terminal_on_life_loss=False)

    def described(self) -> list[str]:
        """The protocol in words, one line per subject."""
        picture = "the brighter of the last two frames" if self.frame_max_pool else "the last one"
        size = f"{self.height}x{self.width}"
        starts = f"0 to {self.max_noops} no-op frames" if self.max_noops else "no no-ops"
        endings = "game over" + (", in training also at a lost life" * self.terminal_on_life_loss)
        actions = "all 18" if self.full_actions else "those the game reacts to"
        sticky = f"sticky with probability {self.sticky:g} per frame" if self.sticky else "not sticky"
        rewards = "their signs" if self.clip_rewards else "as they are"
        lines = {
            f"Atari protocol {self.name}": self.digest,
            "actions": f"{actions}, {sticky}",
            "a step": f"{self.frame_skip} frames with one action",
            "observation": f"{picture}, grayscale, {size} ({self.resize}); the last {self.stack} stacked",
            "starts": f"{starts}, no FIRE pressed, mode {self.mode}, difficulty {self.difficulty}",
            "episodes end at": endings,
            "truncated after": f"{self.frame_limit:,} frames = {self.step_limit:,} steps",
            "rewards": f"{rewards} in training, raw in scores",
        }
        return [f"{subject}: {words}" for subject, words in lines.items()]


# Settings with one value so far: written down, so that they are printed and hashed too.
_ONLY: dict[str, object] = {"resize": "area", "grayscale": True, "fire_at_start": False, "mode": 0, "difficulty": 0}

_PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        AtariProtocol("machado-2018"),
        AtariProtocol("machado-2018-minimal", full_actions=False),
        AtariProtocol("nature-2015", sticky=0.0, full_actions=False, max_noops=30, terminal_on_life_loss=True),
    )
}
DEFAULT_PROTOCOL = "machado-2018"


def atari_protocols() -> list[str]:
    """The names that `atari_protocol` knows."""
    return list(_PROTOCOLS)


def atari_protocol(name: str | AtariProtocol | None = None) -> AtariProtocol:
    """The protocol of that name; None is machado-2018, and a protocol is itself."""
    if isinstance(name, AtariProtocol):
        return name
    chosen = DEFAULT_PROTOCOL if name is None else name
    if chosen not in _PROTOCOLS:
        hint = f"{suggestion(chosen.lower(), atari_protocols(), 1)} There are {', '.join(_PROTOCOLS)}".strip()
        raise InvalidInput(f"there is no Atari protocol {chosen!r}: {hint}")
    return _PROTOCOLS[chosen]
