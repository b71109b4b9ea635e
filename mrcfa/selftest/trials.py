"""The trials of `mrcfa doctor`, each in its own process, because a broken runtime may crash it.

python -m mrcfa.selftest.trials tensorrt_rtx
"""

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

from mrcfa.backends.one_node import ONE_NODE
from mrcfa.backends.records import BACKENDS
from mrcfa.bundle.flavours import Flavour, captured_log, first_error, logger
from mrcfa.errors import MrcfaError, RuntimeFailed, Unsupported, named
from mrcfa.machine.drivers import cuda_needs
from mrcfa.machine.extras import install_command, load
from mrcfa.machine.hardware import cuda_driver, gpus
from mrcfa.machine.vulkan import NO_VULKAN, vulkan_devices
from mrcfa.selftest.findings import Finding

_ORT = BACKENDS["onnxruntime"]
PROVIDERS = {place.runtime_name: place for place in _ORT.places}
"""ONNX Runtime's providers that mrcfa can use."""
_CUDA_ERRORS = {
    100: "CUDA_ERROR_NO_DEVICE: no GPU is visible, or CUDA_VISIBLE_DEVICES hides it",
    802: "CUDA_ERROR_SYSTEM_NOT_READY: the fabric manager does not run",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: library and kernel module differ; restart the machine",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: a cuda-compat package is in the way",
    999: "CUDA_ERROR_UNKNOWN: after a suspend or an update, restart the machine",
}


def tried(findings: list[Finding]) -> list[Finding]:
    """The findings with the results of their trials, plus one for each ONNX Runtime provider."""
    installed = {finding.name for finding in findings if finding.found is not None}
    names = [*dict.fromkeys(_named(installed))]
    with ThreadPoolExecutor(4) as pool:
        answers = dict(zip(names, pool.map(_answer, names), strict=True))
    out = []
    for finding in findings:
        answer = answers.get(finding.name)
        out.append(finding if answer is None else replace(finding, works=answer[0], said=answer[1]))
        if finding.name == "CUDA driver":
            out += _unmet(finding.found)
        if finding.name == "onnxruntime" and finding.found is not None:
            out += [_provider(name, answers[name], finding.found) for name in PROVIDERS]
    return out


def _named(installed: set[str]) -> Iterator[str]:
    yield from (name for name in TRIALS if name in installed)
    if "onnxruntime" in installed:
        yield from PROVIDERS


def _provider(name: str, answer: tuple[bool, str], version: str) -> Finding:
    works, said = answer
    place = PROVIDERS[name]
    absent = said == _ABSENT
    remedy = install_command(place.extra or _ORT.extra)
    if absent and not place.library:
        remedy = f"pip uninstall -y onnxruntime, then {remedy}"
    elif place.library and not absent and not works:  # the adapter is missing, not the package
        absent, remedy = True, said
    return Finding(
        f"ort:{place.name}",
        None if absent else version,
        f"running bundles with onnxruntime:{place.name}",
        remedy,
        None if absent else works,
        said,
    )


def _unmet(driver: str | None) -> list[Finding]:
    """One finding for each package that needs a newer driver; none if there is no driver."""
    return [
        Finding(
            need.package.partition(" ")[0],
            need.package.partition(" ")[2],
            "running TensorRT engines",
            need.remedy,
            False,
            f"it needs a driver for CUDA {need.cuda}, and this one supports CUDA {driver}",
        )
        for need in cuda_needs()
        if driver is not None and not need.met_by(driver)
    ]


def _answer(name: str) -> tuple[bool, str]:
    from mrcfa.selftest.processes import python

    try:
        lines = python("-m", "mrcfa.selftest.trials", name).splitlines()
        works, said = json.loads(lines[-1])
        return works, said
    except MrcfaError as error:
        return False, str(error)


def _init() -> str:
    """Try `cuInit`, without which nothing runs on a GPU."""
    code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    if code:
        raise RuntimeFailed(f"cuInit fails: {_CUDA_ERRORS.get(code, f'CUDA error {code}')}")
    return f"cuInit works, {len(gpus())} GPUs"


def _bindings() -> str:
    from mrcfa.backends.cuda import Cuda

    if cuda_driver() is None:
        load("cuda.bindings.driver")
        return "loads; not tried further without a driver"
    gpu = Cuda().gpu
    return f"a context on {gpu.name} works"


def _runtime(flavour: Flavour) -> str:
    trt = flavour.load()
    with captured_log(trt) as log:
        try:
            made = trt.Runtime(logger(trt))
        except (TypeError, RuntimeError):  # the library gave a null pointer
            made = None
    if made is None:
        raise RuntimeFailed(f"its runtime does not start: {first_error(log)}")
    return "its runtime starts"


_ABSENT = "this build of ONNX Runtime does not have it"


def _session(provider: str) -> str:
    if PROVIDERS[provider].library:
        return _adapter(PROVIDERS[provider].library)
    import numpy as np
    import onnxruntime as ort

    if provider not in ort.get_available_providers():
        raise Unsupported(_ABSENT)
    if provider != "CPUExecutionProvider" and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(ONE_NODE, options, providers=[provider])
    if session.get_providers()[0] != provider:
        raise Unsupported("it does not load; ONNX Runtime would use the CPU without a warning")
    (answer,) = session.run(None, {"x": np.ones(2, np.float32)})
    if answer.tolist() != [2.0, 2.0]:
        raise RuntimeFailed(f"1 + 1 is {named(answer.tolist())}")
    return "a session runs"


def _adapter(library: str) -> str:
    """Try WebGPU; returns the adapter that it takes, its precisions and the other adapters."""
    if find_spec(library) is None:
        raise Unsupported(_ABSENT)
    devices = vulkan_devices()
    if devices == []:
        raise Unsupported(NO_VULKAN)
    from mrcfa.backends import webgpu

    found = webgpu.adapter()
    others = [each.name for each in (devices or [])[1:]]
    also = f"; other adapters: {named(others)}" if others else ""
    return f"{found}, computes in FP32{' and FP16' if found.fp16 else ''}{also}"


TRIALS: dict[str, Callable[[], str]] = {
    "CUDA driver": _init,
    "cuda-python": _bindings,
    "tensorrt_rtx": partial(_runtime, Flavour.RTX),
    "tensorrt": partial(_runtime, Flavour.TENSORRT),
}
"""Name of a finding -> its trial, which returns a message or raises an error."""


def main(name: str) -> None:
    trial = TRIALS.get(name) or partial(_session, name)
    try:
        answer = (True, trial())
    except Exception as error:  # doctor reports any error of a runtime
        answer = (False, next(iter(str(error).splitlines()), type(error).__name__))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
