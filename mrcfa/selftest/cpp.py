"""Check of the C++ program `mrcfa-segment` on the built-in clip, through pipes."""

import math
from pathlib import Path

import numpy as np

from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Device
from mrcfa.selftest.expected import Expected
from mrcfa.selftest.line import REPORT, Fault, Found, Line, line_of
from mrcfa.selftest.processes import output_of, tool_path


def cpp_line(bundle: Bundle, tool: Path | None) -> Line:
    def compared() -> Found:
        program = str(tool_path(tool).absolute())
        info = output_of([program, str(bundle.path), "--info"]).decode()
        expected = Expected.of(bundle)
        answer = output_of([program, str(bundle.path)], given=expected.frames.tobytes())
        shape = (len(expected.frames), *bundle.manifest.frame)
        if len(answer) != math.prod(shape):
            raise Fault(
                f"it wrote {len(answer)} bytes of masks instead of {math.prod(shape)}",
                "build engines/cpp again",
            )
        masks = np.frombuffer(answer, np.uint8).reshape(shape)
        ran = next(line for line in info.splitlines() if line.startswith("runs on "))
        if "without CUDA graphs" in ran:
            raise Fault(f"{ran}: CUDA graphs cannot be recorded", REPORT)
        precision = next(
            variant.precision
            for variant in bundle.manifest.variants.values()
            if variant.precision in ran.replace(",", " ").replace(")", " ").split()
        )
        name = bundle.find_variant(Device.CPU, precision)
        assert name is not None  # it ran
        limits = bundle.manifest.variants[name].limits
        found = expected.agreement(masks, limits)
        return Found(f"{ran}: {found.words}", found.facts)

    return line_of("C++ mrcfa-segment", "masks", compared)
