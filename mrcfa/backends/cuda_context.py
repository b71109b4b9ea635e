"""A CUDA context that is made current where it is needed, and that frees what was made in it.

The driver's API is used, not the runtime's. It knows contexts, so a stream stays in the context
that pycuda or the host program made. It depends on the driver alone, so one cuda-python serves
every CUDA version from 12 on.
"""

import atexit
import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, Generic, TypeVar

from mrcfa.backends.fitting import chosen_device
from mrcfa.backends.releases import release
from mrcfa.bundle import Unfit
from mrcfa.errors import RuntimeFailed, WrongState
from mrcfa.machine.extras import MissingExtra, load
from mrcfa.machine.hardware import Gpu

_Thing = TypeVar("_Thing")


class Failure(Enum):
    """The meaning of a CUDA error for the work, and the driver's names of such errors.

    tests/golden/cuda_errors.json has cases that Python and C++ answer alike.
    """

    MEMORY = ("OUT_OF_MEMORY",)
    """No memory is left."""
    CONTEXT = ("CONTEXT_IS_DESTROYED", "DEINITIALIZED", "INVALID_CONTEXT")
    """The CUDA context is gone."""
    GPU = (
        "ASSERT",
        "CONTAINED",
        "ECC_UNCORRECTABLE",
        "EXTERNAL_DEVICE",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_ADDRESS",
        "ILLEGAL_INSTRUCTION",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "MISALIGNED_ADDRESS",
        "MPS_CLIENT_TERMINATED",
        "NO_DEVICE",
        "NVLINK_UNCORRECTABLE",
        "TENSOR_MEMORY_LEAK",
        "UNKNOWN",
    )
    """The GPU stopped working: every further call of the process fails."""
    CALL = ()
    """Only this call failed."""

    @classmethod
    def of(cls, code: str) -> "Failure":
        return next((failure for failure in cls if code in failure.value), cls.CALL)


class CudaError(RuntimeFailed):
    """A CUDA call failed; `code` is the driver's name of the error, such as `OUT_OF_MEMORY`."""

    def __init__(self, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.code = code


class Cuda:
    """The CUDA context in which a backend works.

    It is the context that is current where this object is made, if no other device is asked for.
    Otherwise it is the device's primary context, which PyTorch and TensorRT use too.
    `with cuda.current():` makes it current for the block, in whichever thread the block runs.

    What is made in the context is freed in it: when its owner goes, in whichever thread that
    happens, or else at the interpreter's exit. Handlers of `atexit` run last in, first out, so this
    one runs before that of pycuda.autoinit, which ends the context that was current here.
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
        self.index = int(self._device)
        """The GPU's number on this machine."""
        self.alone: bool = self.call("cuDeviceGetCount") == 1
        """True if this machine has no other GPU."""
        self.lost = False
        """True once the GPU or the context has gone away."""
        self._numbers = count()
        self._unreleased: dict[int, Callable[[], object]] = {}
        atexit.register(_free_all, self._unreleased)

    def _chosen(self, device: int | None) -> Any:
        here = self.call("cuCtxGetCurrent")
        current = int(self.call("cuCtxGetDevice")) if int(here) else None
        index = chosen_device(device, current, self.call("cuDeviceGetCount"))
        if index == current:
            return here
        try:
            return self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", index))
        except CudaError as error:
            raise Unfit(f"GPU {index} cannot be used: {error}") from None

    def serves(self, device: int | None) -> bool:
        """True if this context is the one that the calling thread would get for this device."""
        if self.lost:
            return False
        here = int(self.call("cuCtxGetCurrent"))
        if not here or here == int(self._context):
            return True
        return device not in (None, int(self.call("cuCtxGetDevice")))

    @contextmanager
    def current(self, other: Any = None) -> Iterator[None]:
        """Make this context, or another one, current for the block."""
        self.call("cuCtxPushCurrent", self._context if other is None else other)
        try:
            yield
        except BaseException:
            with suppress(CudaError):  # the first error says more
                self.call("cuCtxPopCurrent")
            raise
        self.call("cuCtxPopCurrent")

    @contextmanager
    def failures_explained(self) -> Iterator[None]:
        """Turn a failed call into an error that says what it means for the work, and the remedy."""
        try:
            yield
        except CudaError as error:
            failure = Failure.of(error.code)
            if failure is Failure.CALL:
                raise
            if failure is Failure.MEMORY:
                raise CudaError(
                    f"no memory is left ({error}); nvidia-smi shows which processes hold the GPU's",
                    error.code,
                ) from None
            self.lost = True
            if failure is Failure.CONTEXT:
                raise WrongState(
                    f"the CUDA context that this stream was opened in is gone ({error}); close "
                    "streams before their context, as `with Stream(...)` does"
                ) from None
            raise CudaError(
                f"the GPU stopped working ({error}), and what ran on it is lost; look for the "
                "reason in the system's log (dmesg), then start the program anew",
                error.code,
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
        """The newest CUDA version that the driver supports, such as (13, 0)."""
        number: int = self.call("cuDriverGetVersion")
        return number // 1000, number % 1000 // 10

    def index_of(self, address: int) -> int:
        """The number of the GPU in whose memory the address is."""
        ordinal = self._driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self.call("cuPointerGetAttribute", ordinal, address))

    def owner_of(self, address: int) -> Any:
        """The context that owns the memory at the address; this one if none does, as in a pool."""
        kind = self._driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
        try:
            owner = self.call("cuPointerGetAttribute", kind, address)
        except CudaError as error:
            if error.code != "INVALID_VALUE":
                raise
            return self._context
        return owner if int(owner) else self._context

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver; an error names it. Several results are a tuple."""
        try:
            code, *results = getattr(self._driver, name)(*arguments)
        except RuntimeError as error:  # cuda-python's, where the driver lacks the function
            raise CudaError(f"CUDA's {name} cannot be called: {error}") from None
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise CudaError(
                f"CUDA's {name} failed: {code.name}", code.name.removeprefix("CUDA_ERROR_")
            )
        if len(results) > 1:
            return tuple(results)
        return results[0] if results else None

    def kind(self, name: str) -> Any:
        """An enum of the driver, or a type of its handles."""
        return getattr(self._driver, name)

    def freed_with(self, owner: object, function: str, handle: Any) -> None:
        """Free the handle when its owner goes."""
        self.released_with(owner, partial(self.call, function, handle))

    def released_with(
        self,
        owner: object,
        free: Callable[[], object],
        abandon: Callable[[], object] = lambda: None,
    ) -> None:
        """Call `free` when the owner goes, or `abandon` if the context went before it.

        While a CUDA graph is recorded, in whichever thread, nothing is freed.
        """
        number = next(self._numbers)
        self._unreleased[number] = partial(self._free, free, abandon)
        freed = partial(_free_one, self._unreleased, number)
        weakref.finalize(owner, release, freed).atexit = False

    def _free(self, free: Callable[[], object], abandon: Callable[[], object]) -> None:
        try:
            with self.current(), suppress(CudaError):  # after an error of the GPU all calls fail
                free()
        except CudaError:
            abandon()


_Unreleased = dict[int, Callable[[], object]]


def _free_one(unreleased: _Unreleased, number: int) -> None:
    """Free what has this number, unless that happened already."""
    free = unreleased.pop(number, None)
    if free is not None:
        free()


def _free_all(unreleased: _Unreleased) -> None:
    """Free what is left at the interpreter's exit, the newest first: contexts before engines.

    The finalizers themselves are of no use here: they may be switched off before this runs.
    """
    for number in sorted(unreleased, reverse=True):
        _free_one(unreleased, number)


class Held(Generic[_Thing]):
    """A TensorRT object that is destroyed with its CUDA context current, in whichever thread.

    TensorRT crashes otherwise. `needs` lives until then: an engine outlives its contexts. If the
    CUDA context is gone already, the object is never destroyed, for the same reason.

    Functions that may raise use `held.thing` and keep no name for the object: a traceback would
    keep it alive longer than this holder.
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
        cuda.call("cuCtxSynchronize")  # a frame may be under way whose mask nobody fetched
    box.clear()


def _leak(box: list[Any], needs: object) -> None:
    for leaked in (box, needs):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(leaked))
