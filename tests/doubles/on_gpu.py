"""Frames in a GPU's memory, the double's or a real one's, and masks brought back from there."""

from typing import Any

import numpy as np

from mrcfa.backends.cuda import Cuda, CudaStream, DeviceArray, pinned_array

DEFAULT = 1
"""CU_STREAM_LEGACY."""


class OnGpu:
    """A frame that a stream writes; nothing waits for that stream here."""

    def __init__(
        self,
        image: np.ndarray,
        written_on: int = DEFAULT,
        device: int | None = None,
        **facts: Any,
    ) -> None:
        cuda = Cuda(device)
        with cuda.current():
            self._memory = DeviceArray(cuda, image.shape, "uint8")
            self._source = pinned_array(cuda, image.shape, "uint8")
            self._source[...] = image
            stream = cuda.kind("CUstream")(written_on)
            place = self._memory.ptr, self._source.ctypes.data
            cuda.call("cuMemcpyHtoDAsync", *place, image.nbytes, stream)
        self.__cuda_array_interface__ = {
            "version": 2,
            "shape": image.shape,
            "typestr": image.dtype.str,
            "data": (self._memory.ptr, False),
            **facts,
        }


def read_back(mask: DeviceArray) -> np.ndarray:
    cuda = Cuda()
    with cuda.current():
        queue, answer = CudaStream(cuda), pinned_array(cuda, mask.shape, "uint8")
        queue.download(answer, mask)
        queue.synchronize()
    return answer.copy()
