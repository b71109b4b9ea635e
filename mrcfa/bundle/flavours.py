"""The two flavours of TensorRT: the classic one, and TensorRT-RTX, which builds without a GPU.

Their Python modules are nearly the same, so the builder and the backend take the module as a value.
This module has what both need: the import, the logger of the process, and the plugin.
"""

import atexit
import ctypes
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mrcfa.errors import Mismatch, MrcfaError, NotFound, Unsupported, WrongState
from mrcfa.machine.extras import load
from mrcfa.machine.files import CannotWrite, scratch_folder

PLUGIN = ("SelectTokens", "1", "mrcfa")
"""Name, version and namespace of the plugin that selects more tokens than TensorRT's TopK can."""
PLUGIN_NAME = "mrcfa::SelectTokens 1"
TOPK_LIMIT = 3840
"""The largest K that TensorRT's TopK takes; keeping more tokens needs the plugin."""
PLUGIN_VARIABLE = "MRCFA_PLUGIN_LIBRARY"
"""The environment variable that names the plugin's library if no option does."""

ERROR = 1
"""Severities of TensorRT's log: 0 internal error, 1 error, 2 warning, 3 information, 4 verbose."""
WARNING = 2
_CUDA_MAJORS = range(11, 20)


class Flavour(str, Enum):
    TENSORRT = "tensorrt"
    RTX = "rtx"

    @property
    def product(self) -> str:
        return "TensorRT" if self is Flavour.TENSORRT else "TensorRT-RTX"

    @property
    def module(self) -> str:
        return "tensorrt" if self is Flavour.TENSORRT else "tensorrt_rtx"

    @property
    def wheel_cuda(self) -> int | None:
        """The CUDA major version of its pip wheel; None if TensorRT was not installed by pip."""
        for major in _CUDA_MAJORS:
            with suppress(metadata.PackageNotFoundError):
                metadata.version(f"{self.module}_cu{major}")
                return major
        return None

    def load(self) -> ModuleType:
        """Import the Python module. A missing one is an error that names the install command."""
        if self is Flavour.RTX:
            _mend_rtx_wheel()
        try:
            return load(self.module)
        except MrcfaError:
            raise
        except (ImportError, OSError) as error:
            raise Unsupported(f"{self.product} is installed but does not load: {error}") from None


class Message(NamedTuple):
    severity: int
    text: str


@contextmanager
def captured_log(trt: ModuleType, echo: bool = False) -> Iterator[list[Message]]:
    """The messages that TensorRT logs inside the block, also printed on stderr with `echo`.

    Threads share the logger, so a block also gets the messages of other threads.
    """
    messages: list[Message] = []

    def listen(message: Message) -> None:
        messages.append(message)
        if echo:
            print(message.text, file=sys.stderr)

    listeners = logger(trt).listeners
    listeners.append(listen)
    try:
        yield messages
    finally:
        listeners.remove(listen)


@cache
def logger(trt: ModuleType) -> Any:
    """The only logger of the process: TensorRT keeps the first one and warns about others."""

    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]  # a base of run time
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.listeners: list[Any] = []

        def log(self, severity: Any, text: str) -> None:
            for listener in tuple(self.listeners):
                listener(Message(int(severity), text))

    return Logger()


def first_error(messages: Sequence[Message]) -> str:
    """The first error in a log, which causes the others, without the lines of NVIDIA's sources."""
    errors = [message.text for message in messages if message.severity <= ERROR]
    if not errors:
        return "it gives no reason"
    text = _SOURCE.sub("", errors[0]).strip()
    if match := _CODED.match(text):
        text = f"{match['kind']}: {match['what'].strip()}"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


_CODED = re.compile(
    r"(\[\S+\]|\S+:) Error Code \d+: (?P<kind>[\w ]+) \((?P<what>.*?)\)?$", re.DOTALL
)
_SOURCE = re.compile(r"\[[\w.]+:\d+: \w+\] | ?In \S+ at \S+:\d+")
_LONGEST = 400


def load_plugin(trt: ModuleType, library: Path | str | None = None) -> None:
    """Register the plugin from `library` or MRCFA_PLUGIN_LIBRARY, unless it is registered."""
    registry = trt.get_plugin_registry()
    if registry.get_creator(*PLUGIN) is not None:
        return
    library = library or os.environ.get(PLUGIN_VARIABLE)
    if not library:
        raise NotFound(
            f"the plugin {PLUGIN_NAME} is not loaded: compile engines/plugin with CMake and name "
            f"libmrcfa_plugin.so with --plugin-library, plugin_library= or {PLUGIN_VARIABLE}"
        )
    path = Path(library)
    if not path.is_file():
        raise NotFound(f"the plugin library {path} does not exist")
    with captured_log(trt) as log:
        registry.load_library(str(path.resolve()))
    if registry.get_creator(*PLUGIN) is None:
        raise Mismatch(f"{path} does not provide {PLUGIN_NAME}: {first_error(log)}")


_mended: list[Path] = []
"""The folder with links to the wheel's libraries, once `_mend_rtx_wheel` has made it."""


def check_parser_takes_plugins(trt: ModuleType) -> None:
    """Refuse a parser that would abort the process; `_mend_rtx_wheel` says why it would."""
    if trt.__name__ == "tensorrt_rtx" and find_spec("tensorrt_rtx_libs") and not _mended:
        raise WrongState(
            "tensorrt_rtx was imported before mrcfa could mend it, and its parser takes no plugin "
            "then; build in a process of its own: mrcfa build"
        )


def _mend_rtx_wheel() -> None:
    """Let the wheel's ONNX parser find libtensorrt_rtx.so; else it aborts if there is a plugin.

    With a plugin registered, the parser opens that name at run time, but the wheel contains only
    libtensorrt_rtx.so.1. The parser searches the folder that it was loaded from ($ORIGIN), so it is
    loaded first, through a folder of links that has both names. The import then finds it loaded,
    because it is the same file. Nothing is written to site-packages, and no process has to be
    restarted, as it would be for LD_LIBRARY_PATH.
    """
    wheel = find_spec("tensorrt_rtx_libs")
    if wheel is None or _mended or "tensorrt_rtx" in sys.modules:
        return
    with suppress(OSError, CannotWrite), ExitStack() as stack:  # without links plugins alone fail
        links = stack.enter_context(scratch_folder())
        for location in wheel.submodule_search_locations or ():
            for library in Path(location).glob("lib*.so.*"):
                for name in (library.name, library.name.partition(".so")[0] + ".so"):
                    (links / name).symlink_to(library)
        for parser in links.glob("*onnxparser*.so"):
            ctypes.CDLL(str(parser))
        _mended.append(links)
        atexit.register(stack.pop_all().close)
