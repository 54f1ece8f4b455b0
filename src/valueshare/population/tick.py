"""The device's side of one tick: act, learn, store, as steps over tensors that never move.

A tick of the whole population is

    act, and actions to the host -> store the step before -> learn -> environments begin and end

so that storing and learning overlap the environments (on CUDA the host only launches them, and
waits for nothing but the actions). The update of tick t therefore samples transitions up to t-1:
the one that is under way is not there yet.

Agents may be in several groups, each with environments and steps of its own for acting and storing:
while the environments of one run, another acts. Learning is always joint.
"""

from collections.abc import Sequence

from valueshare.envs.base import Environments
from valueshare.population.graph import GraphedStep, capture_all
from valueshare.population.groups import Group, make_group
from valueshare.population.state import Population, State, Weights, flat, load_
from valueshare.population.updates import Learner, make_learner


def make_steps(
    population: Population,
    state: State,
    environments: Sequence[Environments],
    *,
    compiled: bool,
) -> tuple[tuple[Group, ...], Learner]:
    """The steps of a population that has not begun, with a group for each of `environments`.

    On CUDA they are captured here, which runs them. The small tensors are put back; what remains of
    it in the rings of replay lies where the cursors have not been, and is overwritten before it can
    be sampled.
    """
    online, lags = state.online, population.settings.acting_lag
    acting = {n: v.clone() for n, v in online.parameters.items()} if lags else online.parameters
    learner = make_learner(population, state, acting, compiled=compiled)
    ends = [0]
    for each in environments:
        ends.append(ends[-1] + each.count)
    groups = []
    for begin, end, each in zip(ends, ends[1:], environments, strict=False):
        own = state._replace(online=Weights(acting, online.buffers))
        groups.append(make_group(population, own, slice(begin, end), each, compiled=compiled))
    before = {name: tensor.clone() for name, tensor in flat(state).items()}
    steps = [s for group in groups for s in (group.act, group.store) if isinstance(s, GraphedStep)]
    steps += [learner.renew_target, *([] if learner.stage is None else [learner.stage])]
    if lags:  # an update then runs beside the others, and must not share their memory
        capture_all([learner.learn], population.device)
        capture_all(steps, population.device, urgent=True)
    else:
        capture_all([learner.learn, *steps], population.device)
    load_(state, before)
    return tuple(groups), learner
