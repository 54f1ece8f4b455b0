"""Fingerprints: settings that must not change between a run and its resumption."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from valueshare.envs import atari_protocol
from valueshare.errors import InvalidInput
from valueshare.integers import ceil_div
from valueshare.population.agents import table_digest
from valueshare.population.networks import RESTORE_CODE
from valueshare.population.settings import comparable, differences
from valueshare.population.state import Population, State
from valueshare.schema import Manifest

ENVIRONMENT_KEYS = ("env", "observation_shape", "actions")  # checkpoints of earlier versions lack them
PROTOCOL = "atari_protocol_digest"  # the name of the protocol is a setting, and is there too
SEEDS = "environment_seeds"  # of Gymnasium: earlier versions gave it 64 bits, and stored nothing


def fingerprint(population: Population, state: State) -> dict[str, Any]:
    """Settings, agents, protocol and network of a population, as JSON values."""
    shapes = {name: list(p.shape) for name, p in state.online.parameters.items()}
    values = {
        **comparable(population.settings.to_json()),
        "agents": table_digest(population.agents),
        "environments": population.env.backend,
        "env": population.env.name,
        "observation_shape": population.env.network_shape,
        "actions": population.env.actions,
        "network": shapes,
    }
    if population.settings.atari_protocol is not None:
        values[PROTOCOL] = atari_protocol(population.settings.atari_protocol).digest
    if population.env.backend == "gymnasium":
        values[SEEDS] = "31 bits"
    json_values: dict[str, Any] = json.loads(json.dumps(values))  # tuples become lists
    return json_values


def is_earlier_end(manifest: Manifest, wanted: Mapping[str, Any], extended_from: Sequence[int]) -> bool:
    """Whether a manifest is of the last phase of a run that was extended since: it has no replay to resume from."""
    steps = manifest.fingerprint.get("steps", 0)
    return steps in extended_from and manifest.phase + 1 == ceil_div(steps, wanted["checkpoint_interval"])


def check_fingerprint(stored: Mapping[str, Any], wanted: Mapping[str, Any], extended_from: Sequence[int] = ()) -> None:
    """Refuse to resume with other settings than those that were stored, or with an environment that was changed.

    Checkpoints from before a run was extended have one of the earlier numbers of steps.
    """
    stored = {**{name: wanted[name] for name in ENVIRONMENT_KEYS}, **stored}
    if stored.get("steps") in extended_from:
        stored = {**stored, **{name: wanted[name] for name in ("steps", "step_size_steps")}}
    if changed := differences(comparable(stored), wanted):
        if SEEDS in changed:
            raise InvalidInput(
                "an earlier version began this run, with other seeds of its environments: it can be evaluated and "
                "reported, but neither resumed nor extended; train it again in another folder"
            )
        texts = {"observation_shape": "returns observations of shape {}", "actions": "has {} actions"}
        for name, text in texts.items():
            if name in changed:
                before, now = changed[name]
                raise InvalidInput(
                    f"{wanted['env']} {text.format(now)}, but this run was trained with {before}: restore the "
                    "environment's code, or train in another folder"
                )
        if changed.keys() == {"network"}:  # or an environment, of a checkpoint from an earlier version
            raise InvalidInput(f"the network's weights have other shapes than in training: {RESTORE_CODE}")
        names = sorted(changed)
        before, now = changed[names[0]]
        raise InvalidInput(
            f"this run was started with other settings ({', '.join(names)}): {names[0]} was {before} and is now {now}; "
            "restore the original config.json"
        )
