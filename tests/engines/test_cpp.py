"""The C++ library against Python's runtime, built with AddressSanitizer and UBSan throughout.

Everything runs through what a user gets: mrcfa-segment, the installed package, the public header.
It takes the ONNX Runtime library of the Python wheel, and headers of the system or of the folder
that `engines/cpp/fetch-headers build/headers` fills. TENSORRT_INCLUDE names folders of TensorRT's.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mrcfa import Stream, machine
from mrcfa.bundle import MANIFEST
from mrcfa.errors import MrcfaError

REPOSITORY = Path(__file__).parents[2]
CPP = REPOSITORY / "engines" / "cpp"
HEADERS = REPOSITORY / "build" / "headers" / "usr" / "include"
SANITIZERS = ["-O1", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
WARNINGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
TENSORRT_INCLUDES = [
    folder for folder in os.environ.get("TENSORRT_INCLUDE", "").split(os.pathsep) if folder
]
FRAMES, RESET = 40, 25
FUZZED = 100_000

Once = Callable[[str, Callable[[Path], object]], Path]
Segment = Callable[..., subprocess.CompletedProcess[bytes]]


def include_of(header: str) -> Path:
    """The folder of a header, as the compiler would find it; a missing one skips the test."""
    for folder in (HEADERS, Path("/usr/include"), Path("/usr/local/include")):
        for place in (folder, folder / "onnxruntime", folder / "onnxruntime/core/session"):
            if (place / header).is_file():
                return place
    what = "ONNX Runtime" if header.startswith("onnxruntime") else header.partition("/")[0]
    pytest.skip(f"C++: not run (no {what} headers)")


def run(*command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def compiled(target: Path, *words: Any) -> Path:
    run("c++", *WARNINGS, *SANITIZERS, "-I", CPP / "include", "-o", target, *words, "-pthread")
    return target


@pytest.fixture(scope="module")
def onnxruntime(once: Once) -> list[Any]:
    """The wheel's library as words for the linker, under the names that it and programs want."""
    wheel = find_spec("onnxruntime")
    assert wheel is not None
    (installed,) = wheel.submodule_search_locations or ()
    (library,) = Path(installed).glob("capi/libonnxruntime.so.*")

    def make(folder: Path) -> None:
        folder.mkdir()
        for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
            (folder / name).symlink_to(library)

    folder = once("onnxruntime", make)
    return [folder / "libonnxruntime.so", f"-Wl,-rpath,{folder}"]


@pytest.fixture(scope="module")
def build(once: Once, onnxruntime: list[Any]) -> Path:
    """The folder of everything that CMake builds."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"C++: not run (no {tool})")
    headers, json_headers = include_of("onnxruntime_c_api.h"), include_of("nlohmann/json.hpp")

    def make(folder: Path) -> None:
        run(
            *("cmake", "-S", CPP, "-B", folder, "-DMRCFA_FUZZ=ON", "-DCMAKE_BUILD_TYPE=None"),
            f"-DCMAKE_CXX_FLAGS={' '.join(SANITIZERS)}",
            f"-DONNXRuntime_INCLUDE_DIR={headers}",
            f"-DONNXRuntime_LIBRARY={onnxruntime[0]}",
            f"-Dnlohmann_json_ROOT={json_headers.parent}",
        )
        run("cmake", "--build", folder, "-j2")

    return once("cpp", make)


def objects(build: Path) -> list[Path]:
    """What the library is made of without its backends."""
    folder = build / "CMakeFiles"
    return [*folder.glob("mrcfa_bundle.dir/src/*.o"), folder / "mrcfa.dir/src/logits.cpp.o"]


def tool(build: Path) -> Path:
    return build / "CMakeFiles/mrcfa-segment.dir/tool/segment.cpp.o"


TENSORRT_SOURCES = [CPP / f"src/{name}.cpp" for name in ("stream", "tensorrt", "fitting")]


@pytest.fixture(scope="module")
def segment(build: Path) -> Segment:
    return runner_of(build / "mrcfa-segment")


def runner_of(program: Path) -> Segment:
    """`segment(bundle, "--raw", "160x96", frames=array)`; a sanitizer's word fails the test."""

    def segment(*words: Any, frames: np.ndarray | bytes = b"", **environment: str) -> Any:
        data = frames if isinstance(frames, bytes) else frames.tobytes()
        command = [str(word) for word in (program, *words)]
        done = subprocess.run(
            command, input=data, capture_output=True, env={**os.environ, **environment}
        )
        said = done.stderr.decode()
        assert "Sanitizer" not in said, said
        assert "runtime error" not in said, said
        return done

    return segment


FAKE = ("-I", CPP / "test/fake_gpu", '-DMRCFA_TENSORRT="tensorrt"')
"""Compiler words for a TensorRT and a CUDA that are made of the CPU."""


@pytest.fixture(scope="module")
def fake_library(build: Path, onnxruntime: list[Any], once: Once) -> list[Any]:
    """The library with the TensorRT backend on that fake GPU, as words for the linker."""
    headers = ("-I", CPP / "src", "-isystem", include_of("onnxruntime_cxx_api.h"))

    def make(folder: Path) -> None:
        folder.mkdir()
        for source in TENSORRT_SOURCES:
            compiled(folder / f"{source.stem}.o", "-c", *headers, *FAKE, source)

    folder = once("fake", make)
    return [*folder.glob("*.o"), *objects(build), *onnxruntime]


@pytest.fixture(scope="module")
def fake_gpu(build: Path, fake_library: list[Any], once: Once) -> Segment:
    """mrcfa-segment with that library."""
    return runner_of(once("segment", lambda path: compiled(path, tool(build), *fake_library)))


@pytest.fixture
def copy(bundle: Callable[..., Path], tmp_path: Path) -> Path:
    """A bundle that a test may damage with `write`."""
    return linked(bundle("b0"), tmp_path / "copy")


def linked(path: Path, target: Path) -> Path:
    return Path(shutil.copytree(path, target, copy_function=os.link))


def write(file: Path, content: str | bytes) -> None:
    """Into a new file, for the old one is shared with the bundle that it was linked from."""
    file.unlink()
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def edit(path: Path, **changes: Any) -> None:
    content = json.loads((path / MANIFEST).read_text())
    write(path / MANIFEST, json.dumps({**content, **changes}))


@pytest.fixture(scope="module")
def pythons_masks() -> Callable[[Path, str, np.ndarray], np.ndarray]:
    """`pythons_masks(bundle, "fp16", frames)`, with a reset; each is computed once."""
    made: dict[tuple[Path, str, int], np.ndarray] = {}

    def masks(path: Path, precision: str, frames: np.ndarray) -> np.ndarray:
        key = (path, precision, len(frames))
        if key not in made:
            stream = Stream(path, "onnxruntime:cpu", precision=precision, threads=2)
            parts = [[stream(frame) for frame in frames[:RESET]]]
            stream.reset()
            parts.append([stream(frame) for frame in frames[RESET:]])
            made[key] = np.stack([mask for part in parts for mask in part])
        return made[key]

    return masks


def masks_in(done: subprocess.CompletedProcess[bytes], frames: np.ndarray) -> np.ndarray:
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.uint8).reshape(frames.shape[:3])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_masks_are_pythons_bit_by_bit_over_40_frames_and_a_reset(
    precision, segment, bundle, clip, pythons_masks
):
    path, frames = bundle("b0"), clip(FRAMES, 96, 160)
    options = ("--raw", "160x96", "--precision", precision, "--threads", 2, "--reset-every", RESET)
    masks = masks_in(segment(path, *options, frames=frames), frames)
    assert len(np.unique(masks)) > 5
    assert np.array_equal(masks, pythons_masks(path, precision, frames))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_logits_become_pythons_masks(precision, segment, bundle, clip, pythons_masks):
    path, frames = bundle("b0", output="logits"), clip(4, 96, 160)
    done = segment(path, "--precision", precision, "--threads", 2, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, precision, frames))


def test_frames_of_a_camera_are_resized_in_the_graphs(segment, tailored, clip, pythons_masks):
    frames = clip(6, 108, 192)
    done = segment(tailored, "--threads", 2, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(tailored, "fp32", frames))


def with_engines(path: Path, **changes: Any) -> Path:
    """Engines for the fake GPU, which are ONNX files."""
    engine = {
        "flavour": "tensorrt",
        "tensorrt": "10.3.0",
        "compute_capabilities": [75],
        "plugin": None,
        "layers": None,
    }
    files = {
        "fp32": {"encoder": "encoder.onnx", "decoder": "decoder.onnx"},
        "fp16": {"encoder": "encoder.fp16.onnx", "decoder": "decoder.fp16.onnx"},
    }
    engines = [
        {**engine, "precision": precision, **parts, **changes} for precision, parts in files.items()
    ]
    edit(path, engines=engines)
    return path


def test_the_tensorrt_backend_swaps_its_state_and_replays_its_graphs(
    fake_gpu, bundle, copy, clip, pythons_masks
):
    frames = clip(FRAMES, 96, 160)
    done = fake_gpu(with_engines(copy), "--reset-every", RESET, frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(bundle("b0"), "fp16", frames))


@pytest.mark.parametrize(
    ("words", "environment"), [(["--no-graphs"], {}), ([], {"FAKE_GPU_NO_GRAPHS": "1"})]
)
def test_the_tensorrt_backend_works_without_graphs(
    words, environment, fake_gpu, bundle, copy, clip, pythons_masks
):
    frames = clip(6, 96, 160)
    done = fake_gpu(with_engines(copy), *words, frames=frames, **environment)
    assert np.array_equal(masks_in(done, frames), pythons_masks(bundle("b0"), "fp16", frames))


def test_the_tensorrt_backend_gives_masks_of_a_bundle_with_logits(
    fake_gpu, bundle, tmp_path, clip, pythons_masks
):
    path, frames = bundle("b0", output="logits"), clip(4, 96, 160)
    done = fake_gpu(with_engines(linked(path, tmp_path / "logits")), frames=frames)
    assert np.array_equal(masks_in(done, frames), pythons_masks(path, "fp16", frames))


@pytest.mark.parametrize(
    ("changes", "environment", "sentence"),
    [
        ({}, {"FAKE_GPU_ABSENT": "1"}, "no GPU can be used here: no CUDA-capable device"),
        (
            {"compute_capabilities": [86, 89]},
            {},
            "the engine tensorrt fp16 sm86+sm89 was built for sm_86, sm_89 and Fake RTX is sm_75; "
            "build one for it with: mrcfa build COPY --sm 75",
        ),
        (
            {"tensorrt": "10.13.2"},
            {},
            "the engine tensorrt fp16 sm75 was built with TensorRT 10.13.2 and this machine has "
            "10.3.0; build it again with: mrcfa build COPY, or install 10.13.2",
        ),
        (
            {"flavour": "rtx"},
            {},
            "the engine rtx fp16 sm75 needs TensorRT-RTX and this build of mrcfa has TensorRT; "
            "configure it with -DMRCFA_TENSORRT=rtx",
        ),
        (
            {"plugin": "mrcfa::SelectTokens 1"},
            {},
            "the engine tensorrt fp16 sm75 needs a plugin: the plugin mrcfa::SelectTokens 1 is not "
            "loaded: compile engines/plugin with CMake and name libmrcfa_plugin.so",
        ),
        (
            {"plugin": "mrcfa::SelectTokens 1"},
            {"MRCFA_PLUGIN_LIBRARY": "/nowhere/libmrcfa_plugin.so"},
            "the plugin library /nowhere/libmrcfa_plugin.so does not exist",
        ),
        (
            {"encoder": "weights.safetensors"},
            {},
            "tensorrt 10.3.0 on Fake RTX cannot load COPY/weights.safetensors, built with 10.3.0: "
            "the plan's version tag is wrong",
        ),
        ({"encoder": "decoder.onnx"}, {}, "the graphs have no tensor 'image'"),
        ({"decoder": "decoder.onnx"}, {}, "do not have the tensors that the manifest names"),
    ],
)
def test_an_engine_that_cannot_run_here_is_told_with_both_sides(
    changes, environment, sentence, fake_gpu, copy
):
    done = fake_gpu(with_engines(copy, **changes), "--backend", "tensorrt", **environment)
    assert done.returncode == 2
    assert sentence.replace("COPY", str(copy)) in done.stderr.decode()


def test_other_versions_of_the_same_major_load_a_version_compatible_engine(fake_gpu, copy):
    path = with_engines(copy, tensorrt="10.9.0", version_compatible=True)
    assert b"runs on tensorrt" in fake_gpu(path, "--info").stdout
    assert fake_gpu(with_engines(path, tensorrt="11.1.0", version_compatible=True)).returncode == 2


def test_a_plugin_library_is_loaded_for_engines_that_need_it(fake_gpu, copy, tmp_path):
    library = tmp_path / "libmrcfa_plugin.so"
    library.touch()
    path = with_engines(copy, plugin="mrcfa::SelectTokens 1")
    done = fake_gpu(path, "--info", "--plugin-library", library)
    assert "runs on tensorrt (tensorrt fp16 sm75, Fake RTX)" in done.stdout.decode()


def test_siblings_moves_and_refusals_work_through_the_header(build, bundle, tmp_path):
    library = (build / "libmrcfa.so", f"-Wl,-rpath,{build}")
    run(compiled(tmp_path / "api", CPP / "test/api.cpp", *library), bundle("b0"))


def test_siblings_device_memory_and_a_callers_stream_work_on_a_gpu(fake_library, copy, tmp_path):
    program = compiled(tmp_path / "api", *FAKE, CPP / "test/api.cpp", *fake_library)
    run(program, with_engines(copy))


def test_an_installed_library_is_found_by_cmake_and_by_pkg_config(build, bundle, tmp_path):
    prefix, tree = tmp_path / "prefix", tmp_path / "tree"
    run("cmake", "--install", build, "--prefix", prefix)
    run(
        *("cmake", "-S", CPP / "example", "-B", tree, f"-DCMAKE_PREFIX_PATH={prefix}"),
        f"-DCMAKE_CXX_FLAGS={' '.join(SANITIZERS)}",
    )
    run("cmake", "--build", tree)
    assert "frame 9: " in run(tree / "example", bundle("b0")).stdout
    shown = run(prefix / "bin/mrcfa-segment", bundle("b0"), "--info").stdout
    assert "frames 160x96 (width x height)\nruns on onnxruntime (CPU, fp32)" in shown
    if shutil.which("pkg-config"):
        (folder,) = prefix.glob("lib*/**/pkgconfig")
        found = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
        flags = run("pkg-config", "--cflags", "--libs", "mrcfa", env=found).stdout.split()
        compiled(tree / "plain", CPP / "example/main.cpp", *flags)


def listing(folder: Path, name: str) -> None:
    """The manifest lists a file of that name."""
    files = json.loads((folder / MANIFEST).read_text())["files"]
    edit(folder, files={**files, name: {"sha256": "0" * 64, "bytes": 1}})


def without(folder: Path, field: str) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    del content[field]
    write(folder / MANIFEST, json.dumps(content))


def describe(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    graphs = json.loads((folder / MANIFEST).read_text())["graphs"]
    change(graphs["fp32"]["decoder"])
    edit(folder, graphs=graphs)


def linked_away(folder: Path) -> None:
    (folder / "decoder.onnx").rename(folder.parent / "elsewhere.onnx")
    (folder / "decoder.onnx").symlink_to(folder.parent / "elsewhere.onnx")


def changed(file: Path) -> None:
    content = file.read_bytes()
    write(file, content[:-1] + bytes([content[-1] ^ 1]))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no manifest": lambda path: (path / MANIFEST).unlink(),
    "a newer format": lambda path: edit(path, format=99),
    "an older format": lambda path: edit(path, format=0),
    "a format of text": lambda path: edit(path, format="one's"),
    "a format of null": lambda path: edit(path, format=None),
    **{
        f"no {field}": lambda path, field=field: without(path, field)
        for field in ("format", "config", "frame", "graphs", "classes", "palette", "engines")
    },
    "a graph without a file": lambda path: describe(path, lambda graph: graph.pop("file")),
    "a file that is no text": lambda path: describe(path, lambda graph: graph.update(file=5)),
    "a file for CPUs that is no text": lambda path: describe(
        path, lambda graph: graph.update(cpu=5)
    ),
    "a path upwards": lambda path: listing(path, "../encoder.onnx"),
    "an absolute path": lambda path: listing(path, "/etc/passwd"),
    "the parent": lambda path: listing(path, ".."),
    "no name": lambda path: listing(path, ""),
    "a quoted path": lambda path: listing(path, "it's/\\x"),
    "a link to elsewhere": linked_away,
    "a file that is not listed": lambda path: edit(path, files={}),
    "a missing file": lambda path: (path / "decoder.onnx").unlink(),
    "a file cut short": lambda path: write(path / "encoder.onnx", b"onnx"),
    "a changed file": lambda path: changed(path / "decoder.onnx"),
    "a changed file for CPUs": lambda path: changed(path / "decoder.cpu.onnx"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bundle_meets_the_sentence_that_python_has_for_it(damage, segment, copy):
    DAMAGES[damage](copy)
    with pytest.raises(MrcfaError) as error:
        Stream(copy, "onnxruntime:cpu")
    done = segment(copy)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"mrcfa-segment: {error.value}\n"


def test_a_graph_that_is_no_graph_is_named(segment, copy):
    graphs = json.loads((copy / MANIFEST).read_text())["graphs"]
    graphs["fp32"]["encoder"]["file"] = "weights.safetensors"
    edit(copy, graphs=graphs)
    done = segment(copy)
    assert done.returncode == 2
    assert f"ONNX Runtime cannot load {copy / 'weights.safetensors'}: " in done.stderr.decode()


def test_graphs_that_are_not_of_the_manifests_size_are_refused(segment, copy, clip):
    edit(copy, frame=[64, 96])
    done = segment(copy, frames=clip(1, 64, 96))
    assert (done.returncode, done.stdout) == (2, b"")
    assert "invalid dimensions for input: image" in done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--raw", "96x160"], "mrcfa export --frame 160x96"),
        (["--raw", "96"], "'96' is no size; write it like 864x480"),
        (["--raw", "0x5"], "'0x5' is no size; write it like 864x480"),
        (["--raw", "9999999999x5"], "'9999999999x5' is no size; write it like 864x480"),
        (["--raw"], "--raw needs a value; see mrcfa-segment --help"),
        (["--threads", "-1"], "--threads is '-1'; it must be a whole number, 0 or more"),
        (["--as", "video"], "unknown style 'video'; choose one of mask, color"),
        (["--backend", "openvino"], "unknown backend 'openvino'; choose one of auto, tensorrt, "),
        (["--backend", "onnxruntime:npu"], "unknown provider 'npu'; choose one of cuda, cpu"),
        (["--backend", "onnxruntime:cuda"], "ONNX Runtime cannot use its CUDAExecutionProvider"),
        (["--backend", "tensorrt"], "this build of mrcfa has no TensorRT; configure it with -D"),
        (["--precision", "int8"], "has no int8 graphs, only fp16, fp32; export it with --prec"),
        (["--quiet"], "unknown argument '--quiet'; see mrcfa-segment --help"),
        ([], "standard input has no frames"),
    ],
)
def test_bad_words_end_in_one_sentence_and_code_2(words, sentence, segment, bundle):
    done = segment(bundle("b0"), *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().count("\n") == 1
    assert sentence in done.stderr.decode()


def test_a_pipe_that_breaks_off_keeps_the_frames_that_came(segment, bundle, clip):
    done = segment(bundle("b0"), frames=clip(2, 96, 160).tobytes()[:-1])
    assert (done.returncode, len(done.stdout)) == (1, 96 * 160)
    lost = "the last frame on standard input was lost: 46079 of 46080 bytes came"
    assert lost in done.stderr.decode()


def test_colours_are_the_palettes(segment, bundle, clip):
    frames, stream = clip(1, 96, 160), Stream(bundle("b0"), "onnxruntime:cpu", threads=2)
    done = segment(bundle("b0"), "--as", "color", "--threads", 2, frames=frames)
    painted = np.frombuffer(done.stdout, np.uint8).reshape(96, 160, 3)
    assert np.array_equal(painted, stream.palette[stream(frames[0])])


def small_manifest(bundle: Path) -> dict[str, Any]:
    """All that the reader looks at and little of each, so that 100,000 of them are read in time."""
    content = json.loads((bundle / MANIFEST).read_text())
    kept = {name: content[name] for name in ("format", "config", "frame", "output", "weights")}
    graphs = content["graphs"]["fp32"]
    for part in graphs.values():
        for end in ("inputs", "outputs"):
            wanted = ("image", "entry", "memory", "mask")
            part[end] = [spec for spec in part[end] if spec["name"] in wanted]
        part.update(wide=[], file="file", cpu="file")
    engine = {
        "flavour": "rtx",
        "tensorrt": "1.7",
        "compute_capabilities": [75],
        "precision": "fp16",
        "plugin": "p",
        "encoder": "file",
        "decoder": "file",
        "version_compatible": False,
    }
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of no bytes
    return {
        **kept,
        "graphs": {"fp32": graphs},
        "classes": content["classes"][:2],
        "palette": content["palette"][:2],
        "files": {"file": {"sha256": digest, "bytes": 0}},
        "engines": [engine],
    }


WRONG = (
    None, True, 0, -1, 2, 0.5, 1e308, 2**32 + 1, 2**64 - 1, -(2**63), 10**30, "", "..", "../file",
    "/etc/passwd", "a\0b", "\n\x1b[31m'\"", "x" * 5000, [], {}, [[]], [1, 2, 3], [-5, 7], {"": {}},
    {"..": {"sha256": "", "bytes": 0}},
)  # fmt: skip


def each_field_wrong(content: Any, whole: Callable[[Any], Any]) -> list[Any]:
    """The whole document with each of its values replaced by each wrong one, and each left out."""
    made = [whole(wrong) for wrong in WRONG]
    if not isinstance(content, dict | list):
        return made
    for key in content if isinstance(content, dict) else range(len(content)):
        rest = content.copy()
        value = rest.pop(key)
        made.append(whole(rest))

        def around(inner: Any, key: Any = key) -> Any:
            changed = content.copy()
            changed[key] = inner
            return whole(changed)

        made += each_field_wrong(value, around)
    return made


def test_the_manifests_reader_survives_100000_broken_manifests(build, bundle, tmp_path):
    (tmp_path / "file").touch()
    valid = small_manifest(bundle("b0"))
    text = json.dumps(valid, separators=(",", ":"))
    deep = "[" * 100_000 + "]" * 100_000
    lines = [text, *(json.dumps(wrong) for wrong in each_field_wrong(valid, lambda whole: whole))]
    lines += [deep, deep[:100_000], text[:-1] + f', "deep": {deep}, "more": 1}}', '{"a":' * 50_000]
    command = [str(build / "mrcfa-fuzz"), str(tmp_path), str(FUZZED // 2)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen([*command, seed], text=True, **pipes) for seed in "01"]
    total = 0
    for process in running:
        said, complaints = process.communicate("\n".join(lines) + "\n")
        assert process.returncode == 0, complaints
        read, refused = (int(word) for word in said.split() if word.isdigit())
        assert refused > read > 100
        total += read + refused
    assert total >= FUZZED


CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


@pytest.mark.parametrize("include", TENSORRT_INCLUDES or [None])
def test_the_tensorrt_backend_compiles_without_a_warning(include):
    run("c++", *WARNINGS, "-fsyntax-only", *tensorrt_words(include), CPP / "src/tensorrt.cpp")


def test_without_a_gpu_the_real_libraries_end_in_one_sentence(build, copy, tmp_path):
    """NVIDIA's own TensorRT-RTX and CUDA, linked and started."""
    if machine.gpus():
        pytest.skip("not run: there is a GPU")
    words = tensorrt_words(TENSORRT_INCLUDES[-1] if TENSORRT_INCLUDES else None, "rtx")
    wheel, cudart = find_spec("tensorrt_rtx_libs"), CUDA / "lib64/libcudart.so"
    if wheel is None or not cudart.exists():
        pytest.skip("not run: no TensorRT-RTX or no CUDA runtime to link")
    (folder,) = wheel.submodule_search_locations or ()
    (library,) = Path(folder).glob("libtensorrt_rtx.so.*")
    program = compiled(
        tmp_path / "segment",
        *(*words, *TENSORRT_SOURCES, *objects(build), tool(build)),
        *(library, cudart, f"-Wl,-rpath,{folder}", f"-Wl,-rpath,{cudart.parent}"),
    )
    path = with_engines(copy, flavour="rtx")
    done = subprocess.run([program, path, "--backend", "tensorrt"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("mrcfa-segment: no GPU can be used here: ")
    assert done.stderr.endswith("; choose onnxruntime:cpu to run without one\n")


def tensorrt_words(include: str | None, flavour: str = "tensorrt") -> list[Any]:
    """Compiler words for NVIDIA's headers, which are no system's package."""
    if include is None:
        pytest.skip("not run: TENSORRT_INCLUDE is not set")
    if not (CUDA / "include/cuda_runtime_api.h").is_file():
        pytest.skip("not run: no CUDA headers")
    system = ("-isystem", include, "-isystem", CUDA / "include")
    return ["-I", CPP / "include", "-I", CPP / "src", *system, f'-DMRCFA_TENSORRT="{flavour}"']
