"""Model repositories: what Triton reads must be what the graphs are."""

import json
import re
import shutil
from dataclasses import replace

import onnx
import pytest
from naming import naming

from mrcfa.backends.served import Served, identity
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Device, Engine
from mrcfa.errors import AlreadyExists, Unsupported
from mrcfa.machine.files import sha256
from mrcfa.model.input_format import RGB, InputFormat, Layout, Matrix, Range
from mrcfa.serving.repository import Platform, ServingOptions, write_repository

model_config = pytest.importorskip(
    "tritonclient.grpc.model_config_pb2", reason="not run: tritonclient is not installed"
)
NAMES = ("mrcfa", "mrcfa_encoder", "mrcfa_decoder")


@pytest.fixture
def written(tmp_path):
    """`written(bundle, **options)`: the repository's folder and its configs by model."""

    def write(path, platform="onnxruntime", **options):
        root = tmp_path / f"models{len(list(tmp_path.iterdir()))}"
        told = ServingOptions(Platform(platform), **options)
        write_repository([Bundle.open(path)], root, told)
        return root, {each.parent.name: parsed(each) for each in root.glob("*/config.pbtxt")}

    return write


def parsed(path):
    from google.protobuf import text_format

    return text_format.Parse(path.read_text(encoding="utf-8"), model_config.ModelConfig())


def ends(config):
    """A model's tensors in its config, state included: name -> (type, shape)."""
    kinds = {name: f"TYPE_{name}" for name in ("FP32", "FP16", "INT32", "UINT8")}
    names = {model_config.DataType.Value(text): short for short, text in kinds.items()}
    batch = (-1,) if config.max_batch_size else ()

    def of(tensors):
        return {each.name: (names[each.data_type], (*batch, *each.dims)) for each in tensors}

    inputs, outputs = of(config.input), of(config.output)
    for state in config.sequence_batching.state:
        kind = (names[state.data_type], (*batch, *state.dims))
        inputs[state.input_name] = outputs[state.output_name] = kind
        (zeros,) = state.initial_state
        assert (names[zeros.data_type], (*batch, *zeros.dims), zeros.zero_data) == (*kind, True)
    for control in config.sequence_batching.control_input:
        inputs[control.name] = ("INT32", (*batch, 1))
    return inputs, outputs


def graph_ends(path):
    kinds = {"FLOAT": "FP32", "FLOAT16": "FP16", "INT32": "INT32", "UINT8": "UINT8"}

    def of(values):
        return {
            each.name: (
                kinds[onnx.TensorProto.DataType.Name(each.type.tensor_type.elem_type)],
                tuple(axis.dim_value or -1 for axis in each.type.tensor_type.shape.dim),
            )
            for each in values
        }

    graph = onnx.load(path).graph
    return of(graph.input), of(graph.output)


def told(config):
    return {key: value.string_value for key, value in config.parameters.items()}


@pytest.mark.parametrize("device", Device)
def test_configs_agree_with_the_graphs_that_they_serve(written, bundle, device):
    path = bundle("b0")
    root, configs = written(path, device=device)
    assert sorted(configs) == sorted(NAMES)
    for part in ("encoder", "decoder"):
        config, file = configs[f"mrcfa_{part}"], root / f"mrcfa_{part}" / "1" / "model.onnx"
        assert ends(config) == graph_ends(file)
        assert config.platform == "onnxruntime_onnx"
        assert told(config)["sha256"] == sha256(file)
        kind = model_config.ModelInstanceGroup.Kind.Value(f"KIND_{device.value.upper()}")
        assert [(each.kind, each.count) for each in config.instance_group] == [(kind, 1)]
    batching = configs["mrcfa_decoder"].sequence_batching
    assert {each.input_name for each in batching.state} == {"memory", "frame"}
    assert batching.oldest.max_candidate_sequences == 32
    assert batching.max_sequence_idle_microseconds == 10_000_000
    assert configs["mrcfa_encoder"].model_warmup[0].inputs["image"].random_data


def test_the_ensemble_goes_from_image_to_mask_and_wires_everything_between(written, bundle):
    _, configs = written(bundle("b0"))
    ensemble = configs["mrcfa"]
    (image,), (mask,) = ensemble.input, ensemble.output
    assert (image.name, list(image.dims), mask.name) == ("image", [1, 96, 160, 3], "mask")
    made = {"image"}
    for step in ensemble.ensemble_scheduling.step:
        config = configs[step.model_name]
        assert set(step.input_map) == {each.name for each in config.input}
        assert set(step.output_map) == {each.name for each in config.output}
        assert set(step.input_map.values()) <= made
        made |= set(step.output_map.values())
    assert "mask" in made
    assert not made & {"memory_out", "frame_out"}


def test_a_client_learns_everything_from_the_parameters(written, bundle):
    opened = Bundle.open(bundle("b0"))
    manifest = opened.manifest
    for platform in ("onnxruntime", "python"):
        _, configs = written(opened.path, platform)
        served = Served.from_parameters(told(configs["mrcfa"]), "the server")
        assert (served.config, served.classes) == (manifest.config, manifest.classes)
        assert (served.frame, served.palette) == (manifest.frame, manifest.palette)
        assert (served.bundle, served.variant, served.sequences) == (identity(opened), "fp32", 32)


@pytest.mark.thorough
def test_a_model_without_memory_is_a_plain_ensemble(written, baseline):
    root, configs = written(baseline("segformer"))
    decoder = configs["mrcfa_decoder"]
    assert not decoder.HasField("sequence_batching")
    assert ends(decoder) == graph_ends(root / "mrcfa_decoder" / "1" / "model.onnx")
    assert [each.name for each in decoder.input] == ["base"]
    assert Served.from_parameters(told(configs["mrcfa"]), "").sequences == 0


def test_a_batched_bundle_has_a_slot_for_each_of_its_streams(written, bundle):
    root, configs = written(bundle("b0", streams=3))
    assert {config.max_batch_size for config in configs.values()} == {3}
    for part in ("encoder", "decoder"):
        file = root / f"mrcfa_{part}" / "1" / "model.onnx"
        assert ends(configs[f"mrcfa_{part}"]) == graph_ends(file)
        assert told(configs[f"mrcfa_{part}"])["sha256"] == sha256(file)
    batching = configs["mrcfa_decoder"].sequence_batching
    assert batching.WhichOneof("strategy_choice") == "direct"
    (ready,) = batching.control_input
    assert list(ready.control[0].int32_false_true) == [0, 1]
    assert list(configs["mrcfa"].input[0].dims) == [96, 160, 3]
    assert Served.from_parameters(told(configs["mrcfa"]), "").sequences == 3
    path = bundle("b0", streams=3)
    with pytest.raises(Unsupported, match=naming(path, "3 streams", "--streams 1")):
        written(path, "tensorrt")


def test_the_python_form_takes_the_whole_bundle_along(written, bundle):
    root, configs = written(bundle("b0"), "python", sequences=5, idle_s=2.5, instances=2)
    inside = Bundle.open(root / "mrcfa" / "1" / "bundle")
    assert all(inside.file(name).is_file() for name in inside.manifest.files)
    (config,) = configs.values()
    assert (config.backend, config.instance_group[0].count) == ("python", 2)
    assert config.sequence_batching.oldest.max_candidate_sequences == 5
    assert config.sequence_batching.max_sequence_idle_microseconds == 2_500_000
    assert Served.from_parameters(told(config), "").sequences == 10


def with_engines(source, path, *engines):
    shutil.copytree(source, path)
    for engine in engines:
        name = "-".join(map(str, engine.compute_capabilities))
        files = {f"{part}.{name}.engine": part.encode() for part in ("encoder", "decoder")}
        made = replace(engine, encoder=f"encoder.{name}.engine", decoder=f"decoder.{name}.engine")
        Bundle.open(path).with_engine(made, files)
    return path


def test_plans_go_by_compute_capability(written, bundle, tmp_path):
    engine = Engine("tensorrt", "10.13.0", (75,), "fp16", "fp16", None, "", "")
    ampere = replace(engine, compute_capabilities=(86, 89))
    path = with_engines(bundle("b0"), tmp_path / "built", engine, ampere)
    root, configs = written(path, "tensorrt")
    fp16 = Bundle.open(path).manifest.variants["fp16"]
    for part in ("encoder", "decoder"):
        config, folder = configs[f"mrcfa_{part}"], root / f"mrcfa_{part}" / "1"
        assert ends(config) == graph_ends(path / getattr(fp16, part).file)
        assert config.platform == "tensorrt_plan"
        written_text = (folder.parent / "config.pbtxt").read_text()
        assert (config.max_batch_size, config.optimization.cuda.graphs) == (0, False)
        assert written_text.startswith("# optimization.cuda.graphs is not set")
        assert sorted(config.cc_model_filenames) == ["7.5", "8.6", "8.9"]
        for name in (*config.cc_model_filenames.values(), config.default_model_filename):
            assert (folder / name).read_bytes() == part.encode()


def test_engines_of_rtx_and_none_are_sentences(written, bundle, tmp_path):
    rtx = Engine("rtx", "1.7.1", (75,), "fp16", "fp16", None, "", "")
    path = with_engines(bundle("b0"), tmp_path / "built", rtx)
    build = f"mrcfa build {path} --flavour tensorrt"
    with pytest.raises(Unsupported, match=naming("TensorRT-RTX", "rtx fp16 sm75", build)):
        written(path, "tensorrt")
    path = bundle("b0")
    with pytest.raises(Unsupported, match=naming(f"mrcfa build {path} --flavour tensorrt")):
        written(path, "tensorrt")


def test_what_is_there_stays_unless_forced(bundle, tmp_path):
    opened, root, told = Bundle.open(bundle("b0")), tmp_path / "models", ServingOptions()
    assert write_repository([opened], root, told) == ["mrcfa"]
    before = json.loads((root / "mrcfa.json").read_text())
    assert before["files"]["mrcfa_encoder/1/model.onnx"] == sha256(opened.path / "encoder.onnx")
    with pytest.raises(AlreadyExists, match=naming(root, "--force")):
        write_repository([opened], root, told)
    write_repository([opened], root, ServingOptions(Platform.PYTHON), force=True)
    assert [each.name for each in root.iterdir() if each.is_dir()] == ["mrcfa"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").touch()
    with pytest.raises(AlreadyExists, match=naming(tmp_path / "mine", "-o")):
        write_repository([opened], tmp_path / "mine", told, force=True)


def test_several_bundles_go_by_their_folders(bundle, tmp_path, command):
    path, root = bundle("b0"), tmp_path / "models"
    for name in ("north", "south", "elsewhere/south"):
        shutil.copytree(path, tmp_path / name)
    code, out, _ = command("triton", "north", "south", "-o", root)
    assert code == 0
    assert "triton://HOST:8001/south" in out.decode()
    assert (root / "north_decoder" / "config.pbtxt").is_file()
    code, _, err = command("triton", "south", "elsewhere/south", "-o", tmp_path / "more")
    assert code == 2
    assert re.search(naming("south", "elsewhere/south"), err)
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("platform", ["onnxruntime", "python"])
def test_frames_of_nv12_have_their_shape_and_name_their_format(platform, written, bundle):
    form = InputFormat(Layout.NV12, Matrix.BT601, Range.LIMITED)
    path = bundle("b0", input=form, variants=("fp32",))
    _, configs = written(path, platform)
    inputs, outputs = ends(configs["mrcfa"])
    assert inputs["image"] == ("UINT8", (1, 144, 160))
    assert outputs["mask"] == ("UINT8", (1, 96, 160))
    told = {key: each.string_value for key, each in configs["mrcfa"].parameters.items()}
    assert Served.from_parameters(told, "here").input == form
    del told["input"]  # an older server's
    assert Served.from_parameters(told, "here").input == RGB
