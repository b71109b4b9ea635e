"""Frames and masks in GPU memory, without torch, CuPy or pycuda."""

import numpy as np
from numpy.typing import NDArray

from mrcfa.backends.cuda import Cuda, CudaStream, DeviceArray, pinned_array
from mrcfa.stream.stream import Stream


def masks_by_device(stream: Stream, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Masks (T, h, w) of T uint8 frames; the stream gets and returns GPU memory."""
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
