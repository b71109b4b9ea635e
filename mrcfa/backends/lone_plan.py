"""A compiled plan outside a bundle, to be timed or compared with."""

from types import ModuleType

from mrcfa.backends.cuda import CudaStream, DeviceArray
from mrcfa.backends.cuda_context import Cuda, Held
from mrcfa.backends.launch import GraphUse, Launch
from mrcfa.backends.plans import Context, tensors_of
from mrcfa.bundle import Unfit
from mrcfa.bundle.flavours import captured_log, first_error, logger


class LonePlan:
    """One plan with tensors of its own, first zeros. It is launched as a lane launches its plans.

    Make and use it while the CUDA context is current.
    """

    def __init__(
        self,
        cuda: Cuda,
        trt: ModuleType,
        plan: bytes,
        stream: CudaStream,
        version_compatible: bool = False,
    ) -> None:
        with captured_log(trt) as log:
            try:
                runtime = Held(cuda, trt.Runtime(logger(trt)))
            except (TypeError, RuntimeError):  # pybind11's words for a null pointer
                raise Unfit(f"{trt.__name__} does not start: {first_error(log)}") from None
            runtime.thing.engine_host_code_allowed = version_compatible
            engine = Held(cuda, runtime.thing.deserialize_cuda_engine(plan), runtime)
        if engine.thing is None:
            raise Unfit(f"{trt.__name__} cannot load a plan: {first_error(log)}")
        scratch = DeviceArray(cuda, (max(int(engine.thing.device_memory_size_v2), 1),), "uint8")
        self.tensors = {
            name: DeviceArray(cuda, shape, dtype)
            for name, (dtype, shape) in tensors_of(engine.thing).items()
        }
        for tensor in self.tensors.values():
            stream.zero(tensor)
        context = Context(cuda, trt, engine, None, scratch)
        self.launch = Launch(stream, context, self.tensors, GraphUse(True))
