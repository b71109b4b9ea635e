"""The two TensorRTs: NVIDIA's classic one, and TensorRT for RTX, which also builds without a GPU.

Their Python modules are nearly the same, so the builder and the backend take the module as a value.
What both need of it is here: the import, the process's one logger, and the plugin.
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
"""TensorRT's largest K for TopK; to keep more tokens takes the plugin."""
PLUGIN_VARIABLE = "MRCFA_PLUGIN_LIBRARY"
"""The environment variable that names the plugin's library where no option does."""

ERROR = 1
"""TensorRT's severities: 0 internal error, 1 error, 2 warning, 3 information, 4 verbose."""
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
        """The CUDA that its pip wheel is for; None for a TensorRT that came some other way."""
        for major in _CUDA_MAJORS:
            with suppress(metadata.PackageNotFoundError):
                metadata.version(f"{self.module}_cu{major}")
                return major
        return None

    def load(self) -> ModuleType:
        """The Python module; an error names the install command."""
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
def heard(trt: ModuleType, echo: bool = False) -> Iterator[list[Message]]:
    """Everything that TensorRT says while this lasts, also on stderr with `echo`.

    Threads share the logger, so what several of them do at once is heard by all.
    """
    messages: list[Message] = []

    def hear(message: Message) -> None:
        messages.append(message)
        if echo:
            print(message.text, file=sys.stderr)

    listeners = logger(trt).listeners
    listeners.append(hear)
    try:
        yield messages
    finally:
        listeners.remove(hear)


@cache
def logger(trt: ModuleType) -> Any:
    """The process's only logger: TensorRT keeps the first it meets and warns about others."""

    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]  # a base of run time
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.listeners: list[Any] = []

        def log(self, severity: Any, text: str) -> None:
            for listener in tuple(self.listeners):
                listener(Message(int(severity), text))

    return Logger()


def complaint(messages: Sequence[Message]) -> str:
    """The first error, which is the cause of the others, without the places in NVIDIA's sources."""
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
    """See that the plugin is registered, from `library` or MRCFA_PLUGIN_LIBRARY if it is not."""
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
    with heard(trt) as said:
        registry.load_library(str(path.resolve()))
    if registry.get_creator(*PLUGIN) is None:
        raise Mismatch(f"{path} does not provide {PLUGIN_NAME}: {complaint(said)}")


_mended: list[Path] = []
"""The folder of links below, once it is in use."""


def check_parser_takes_plugins(trt: ModuleType) -> None:
    """Refuse what would abort the process; see `_mend_rtx_wheel`."""
    if trt.__name__ == "tensorrt_rtx" and find_spec("tensorrt_rtx_libs") and not _mended:
        raise WrongState(
            "tensorrt_rtx was imported before mrcfa could mend it, and its parser takes no plugin "
            "then; build in a process of its own: mrcfa build"
        )


def _mend_rtx_wheel() -> None:
    """Let the wheel's ONNX parser find libtensorrt_rtx.so; with a plugin registered it aborts else.

    The parser opens that name at run time, and the wheel has libtensorrt_rtx.so.1 alone. It looks
    in the folder it was loaded from ($ORIGIN), so we load it first, through a folder of links that
    has both names: the import then finds it loaded already, for it is the same file. Nothing is
    written to site-packages, and no process has to start anew, as for LD_LIBRARY_PATH.
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
