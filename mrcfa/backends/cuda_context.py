"""A CUDA context, made current where it is needed, and what is made in it given back in it.

It is the driver's API and not the runtime's: that one knows contexts, so we stay in the one that
pycuda or the host program made, and it depends on the driver alone, so one cuda-python serves every
CUDA version from 12 on.
"""

import atexit
import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from mrcfa.bundle import Unfit
from mrcfa.errors import NotFound, RuntimeFailed, WrongState
from mrcfa.machine.extras import MissingExtra, load
from mrcfa.machine.hardware import Gpu

_Thing = TypeVar("_Thing")
_CONTEXT_GONE = ("INVALID_CONTEXT", "CONTEXT_IS_DESTROYED", "DEINITIALIZED")
_GPU_GONE = (
    "ASSERT",
    "DEVICE_UNAVAILABLE",
    "ECC_UNCORRECTABLE",
    "EXTERNAL_DEVICE",
    "HARDWARE_STACK_ERROR",
    "ILLEGAL_ADDRESS",
    "ILLEGAL_INSTRUCTION",
    "INVALID_ADDRESS_SPACE",
    "INVALID_DEVICE",
    "INVALID_PC",
    "LAUNCH_FAILED",
    "LAUNCH_TIMEOUT",
    "MISALIGNED_ADDRESS",
    "NO_DEVICE",
    "NVLINK_UNCORRECTABLE",
    "SYSTEM_NOT_READY",
    "UNKNOWN",
)
"""After these all further calls of the process fail."""


class CudaError(RuntimeFailed):
    """A CUDA call failed; `code` is the driver's name for why, such as `OUT_OF_MEMORY`."""

    def __init__(self, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code


class Cuda:
    """The context of one GPU.

    It is the one that is current where this is made, if that is on the device asked for, and else
    the device's primary context, which PyTorch and TensorRT use too. `with cuda.current():` makes
    it current for the block, in whichever thread that runs.

    What is made in the context is given back in it: when its owner goes, in whichever thread that
    happens, or else at the interpreter's exit. Handlers of `atexit` run last in, first out, so ours
    comes before that of pycuda.autoinit, which ends the context that was current here.
    """

    def __init__(self, device: int | None = None) -> None:
        try:
            self._driver = load("cuda.bindings.driver")
        except MissingExtra:
            raise
        except ImportError as error:
            raise Unfit(f"cuda-python is installed but does not load: {error}") from None
        try:
            self.call("cuInit", 0)
        except CudaError as error:
            raise Unfit(f"no GPU can be used here: {error}") from None
        self._context = self._chosen(device)
        with self.current():
            self._device = self.call("cuCtxGetDevice")
        self.lost = False
        """Whether the GPU or the context went away."""
        self._numbers = count()
        self._unreleased: dict[int, Callable[[], object]] = {}
        atexit.register(_release_all, self._unreleased)

    def _chosen(self, device: int | None) -> Any:
        here = self.call("cuCtxGetCurrent")
        if int(here) and device in (None, int(self.call("cuCtxGetDevice"))):
            return here
        try:
            handle = self.call("cuDeviceGet", device or 0)
        except CudaError:
            raise no_gpu(device or 0) from None
        return self.call("cuDevicePrimaryCtxRetain", handle)

    def serves(self, device: int | None) -> bool:
        """Whether who asks for this device here would not rather have a context of its own."""
        if self.lost:
            return False
        here = int(self.call("cuCtxGetCurrent"))
        if not here or here == int(self._context):
            return True
        return device not in (None, int(self.call("cuCtxGetDevice")))

    @contextmanager
    def current(self) -> Iterator[None]:
        self.call("cuCtxPushCurrent", self._context)
        try:
            yield
        except BaseException:
            with suppress(CudaError):  # the first error says more
                self.call("cuCtxPopCurrent")
            raise
        self.call("cuCtxPopCurrent")

    @contextmanager
    def losses_told(self) -> Iterator[None]:
        """A GPU or a context that goes away in the middle of the work is a sentence of its own."""
        try:
            yield
        except CudaError as error:
            if error.code not in (*_CONTEXT_GONE, *_GPU_GONE):
                raise
            self.lost = True
            if error.code in _CONTEXT_GONE:
                raise WrongState(
                    f"the CUDA context that this stream was opened in is gone ({error}); close "
                    "streams before their context, as `with Stream(...)` does"
                ) from None
            raise RuntimeFailed(
                f"the GPU stopped working ({error}), and what ran on it is lost; look for the "
                "reason in the system's log (dmesg), then start the program anew"
            ) from None

    @property
    def gpu(self) -> Gpu:
        kinds = self._driver.CUdevice_attribute
        major, minor = (
            self.call("cuDeviceGetAttribute", kind, self._device)
            for kind in (
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        name: bytes = self.call("cuDeviceGetName", 256, self._device)
        return Gpu(name.partition(b"\0")[0].decode(), 10 * major + minor)

    @property
    def version(self) -> tuple[int, int]:
        """The newest CUDA that the driver knows, such as (13, 0)."""
        number: int = self.call("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10

    def call(self, name: str, *arguments: Any) -> Any:
        """One function of the driver: its result, or an error that names it."""
        try:
            code, *results = getattr(self._driver, name)(*arguments)
        except RuntimeError as error:  # cuda-python's, where the driver lacks the function
            raise CudaError(f"CUDA's {name} cannot be called: {error}") from None
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise CudaError(
                f"CUDA's {name} failed: {code.name}", code.name.removeprefix("CUDA_ERROR_")
            )
        return results[0] if results else None

    def kind(self, name: str) -> Any:
        """One of the driver's enums or types of handles."""
        return getattr(self._driver, name)

    def freed_with(self, owner: object, function: str, handle: Any) -> None:
        """Give the handle back when its owner goes."""
        self.released_with(owner, partial(self.call, function, handle))

    def released_with(
        self,
        owner: object,
        release: Callable[[], object],
        abandon: Callable[[], object] = lambda: None,
    ) -> None:
        """Call `release` when the owner goes, or `abandon` if the context went before it."""
        number = next(self._numbers)
        self._unreleased[number] = partial(self._release, release, abandon)
        weakref.finalize(owner, _release_one, self._unreleased, number).atexit = False

    def _release(self, release: Callable[[], object], abandon: Callable[[], object]) -> None:
        try:
            with self.current(), suppress(CudaError):  # after an error of the GPU all calls fail
                release()
        except CudaError:
            abandon()


_Unreleased = dict[int, Callable[[], object]]


def _release_one(unreleased: _Unreleased, number: int) -> None:
    """Release what has this number, unless that happened already."""
    release = unreleased.pop(number, None)
    if release is not None:
        release()


def _release_all(unreleased: _Unreleased) -> None:
    """Release what is left at the interpreter's exit, the newest first: contexts before engines.

    The finalizers themselves are of no use here: they may be switched off before this runs.
    """
    for number in sorted(unreleased, reverse=True):
        _release_one(unreleased, number)


class Held(Generic[_Thing]):
    """A TensorRT object, destroyed with its CUDA context current, whoever drops it last and where.

    TensorRT crashes otherwise. `needs` stays until then: an engine outlives its contexts. Where the
    CUDA context is gone already, the object is never destroyed, for the same reason.

    Functions that may raise take the object from here and keep no name for it: a traceback would
    hold it beyond this.
    """

    def __init__(self, cuda: Cuda, thing: _Thing, *needs: object) -> None:
        self._box = [thing]
        cuda.released_with(
            self, partial(_destroy, cuda, self._box, needs), partial(_leak, self._box, needs)
        )

    @property
    def thing(self) -> _Thing:
        return self._box[0]


def _destroy(cuda: Cuda, box: list[Any], needs: object) -> None:
    with suppress(CudaError):
        cuda.call("cuCtxSynchronize")  # a frame that nobody fetched may be under way
    box.clear()


def _leak(box: list[Any], needs: object) -> None:
    for each in (box, needs):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def no_gpu(device: int) -> NotFound:
    return NotFound(f"there is no GPU {device}; mrcfa doctor lists those here")
