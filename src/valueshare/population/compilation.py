"""Compilation of the steps of a population with `torch.compile`."""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakSet

import torch

from valueshare.errors import InvalidInput, first_line
from valueshare.files import cache_folder

_TUNING = ("triton.autotune_pointwise", "max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning")

# Inductor inlines a value of up to 50 operations on a CPU wherever it is used. Random numbers are chains of
# x ^ (x >> n), which double at every link: kernels of a few operations were generated from 4,683, which took two
# thirds of the time of compilation. With this limit the kernels are as fast.
_MAX_INLINED_OPERATIONS = 8

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_TRACED_WHOLE: WeakSet["TracedWhole[..., Any]"] = WeakSet()


class TracedWhole(Generic[Arguments, Result]):
    """A function that PyTorch's compiler traces by running it, without interpreting its code line by line.

    That takes less time, and `torch.autograd.grad` works within it. Tensors come as arguments, alone or in plain
    tuples and dictionaries, and so do the results.
    """

    def __init__(self, function: Callable[Arguments, Result]) -> None:
        self._function = function
        _TRACED_WHOLE.add(self)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._function(*args, **kwargs)

    def prepare(self) -> None:
        """Tell the compiler; that imports it, so it is done before something is compiled, and not earlier."""
        if not hasattr(self._function, "__wrapped__"):
            self._function = torch._dynamo.nonstrict_trace(self._function)


def compiled_if(compiled: bool, function: Callable[[], None], *, tuned: bool = True) -> Callable[[], None]:
    """A step, compiled as one graph if `compiled`.

    A step works in place on tensors that never move, so nothing is checked when it is called again: PyTorch's guards
    on every tensor took a tenth of the time of a step on a CPU. Tuning tries several forms of a kernel, on copies of
    the tensors that it writes to.
    """
    if not compiled:
        return function
    from torch._inductor import config

    _allow_spaces()
    for traced in _TRACED_WHOLE:
        traced.prepare()
    options: dict[str, Any] = {} if tuned else dict.fromkeys(_TUNING, False)
    options["guard_filter_fn"] = _no_guards
    if hasattr(config, "realize_cpu_opcount_threshold"):  # not in PyTorch 2.11
        options["realize_cpu_opcount_threshold"] = _MAX_INLINED_OPERATIONS
    own = _with_own_code(function)
    step: Callable[[], None] = torch.compile(own, fullgraph=True, dynamic=False, options=options)
    return step


def _no_guards(guards: Sequence[object]) -> list[bool]:
    return [False] * len(guards)


def _with_own_code(function: Callable[[], None]) -> Callable[[], None]:
    """A function with a new code object: PyTorch keeps what it compiled with the code, which closures share."""

    def step() -> None:
        function()

    return FunctionType(step.__code__.replace(), globals(), closure=step.__closure__)


def check_compiler(device: torch.device, instead: str = "leave compile out", *, try_it: bool = True) -> None:
    """Refuse to compile where it is impossible, and say what to do `instead`."""
    if (problem := compiler_problem(device, try_it=try_it)) is not None:
        raise InvalidInput(f"nothing can be compiled here ({problem}): {instead}")


def is_compiler_error(error: BaseException) -> bool:
    """Whether PyTorch's compiler has failed."""
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)


def compiler_problem(device: torch.device, *, try_it: bool = True) -> str | None:
    """The reason why nothing can be compiled here, if so: compiles one sum, which takes seconds.

    Without `try_it`, only the C++ compiler is looked for.
    """
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")  # as PyTorch finds it
    if device.type == "cpu" and sys.platform != "win32" and shutil.which(name) is None:
        return f"there is no C++ compiler {name}"
    if not try_it:
        return None
    from torch._inductor import config

    total = torch.zeros(8, device=device)

    def add() -> None:
        total.add_(1)

    try:
        with config.patch(compile_threads=1):
            compiled_if(True, add)()
    except Exception as error:
        if not is_compiler_error(error):
            raise
        spaces = " " in torch.__file__ or " " in tempfile.gettempdir()
        return first_line(error) + ("; a path with a space may be the reason" if spaces else "")
    return None


@cache
def _allow_spaces() -> None:
    """Let PyTorch compile for a CPU where it, Python or its cache is in a path with a space.

    PyTorch up to 2.13 splits its compiler's command at spaces, without quotes around folders of libraries and around
    its own files, which are in the temporary folder.
    """
    from torch._inductor import config, cpp_builder
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    places = (torch.__file__, sys.prefix, sys.base_prefix, cache_dir(), tempfile.gettempdir())
    if not any(" " in place for place in places):
        return
    libraries = cpp_builder.BuildOptionsBase.get_libraries_dirs
    quoted = lambda self: [shlex.quote(name) for name in libraries(self)]  # noqa: E731 (a method)
    cpp_builder.BuildOptionsBase.get_libraries_dirs = quoted  # type: ignore[method-assign]
    if " " in cache_dir() or " " in tempfile.gettempdir():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("torchinductor"))
        config.cpp_cache_precompile_headers = False  # they would be in the temporary folder
