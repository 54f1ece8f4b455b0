"""One population before it is built: its rows of the table of agents and their settings."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from valueshare.envs import environment_spec
from valueshare.envs.base import EnvironmentSpec
from valueshare.population.settings import TrainingSettings
from valueshare.schema import Backend


@dataclass(frozen=True)
class PopulationSpec:
    """The agents and settings of one population."""

    name: str  # the name of its files, such as population-0
    agents: pl.DataFrame
    settings: TrainingSettings
    backend: Backend
    extended_from: tuple[int, ...] = ()  # the values of `steps` before each extension of the run

    @property
    def env(self) -> str:
        """Its environment, or the first of several that differ in name alone."""
        return str(self.agents["env"][0])

    @cached_property
    def env_spec(self) -> EnvironmentSpec:
        return environment_spec(self.env, self.backend, self.settings.atari_protocol)

    @property
    def algorithm(self) -> str:
        """Its algorithm, or the first of several that share one network and loss."""
        return str(self.agents["algorithm"][0])

    @property
    def label(self) -> str:
        """Its environments, as messages name them."""
        others = self.agents["env"].n_unique() - 1
        return f"{self.env} and {others} more" if others else self.env

    @property
    def agent_steps(self) -> int:
        """Steps of all its agents together."""
        return self.agents.height * self.settings.steps

    @property
    def last_phase(self) -> int:
        return self.settings.phases - 1

    def drop_later(self, records: pl.DataFrame, step: int) -> pl.DataFrame:
        """Records of a run without those of its agents after a step, from which it is trained on."""
        is_own = pl.col("agent").is_in(self.agents["agent"].to_list())
        return records.filter(~is_own | (pl.col("step") <= step))

    def add_phase(self, records: pl.DataFrame, step: int, new: pl.DataFrame) -> pl.DataFrame:
        """Records of a run with those of a phase that ends at a step, in place of earlier ones if it ran again."""
        return pl.concat([self.drop_later(records, step).join(new, on=["agent", "step"], how="anti"), new])
