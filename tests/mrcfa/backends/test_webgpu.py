"""WebGPU: variants and adapters are chosen by doubles; real frames run on a software adapter."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import software_gpu
from naming import names, naming

import mrcfa.backends.onnxruntime as backend
from mrcfa import Stream
from mrcfa.backends import Options, Unfit, webgpu
from mrcfa.backends.onnxruntime import OnnxRuntimeBackend, open_session
from mrcfa.backends.records import BACKENDS
from mrcfa.backends.webgpu import Adapter
from mrcfa.bundle import Bundle
from mrcfa.errors import Unsupported
from mrcfa.machine.vulkan import VulkanDevice, vulkan_devices
from mrcfa.selftest.findings import Finding
from mrcfa.selftest.processes import python
from mrcfa.selftest.trials import tried
from mrcfa.selftest.ways import ways

RADEON = Adapter("AMD Radeon RX 6600", software=False, fp16=True)
OLD = Adapter("Intel HD Graphics 4000", software=False, fp16=False)
SWIFTSHADER = Adapter("SwiftShader", software=True, fp16=False)
ON_CPU = property(lambda self: ("cpu", 0), lambda self, place: None)


@pytest.fixture
def machine(monkeypatch):
    """`machine(adapter)`: WebGPU on that adapter, made of the CPU. Returns what sessions opened."""
    opened = []
    place = backend.ort.OrtValue.ortvalue_from_numpy

    def session(graph, path, provider, threads, device, strict):
        opened.append((provider, path.name))
        return open_session(graph, path, "cpu", threads)

    def choose(adapter):
        def asked():
            if adapter is None:
                raise Unfit("WebGPU finds no GPU here")
            return adapter

        devices = [] if adapter is None else [VulkanDevice(adapter.name, adapter.software)]
        monkeypatch.setattr(webgpu, "adapter", asked)
        monkeypatch.setattr(backend, "vulkan_devices", lambda: devices)
        monkeypatch.setattr(backend, "find_spec", lambda name: name)
        monkeypatch.setattr(backend, "open_session", session)
        monkeypatch.setattr(backend.ort.OrtValue, "ortvalue_from_numpy", lambda a, *_: place(a))
        monkeypatch.setattr(OnnxRuntimeBackend, "_place", ON_CPU, raising=False)
        return opened

    return choose


@pytest.fixture
def both(bundle):
    """A bundle with FP16 and FP32 for GPUs, whose graphs are the same."""
    opened = Bundle.open(bundle("b0"))
    variants = dict(opened.manifest.variants)
    variants["fp32-gpu"] = replace(variants["fp16"], precision="fp32")
    return replace(opened, manifest=replace(opened.manifest, variants=variants))


def test_fp16_runs_where_the_adapter_has_it_and_the_name_says_what_computes(machine, bundle, clip):
    opened = machine(RADEON)
    with Stream(bundle("b0"), "onnxruntime:webgpu", threads=1) as stream:
        assert stream.backend == "onnxruntime (WebGPU, AMD Radeon RX 6600, fp16)"
        frame = clip(1, 96, 160)[0]
        wanted = Stream(bundle("b0"), "onnxruntime:cpu", precision="fp16", threads=1)(frame)
        np.testing.assert_array_equal(stream(frame), wanted)
    assert ("webgpu", "decoder.fp16.onnx") in opened


def test_an_adapter_without_fp16_gets_fp32_for_gpus_or_a_sentence_with_the_command(
    machine, bundle, both
):
    machine(OLD)
    path = bundle("b0")
    assert OnnxRuntimeBackend(both, "webgpu", Options()).name.endswith("4000, fp32)")
    for precision in (None, "fp32"):
        with pytest.raises(Unfit, match=naming(path, "fp32", "GPU", "--variants fp32-gpu")):
            Stream(path, "onnxruntime:webgpu", precision=precision)
    with pytest.raises(Unfit, match=naming(OLD.name, "FP16", "shader-f16", "fp32")):
        Stream(path, "onnxruntime:webgpu", precision="fp16")
    with pytest.raises(Unfit, match=naming("WebGPU", "fp32", "fp16", "int8")):
        Stream(path, "onnxruntime:webgpu", precision="int8")


def test_auto_takes_webgpu_before_the_cpu_and_never_software(machine, bundle, both, capsys):
    path = bundle("b0")
    for adapter, name in (
        (RADEON, "onnxruntime (WebGPU, AMD Radeon RX 6600, fp16)"),
        (SWIFTSHADER, "onnxruntime (CPU, fp32)"),
        (None, "onnxruntime (CPU, fp32)"),
    ):
        machine(adapter)
        assert Stream(path, strict=True).backend == name
    machine(SWIFTSHADER)
    named = OnnxRuntimeBackend(both, "webgpu", Options())
    assert named.name == "onnxruntime (WebGPU, SwiftShader, software, fp32)"
    assert capsys.readouterr().err == ""


def test_a_gpu_that_stays_idle_for_want_of_a_variant_is_told_or_raised(machine, bundle, capsys):
    machine(OLD)
    path = bundle("b0")
    assert Stream(path, threads=1).backend == "onnxruntime (CPU, fp32)"
    assert names(capsys.readouterr().err, path, "--variants fp32-gpu", "CPU")
    with pytest.raises(Unsupported, match=naming(path, "--variants fp32-gpu")):
        Stream(path, threads=1, strict=True)


def test_the_gpu_is_webgpus_own_choice(machine, bundle):
    machine(RADEON)
    with pytest.raises(Unfit, match=naming("WebGPU", RADEON.name, "device")):
        Stream(bundle("b0"), "onnxruntime:webgpu", device=1)


def test_bench_and_selftest_list_it_in_the_precisions_that_it_has(bundle, monkeypatch):
    record = BACKENDS["onnxruntime"]
    place = record.place("webgpu")
    assert [place.computes(each) for each in ("fp32", "fp16", "int8")] == [True, True, False]
    for devices, name, absent in (
        ([VulkanDevice("SwiftShader Device", True)], "onnxruntime:webgpu fp16 (software)", False),
        ([VulkanDevice("AMD Radeon", False)], "onnxruntime:webgpu fp16", False),
        ([], "onnxruntime:webgpu fp16", True),
        (None, "onnxruntime:webgpu fp16", False),
    ):
        monkeypatch.setattr("mrcfa.backends.records.vulkan_devices", lambda found=devices: found)
        (way,) = (each for each in ways(Bundle.open(bundle("b0"))) if "webgpu" in each.name)
        assert way.name == name
        assert ("Vulkan" in way.absent) == absent


def doctors_finding():
    found = tried([Finding("onnxruntime", "1", "", "")])
    return next(each for each in found if "webgpu" in each.name)


def test_doctor_says_what_is_missing_for_webgpu(monkeypatch):
    """The remedy is the driver's or the package's, never another ONNX Runtime."""
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nowhere.json")
    (found,) = (
        each for each in tried([Finding("onnxruntime", "1", "", "")]) if "webgpu" in each.name
    )
    assert found.name == "ort:webgpu"
    assert found.found is None
    assert "uninstall" not in found.remedy
    if not software_gpu.missing():
        assert names(found.remedy, "Vulkan", "libvulkan1")


def test_without_a_vulkan_driver_it_is_one_sentence(bundle, monkeypatch, capfd):
    if what := software_gpu.missing():
        pytest.skip(f"WebGPU: not run ({what})")
    monkeypatch.setattr(webgpu, "device", lambda: SimpleNamespace(device=None))
    with pytest.raises(Unfit, match=naming("Vulkan", "onnxruntime:cpu")):
        Stream(bundle("b0"), "onnxruntime:webgpu")
    assert capfd.readouterr().err == ""


@pytest.fixture
def software(monkeypatch):
    """The variables of a process that has a GPU of software."""
    if what := software_gpu.missing():
        pytest.skip(f"WebGPU: not run ({what})")
    for name, value in software_gpu.environment().items():
        monkeypatch.setenv(name, value)


def test_the_software_adapter_is_found_and_named(software):
    (device,) = vulkan_devices()
    assert device == VulkanDevice(device.name, software=True)
    assert device.name.startswith("SwiftShader")
    (found,) = (
        each for each in tried([Finding("onnxruntime", "1", "", "")]) if "webgpu" in each.name
    )
    assert found.works
    assert names(found.said, "SwiftShader", "software", "FP32")
    assert "FP16" not in found.said  # it has no shader-f16


ON_WEBGPU = """
import json, sys
import numpy as np
from mrcfa import Stream, Streams
from mrcfa.bundle import Bundle
from mrcfa.data.synthetic import drifting_clip
from mrcfa.selftest import stream_checks
from mrcfa.selftest.ways import ways

one, two = sys.argv[1:]
stream_checks.AGAIN = 2  # frames; each takes seconds
opened = Bundle.open(one)
(way,) = (each for each in ways(opened) if "webgpu" in each.name)
for line in stream_checks.checked(opened, way):
    print(json.dumps([str(line), line.facts]))
clip = drifting_clip(3, opened.manifest.frame)
rounds = ({0: clip[0], 1: clip[1]}, {1: clip[2]}, {0: clip[1], 1: clip[0]})
found = []
for backend in ("onnxruntime:webgpu", "onnxruntime:cpu"):
    with Streams(two, backend, precision="fp32") as streams:
        masks = []
        for number, shown in enumerate(rounds):
            if number == 2:
                streams.reset(1)
            masks += [mask for _, mask in sorted(streams(shown).items())]
        found.append(np.stack(masks))
print(json.dumps(float((found[0] == found[1]).mean())))
"""


@pytest.mark.thorough  # shaders are compiled for 13 s, and each frame takes another
def test_frames_on_the_software_adapter_have_the_references_masks(software, demo):
    """The selftest's checks of one stream, two streams at once with a pause and a reset."""
    paths = [demo("fp32-gpu", streams) for streams in (1, 2)]
    *lines, same = map(json.loads, python("-c", ON_WEBGPU, *map(str, paths)).splitlines())
    told = [line for line, _ in lines]
    for check in ("masks", "two threads", "reset"):
        assert any(
            re.match(rf"✓ onnxruntime:webgpu fp32 \(software\) +{check} +works: ", line)
            for line in told
        ), told
    facts = lines[0][1]
    assert facts["backend"] == "onnxruntime (WebGPU, SwiftShader, software, fp32)"
    assert facts["value"] >= facts["threshold"] == 0.999
    assert facts["frames"] == 12
    assert same >= 0.999
