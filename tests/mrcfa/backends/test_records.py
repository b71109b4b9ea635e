"""The registry: a record is all that the rest needs to know about a backend."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from naming import naming

from mrcfa import Stream
from mrcfa.backends import BACKENDS, Backend, Unfit
from mrcfa.backends.records import BackendRecord, Place, full_name, is_address, parts_of
from mrcfa.benchmarks.contenders import contenders
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Device
from mrcfa.errors import InvalidValue
from mrcfa.selftest.ways import ways

RECORD = BackendRecord(
    name="zeros",
    factory="a_module_of_zeros:Zeros",
    extra="zeros",
    packages={"zeros": ("zeros",)},
    enables="masks of zeros",
    options=frozenset({"precision"}),
    places=(
        Place("cpu", Device.CPU),
        Place("igpu", Device.GPU),
        Place("npu", Device.GPU, usual=False),
    ),
    overlaps_frames=True,
)


class Zeros(Backend):
    def __init__(self, bundle, which, options):
        place = RECORD.place(which or "cpu")
        self.model = bundle.manifest
        self.name = (
            f"zeros ({place.name}, {bundle.variant(place.device, options.precision).device})"
        )

    def start(self):
        return 0

    def timed_step(self, image, state):
        return {"mask": np.zeros(image.shape[:2], np.uint8)}, state + 1, {}


@pytest.fixture
def zeros(monkeypatch):
    monkeypatch.setitem(BACKENDS, "zeros", RECORD)
    monkeypatch.setitem(sys.modules, "a_module_of_zeros", SimpleNamespace(Zeros=Zeros))


def test_a_backend_is_a_class_and_a_record(zeros, bundle, clip):
    with Stream(bundle("b0"), "zeros:igpu", precision="fp16") as stream:
        assert not stream(clip(1, 96, 160)[0]).any()
        assert stream.backend == "zeros (igpu, Device.GPU)"
    with pytest.raises(InvalidValue, match=naming("zeros:tpu", "zeros:cpu", "zeros:npu")):
        Stream(bundle("b0"), "zeros:tpu")
    with pytest.raises(Unfit, match=naming("zeros", "threads")):
        Stream(bundle("b0"), "zeros", threads=2)


def test_a_device_gets_variants_for_its_kind_and_a_cpu_those_for_gpus_too(zeros, bundle):
    opened = Bundle.open(bundle("b0"))
    with pytest.raises(Unfit, match=naming("fp32", "GPU", "fp32-gpu")):
        Stream(opened, "zeros:igpu", precision="fp32")
    assert Stream(opened, "zeros:cpu", precision="fp16").backend == "zeros (cpu, Device.GPU)"


def test_bench_and_selftest_list_the_usual_devices_of_a_record(zeros, bundle):
    opened = Bundle.open(bundle("b0"))
    rows = ["zeros:cpu fp32", "zeros:cpu fp16", "zeros:igpu fp16"]
    assert [way.name for way in ways(opened) if way.name.startswith("zeros")] == rows
    found = contenders(opened, ["zeros"], threads=1, peer=False)
    assert [each.name for each in found if not each.pipelined] == rows
    assert [each.name for each in contenders(opened, ["zeros:npu"], 1, peer=False)] == [
        "zeros:npu fp16",
        "zeros:npu fp16 (pipelined)",
    ]
    assert found[-1].open().name == "zeros (igpu, Device.GPU)"  # it needs no CUDA


def test_a_server_is_found_by_the_schemes_of_its_record(zeros, bundle, monkeypatch):
    monkeypatch.setitem(BACKENDS, "server", replace(RECORD, name="server", schemes=("zero",)))
    assert is_address("zero://host/model")
    assert not is_address("server")
    for name, parts in (
        ("zero://host/model", ("server", "zero://host/model")),
        ("zeros:cpu", ("zeros", "cpu")),
        ("eager", ("eager", "")),
    ):
        assert parts_of(name) == parts
        assert full_name(*parts) == name
    with pytest.raises(InvalidValue, match=naming("server", "auto")):
        Stream(bundle("b0"), "server")
