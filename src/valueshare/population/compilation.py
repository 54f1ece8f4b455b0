"""Compilation of the steps of a population with `torch.compile`."""

import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import Any

import torch

from valueshare.cores import available_cores
from valueshare.errors import InvalidInput, first_line
from valueshare.files import cache_folder

_TUNING = ("triton.autotune_pointwise", "max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning")
_first_calls: list[float] = []  # seconds of the first call of each compiled step, since the last `reset_compiler`


def compiled_if(compiled: bool, function: Callable[[], None], *, tuned: bool = True) -> Callable[[], None]:
    """A step compiled as one graph, or as it is.

    Tuning tries several forms of a kernel, on copies of the tensors that it writes to.
    """
    if not compiled:
        return function
    _allow_spaces()
    options: dict[str, Any] = {} if tuned else dict.fromkeys(_TUNING, False)
    step: Callable[[], None] = torch.compile(function, fullgraph=True, dynamic=False, options=options)
    is_first = True

    def timed_step() -> None:
        nonlocal is_first
        start = perf_counter() if is_first else 0.0
        step()
        if is_first:
            _first_calls.append(perf_counter() - start)
            is_first = False

    return timed_step


def reset_compiler() -> None:
    """Drop what PyTorch has compiled, and start to measure the compile time of the next population."""
    torch.compiler.reset()
    _first_calls.clear()


def compile_seconds() -> float:
    """The seconds that compiling took since the last `reset_compiler`: of first calls, which run a step as well."""
    return sum(_first_calls)


def compiler_name(device: torch.device) -> str:
    """The hardware and the version that the compile time depends on."""
    on_gpu = device.type == "cuda" and torch.cuda.is_available()  # the driver of a cluster may have no GPU
    name = torch.cuda.get_device_name(device) if on_gpu else f"{device.type} {platform.machine()}"
    return f"{name}, {available_cores()} cores, PyTorch {torch.__version__}"


def check_compiler(device: torch.device, instead: str = "leave compile out", *, try_it: bool = True) -> None:
    """Refuse where nothing can be compiled, and say what to do `instead`."""
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
