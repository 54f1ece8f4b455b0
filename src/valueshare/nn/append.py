"""`append_mean_expansion`: the layer put into a network, which is refused where its place is unclear."""

from itertools import takewhile
from typing import cast

import torch
from torch import nn

from valueshare.errors import InvalidInput
from valueshare.expansion import Coefficient
from valueshare.nn.expansion import MeanExpansion
from valueshare.setting import as_count

# Modules whose outputs are probabilities or their logarithms, and not action-values.
PROBABILITIES = (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Sigmoid, nn.LogSigmoid)
# The base classes of Stable-Baselines3's algorithms, and of its policies and Q-networks.
STABLE_BASELINES3 = {"stable_baselines3.common.base_class.BaseAlgorithm", "stable_baselines3.common.policies.BaseModel"}


def append_mean_expansion(
    module: nn.Module, k: Coefficient, *, after: str | None = None, n: int | None = None
) -> nn.Module:
    """Put a mean-expansion layer after the last linear layer of a network, in place.

    `k` is a number, or "n" for the number of that layer's outputs. The linear layer becomes `Sequential(linear,
    MeanExpansion(k))`, under every name it has, with the same weights (not copies), so an optimiser that already holds
    them still works. Its entries in `state_dict()` gain a "0.": load older checkpoints first. A `forward` that reads
    `self.head.weight` of that layer must read `self.head[0].weight`. Returns the network. "Last" is the order in which
    the layers were registered: name another one with `after="path.to.layer"`. If a layer is used at two places under
    two names, only the named place changes.

    The linear layer must have one output per action; if the number of actions is given as `n`, this is checked. After
    n x quantiles outputs, as in QR-DQN, the layer would take the mean over quantiles too: put `MeanExpansion(k, n=n)`
    into `forward`, after the reshape to [..., quantiles, n].

    Refuses networks of Stable-Baselines3 (their target network would lack the layer), layers with one output, and, if
    the modules show it, outputs that are probabilities or have an activation. After the advantages of a dueling network
    the layer does nothing, because their mean is subtracted: if a network has a value stream, the layer of the
    action-values must be named. So it must if two output layers seem to stand side by side, as in twin heads. A network
    that is one linear layer cannot be changed in place: write `Sequential(network, MeanExpansion(k))`.
    """
    _refuse_stable_baselines3(module)
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"module is given as {type(module).__name__}: give a torch.nn.Module")
    if isinstance(module, torch.jit.ScriptModule):
        raise InvalidInput("this network is compiled by TorchScript: put the layer in first, then compile it")
    modules = dict(module.named_modules(remove_duplicate=False))
    linears = {path: m for path, m in modules.items() if isinstance(m, nn.Linear)}
    if any(isinstance(m, MeanExpansion) for m in modules.values()):
        raise InvalidInput("this network has a mean-expansion layer already: a second one would scale twice")
    if not linears:
        raise InvalidInput("no torch.nn.Linear in this network: put MeanExpansion(k) after its output layer")
    if after is None:
        after = _last_layer(modules, linears)
        following = _registered_after(modules, after)
    elif after in linears:
        following = _next_in_sequence(modules, after)
    else:
        raise InvalidInput(f"`after = {after!r}`: the linear layers here are {', '.join(linears)}")
    for other in following:
        if isinstance(other, PROBABILITIES):
            raise InvalidInput(
                f"{type(other).__name__} follows the linear layer {after!r}, and probabilities are "
                "not action-values: remove it, or name the output layer with `after`"
            )
    linear = linears[after]
    named, instead = f"the linear layer {after!r}", "name the layer of the action-values with `after`"
    if linear is module:  # which has no name
        named, instead = "this linear layer", "give the layer of the action-values"
    if linear.out_features == 1:
        raise InvalidInput(f"{named} has one output: a value stream has no actions that share; {instead}")
    if n is not None and as_count("n", n) != linear.out_features:
        quantiles, rest = divmod(linear.out_features, n)
        if quantiles and not rest:
            instead = f"put MeanExpansion(k, n={n}) after the reshape to [..., {quantiles}, {n}]"
        raise InvalidInput(f"{named} has {linear.out_features} outputs, and `n = {n}`: {instead}")
    weight = next(linear.parameters())  # `linear.weight` may be computed from others
    layer = MeanExpansion(k, n=linear.out_features, device=weight.device, dtype=weight.dtype)
    expanded = nn.Sequential(linear, layer).train(linear.training)
    if linear is module:
        raise InvalidInput(
            "a network that is one linear layer cannot be changed in place: write "
            f"torch.nn.Sequential(network, MeanExpansion(k, n={linear.out_features}))"
        )
    other_places = _other_places(modules, after)
    for path in other_places:
        if _is_one_slot(modules, path, after):
            raise InvalidInput(
                f"the linear layer {after!r} is {path!r} too, in a module that is used twice: put MeanExpansion(k) "
                "after the whole network"
            )
    for path in [path for path, m in linears.items() if m is linear and path not in other_places]:
        parent, _, name = path.rpartition(".")
        setattr(modules[parent], name, expanded)
    return module


def _last_layer(modules: dict[str, nn.Module], linears: dict[str, nn.Linear]) -> str:
    """The path of the last linear layer; refused where its outputs may not be the action-values."""
    last = next(reversed(linears))
    _refuse_dueling(linears, last)
    _refuse_hidden_layer(modules, linears, last)
    _refuse_parallel_layers(modules, linears, last)
    if others := _other_places(modules, last):
        raise InvalidInput(
            f"the linear layer {last!r} has another name, {others[0]!r}, and may be used at two places: name the "
            "one of the action-values with `after`"
        )
    for other in _registered_after(modules, last):
        if next(other.parameters(recurse=False), None) is not None:
            raise InvalidInput(
                f"{type(other).__name__} comes after the last linear layer {last!r}: name the layer of the "
                "action-values with `after`"
            )
    for other in _next_in_sequence(modules, last):
        if type(other).__module__ == nn.ReLU.__module__ and not isinstance(other, PROBABILITIES):
            raise InvalidInput(
                f"{type(other).__name__} follows the last linear layer {last!r}, and action-values have no "
                "activation: remove it, or name the output layer with `after`"
            )
    return last


def _registered_after(modules: dict[str, nn.Module], layer: str) -> list[nn.Module]:
    """The modules that were registered after a layer, without those in it."""
    paths = list(modules)
    return [modules[path] for path in paths[paths.index(layer) + 1 :] if not path.startswith(f"{layer}.")]


def _refuse_dueling(linears: dict[str, nn.Linear], last: str) -> None:
    """Refuse to guess in a network with a value stream beside its last layer: modules do not tell what is centred."""
    values = [path for path, linear in linears.items() if linear.out_features == 1 and path != last]
    if values and linears[last].out_features > 1:
        count = linears[last].out_features
        raise InvalidInput(
            f"this network has a value stream too ({values[0]!r}, one output): in a dueling network the layer follows "
            f"the sum of value and advantages, Sequential(network, MeanExpansion(k, n={count})), as it does nothing "
            f"after centred advantages; only if the outputs of {last!r} are the action-values, write `after = {last!r}`"
        )


def _refuse_hidden_layer(modules: dict[str, nn.Module], linears: dict[str, nn.Linear], last: str) -> None:
    """Refuse a last layer whose outputs another layer seems to read: modules come in the order of registration.

    That layer takes as many inputs as the last one has outputs, and no layer takes as many as it has outputs itself.
    Layers that come before the last one in a `Sequential` do not read it.
    """
    inputs = {linear.in_features for linear in linears.values()}
    for path, linear in linears.items():
        if _are_in_sequence(modules, path, last):
            continue
        if linear.in_features == linears[last].out_features and linear.out_features not in inputs:
            raise InvalidInput(
                f"{last!r} is the last linear layer in the order of registration, but {path!r} takes as many inputs as "
                f"it has outputs: if {path!r} follows it, write `after = {path!r}`; if not, `after = {last!r}`"
            )


def _refuse_parallel_layers(modules: dict[str, nn.Module], linears: dict[str, nn.Linear], last: str) -> None:
    """Refuse to guess between output layers side by side, as of twin heads or of an auxiliary task.

    Such a layer takes as many inputs as the last one, is the last one of its own branch of the network, and no module
    registered after it takes as many inputs as it has outputs, of which a `GLU` right after it halves the number.
    """
    head, paths = linears[last], list(linears)
    if head.out_features == 1:  # refused by the caller, as a value stream
        return
    for number, path in enumerate(paths):
        linear, branch = linears[path], _branch(path, last)
        if linear is head or linear.in_features != head.in_features or _are_in_sequence(modules, path, last):
            continue
        goes_on = any(later.startswith(f"{branch}.") for later in paths[number + 1 :])
        following = _registered_after(modules, path)
        outputs = linear.out_features // 2 if isinstance(following[0], nn.GLU) else linear.out_features
        if goes_on or any(outputs == _inputs(later) for later in following):
            continue
        raise InvalidInput(
            f"{path!r} and {last!r} seem to stand side by side (each takes {head.in_features} inputs), and either may "
            f"give the action-values: name the layer, `after = {path!r}` or `after = {last!r}`; if both do, put "
            "MeanExpansion(k) after each of them yourself"
        )


def _branch(path: str, other: str) -> str:
    """The path up to the first name that is not that of `other`."""
    return ".".join(path.split(".")[: len(_shared_names(path, other)) + 1])


def _shared_names(a: str, b: str) -> list[str]:
    """The names of the modules that two paths begin with."""
    pairs = zip(a.split("."), b.split("."), strict=False)
    return [name for name, _ in takewhile(lambda names: names[0] == names[1], pairs)]


def _inputs(module: nn.Module) -> object:
    """The number of inputs of a linear or recurrent layer, or None."""
    return getattr(module, "in_features", getattr(module, "input_size", None))


def _other_places(modules: dict[str, nn.Module], layer: str) -> list[str]:
    """Other names of a linear layer that may be other places in the network, and not just names of the same place.

    Two names in one `Sequential` are two places. Of a layer with as many outputs as inputs, any two names may be.
    """
    linear = cast(nn.Linear, modules[layer])
    follows_itself = linear.in_features == linear.out_features
    others = [path for path, m in modules.items() if m is linear and path != layer]
    return [
        path
        for path in others
        if _are_in_sequence(modules, path, layer) or (follows_itself and not _is_one_slot(modules, path, layer))
    ]


def _are_in_sequence(modules: dict[str, nn.Module], a: str, b: str) -> bool:
    """Whether a `Sequential` calls two modules, or what they are in, one after the other."""
    return a != b and isinstance(modules[".".join(_shared_names(a, b))], nn.Sequential)


def _is_one_slot(modules: dict[str, nn.Module], a: str, b: str) -> bool:
    """Whether two paths are the same attribute of the same module, which then has two names."""
    (above_a, _, name_a), (above_b, _, name_b) = a.rpartition("."), b.rpartition(".")
    return modules[above_a] is modules[above_b] and name_a == name_b


def _refuse_stable_baselines3(module: object) -> None:
    """Refuse an algorithm, policy or network of Stable-Baselines3, known by the names of its classes.

    Its algorithms make the target network before they can be changed, and then copy parameters only.
    """
    modules = [module, *module.modules()] if isinstance(module, nn.Module) else [module]
    for part in modules:
        names = {f"{base.__module__}.{base.__name__}" for base in type(part).__mro__}
        if names & STABLE_BASELINES3:
            contrib = any(name.startswith("sb3_contrib.") for name in names)
            policy = "sb3_contrib.QRDQNPolicy" if contrib else "sb3.DQNPolicy"
            raise InvalidInput(
                f"{type(part).__name__} belongs to Stable-Baselines3, whose target network would stay without the "
                f"layer: train with the policy valueshare.integrations.{policy} and policy_kwargs={{'k': ...}}"
            )


def _next_in_sequence(modules: dict[str, nn.Module], layer: str) -> list[nn.Module]:
    """The modules after a layer in its own `Sequential`, up to the next linear one."""
    above = layer.rpartition(".")[0]
    if not isinstance(modules[above], nn.Sequential):
        return []
    beside = [path for path in modules if path and path.rpartition(".")[0] == above]
    following = [modules[path] for path in beside[beside.index(layer) + 1 :]]
    return list(takewhile(lambda other: not isinstance(other, nn.Linear), following))
