"""Frames that lie on the GPU and masks that stay there, without torch, CuPy or pycuda."""

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends.cuda import Cuda, CudaStream, DeviceArray, pinned_array
from mrcfa.stream.stream import Stream


def masks_by_device(stream: Stream, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 (T, h, w, 3) -> (T, h, w); only here do they pass the host."""
    cuda = Cuda()
    with cuda.current():
        queue = CudaStream(cuda)
        frame = DeviceArray(cuda, frames.shape[1:], "uint8")
        staged = pinned_array(cuda, frame.shape, "uint8")
    masks = []
    for image in frames:
        staged[...] = image
        with cuda.current():
            queue.upload(frame, staged)
            queue.synchronize()
        mask = stream(frame)
        assert isinstance(mask, DeviceArray)
        with cuda.current():
            answer = pinned_array(cuda, mask.shape, "uint8")
            queue.download(answer, mask)
            queue.synchronize()
        masks.append(answer.copy())
    return np.stack(masks)
