"""A cache on disk of the kernels that TensorRT-RTX compiled for one engine on one GPU.

TensorRT-RTX compiles kernels when an execution context is made, for seconds, unless it finds them
in the `IRuntimeCache` that is attached to the context. C++ shares the file: name and content are
made alike here and in engines/cpp/src/runtime_cache.cpp.
"""

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any

from mrcfa.backends.cuda_context import Cuda, Held
from mrcfa.bundle import Unfit
from mrcfa.bundle.flavours import captured_log, first_error
from mrcfa.console.notices import warn
from mrcfa.errors import MrcfaError
from mrcfa.machine.files import cache_folder, write_whole
from mrcfa.machine.hardware import Gpu

_DIGEST_BYTES = 64  # hexadecimal digits


class RuntimeCache:
    """One file for an engine on a GPU: a SHA-256, then the content that TensorRT-RTX wrote.

    TensorRT-RTX refuses the content of another GPU, driver or version, and never sees a file whose
    hash is wrong. Processes that fill the same cache write the same kernels, and a file gets its
    name when it is complete. A file that cannot be used is reported and costs compiling again.
    """

    def __init__(
        self, cuda: Cuda, trt: ModuleType, engine: Held[Any], gpu: Gpu, plans: list[str]
    ) -> None:
        """`plans` are the hashes of both plans, and `engine` is either of them."""
        self._trt, self._path = trt, _path(trt, gpu, plans)
        with captured_log(trt) as log:
            config = Held(cuda, engine.thing.create_runtime_config(), engine)
            self._cache = Held(cuda, config.thing.create_runtime_cache(), config)
        if self._cache.thing is None:
            raise Unfit(f"TensorRT cannot prepare the engine: {first_error(log)}")
        self._known = self._loaded()

    def attach(self, config: Any) -> None:
        """Attach the cache to an `IRuntimeConfig` of either plan; they share common kernels."""
        if not config.set_runtime_cache(self._cache.thing):
            warn("TensorRT-RTX takes no runtime cache, so it compiles anew at every start")

    def save(self) -> None:
        """Write the file if anything was compiled since it was loaded or saved."""
        content = bytes(self._cache.thing.serialize() or b"")
        digest = _digest(content)
        if not content or digest == self._known or self._path is None:
            return
        try:
            write_whole(self._path, digest + content)
        except MrcfaError as error:
            warn(f"{error}, so TensorRT-RTX compiles this engine again at every start")
        self._known = digest

    def _loaded(self) -> bytes:
        """Load the file and return its digest; empty if nothing was loaded."""
        if self._path is None:
            return b""
        try:
            file = self._path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            return self._refused(f"cannot be read: {error.strerror}")
        digest, content = file[:_DIGEST_BYTES], file[_DIGEST_BYTES:]
        if _digest(content) != digest:
            return self._refused("is damaged")
        with captured_log(self._trt) as log:
            accepted = self._cache.thing.deserialize(content)
        if not accepted:
            return self._refused(f"is not of this GPU, driver and version: {first_error(log)}")
        return digest

    def _refused(self, why: str) -> bytes:
        warn(f"the runtime cache {self._path} {why}; TensorRT-RTX compiles this engine anew")
        return b""


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _path(trt: ModuleType, gpu: Gpu, plans: list[str]) -> Path | None:
    """The file of this version, GPU and plans, because no other can use the same kernels."""
    facts = "\n".join([trt.__version__, gpu.name, str(gpu.sm), *plans])
    name = f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}.cache"
    try:
        return cache_folder("tensorrt-rtx", name)
    except MrcfaError as error:
        warn(error)
        return None
