"""What TensorRT-RTX compiled for one engine on one GPU, kept for the next start.

TensorRT-RTX compiles kernels when an execution context is made, for seconds, unless it finds them
in the `IRuntimeCache` that is attached to the context. C++ shares the file: its name and content
are made alike here and in engines/cpp/src/runtime_cache.cpp.
"""

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any

from mrcfa.backends.cuda_context import Cuda, Held
from mrcfa.bundle.flavours import complaint, heard
from mrcfa.console.notices import warn
from mrcfa.errors import MrcfaError
from mrcfa.machine.files import cache_folder, write_whole
from mrcfa.machine.hardware import Gpu

_DIGEST_BYTES = 64  # hexadecimal digits


class RuntimeCache:
    """One file for an engine on a GPU: the SHA-256 of what TensorRT-RTX wrote, then that.

    TensorRT-RTX itself refuses what another GPU, driver or version wrote; that the file is whole is
    checked before it gets to see it. Processes that fill the same cache write the same kernels, and
    each file takes its name when it is whole. Whatever is wrong with it is told, and costs no more
    than compiling again.
    """

    def __init__(
        self, cuda: Cuda, trt: ModuleType, engine: Held[Any], gpu: Gpu, plans: list[str]
    ) -> None:
        """`plans` are the hashes of both plans; the cache is made by either of them."""
        self._trt, self._path = trt, _place(trt, gpu, plans)
        config = Held(cuda, engine.thing.create_runtime_config(), engine)
        self._cache = Held(cuda, config.thing.create_runtime_cache(), config)
        self._known = self._loaded()

    def attach(self, config: Any) -> None:
        """To an `IRuntimeConfig`, of either engine: they share what they need alike."""
        config.set_runtime_cache(self._cache.thing)

    def save(self) -> None:
        """Write what was compiled since it was loaded or saved, if anything was."""
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
        """The digest of what came from the file; empty if nothing did."""
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
        with heard(self._trt) as said:
            taken = self._cache.thing.deserialize(content)
        if not taken:
            return self._refused(f"is not of this GPU, driver and version: {complaint(said)}")
        return digest

    def _refused(self, why: str) -> bytes:
        warn(f"the runtime cache {self._path} {why}; TensorRT-RTX compiles this engine anew")
        return b""


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _place(trt: ModuleType, gpu: Gpu, plans: list[str]) -> Path | None:
    """Another version, GPU or plan is another file, for none can use what the others compiled."""
    facts = "\n".join([trt.__version__, gpu.name, str(gpu.sm), *plans])
    name = f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}.cache"
    try:
        return cache_folder("tensorrt-rtx", name)
    except MrcfaError as error:
        warn(error)
        return None
