"""The plugin's CUDA source against the reference model's STM: on the CPU, and on a GPU if any."""

import ctypes
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mrcfa.model.affinity import TOP_QUERIES, importance, select_tokens

SOURCE = Path(__file__).parents[2] / "engines" / "plugin" / "select_tokens_c.cpp"
GXX = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-ffp-contract=off"]
NVCC = ["nvcc", "-std=c++17", "-x=cu", "-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-fPIC"]

ONE_THREAD = (1, 1, 1)
PLUGINS = pytest.param((32, 8, 1024), marks=pytest.mark.thorough)
BLOCK_SIZES = [ONE_THREAD, (7, 3, 33), PLUGINS]
"""Lanes and slices of the block that scores, threads of the block that selects; the last as in the
plugin, which takes an OS thread for each of its 1,024."""


class Kernels:
    """The compiled source. Calling it gives importance (R, K) and selected tokens (R, S)."""

    def __init__(self, library: Path, device: str) -> None:
        self.library = ctypes.CDLL(str(library))
        self.device = device

    def __call__(
        self,
        affinity: Tensor,
        keep: int,
        grid: tuple[int, int] | None = None,
        factor: int = 1,
        top: int = TOP_QUERIES,
        blocks: tuple[int, int, int] = ONE_THREAD,
    ) -> tuple[Tensor, Tensor]:
        affinity = affinity.contiguous().to(self.device)
        references, queries, keys = affinity.shape
        height, width = grid or (1, keys)
        scores = torch.full((references, keys), -1.0, device=self.device)
        selected = torch.full((references, keep), -1, dtype=torch.int32, device=self.device)
        run = {
            torch.float32: self.library.mrcfa_select_tokens_f32,
            torch.float16: self.library.mrcfa_select_tokens_f16,
        }[affinity.dtype]
        status = run(
            ctypes.c_void_p(affinity.data_ptr()),
            references,
            queries,
            (ctypes.c_int32 * 5)(keep, top, height, width, factor),
            ctypes.c_void_p(scores.data_ptr()),
            ctypes.c_void_p(selected.data_ptr()),
            (ctypes.c_int * 3)(*blocks),
        )
        assert status == 0
        return scores.cpu(), selected.cpu().long()


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    library = tmp_path_factory.mktemp("kernels") / "libselect_tokens.so"
    if request.param == "cpu":
        compile_source([*GXX, "-shared", "-fPIC"], library)
    elif torch.cuda.is_available():
        compile_source([*NVCC, "-shared", "-arch=native"], library)
    else:
        pytest.skip("not run: no GPU, or a torch without CUDA")
    return Kernels(library, request.param)


def in_wheels(program: str) -> str | None:
    """A program of CUDA's pip wheels; `nvidia-cuda-nvcc nvidia-cuda-cccl` have nvcc and ptxas."""
    places = Path(sysconfig.get_path("purelib")).glob(f"nvidia/cu*/bin/{program}")
    return next((str(place) for place in sorted(places)), None)


def compile_source(command: list[str], output: Path, source: Path = SOURCE) -> str:
    """Compile a source; returns the compiler's output."""
    compiler = shutil.which(command[0]) or in_wheels(command[0])
    if compiler is None:
        pytest.skip(f"not run: no {command[0]}")
    command = [compiler, *command[1:], str(source), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def enlarged(scores: Tensor, grid: tuple[int, int], factor: int) -> Tensor:
    """(R, K) -> (R, K·factor²), as the reference model enlarges an importance map."""
    if factor == 1:
        return scores
    maps = scores.unflatten(1, grid).unsqueeze(1)
    size = (grid[0] * factor, grid[1] * factor)
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=False).flatten(1)


def first_of_the_largest(scores: Tensor, keep: int) -> Tensor:
    """`select_tokens`, but of equal scores the lower index wins, which torch.topk leaves open."""
    order = scores.sort(dim=1, descending=True, stable=True).indices
    return order[:, :keep].sort(dim=1).values


def random_affinity(rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


@pytest.mark.parametrize("blocks", [ONE_THREAD, (7, 3, 33), (32, 8, 1024)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_distinct_scores_select_what_the_reference_model_selects(
    kernels: Kernels, dtype: torch.dtype, blocks: tuple[int, int, int]
) -> None:
    affinity = random_affinity(np.random.default_rng(0), (3, 40, 15 * 27)).to(dtype)
    scores, selected = kernels(affinity, keep=202, grid=(15, 27), blocks=blocks)
    reference = importance(affinity.float())
    torch.testing.assert_close(scores, reference)
    assert torch.equal(selected, select_tokens(reference, 202))


def random_cases(count: int) -> Iterator[tuple[Tensor, int, tuple[int, int], int, int]]:
    """Small whole numbers, so that every sum and blend is exact and ties abound, with NaN and ±inf
    now and then: affinity, keep, grid, factor, top."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        grid = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
        factor, top = int(rng.integers(1, 3)), int(rng.integers(1, 9))
        shape = (int(rng.integers(1, 4)), int(rng.integers(1, 12)), grid[0] * grid[1])
        values = rng.integers(-3, 4, shape).astype(np.float32)
        if rng.random() < 0.5:
            special = rng.random(shape) < 0.05
            values[special] = rng.choice([np.nan, np.inf, -np.inf, -0.0], special.sum())
        affinity = torch.from_numpy(values).to([torch.float32, torch.float16][rng.integers(2)])
        yield affinity, int(rng.integers(1, shape[2] * factor**2 + 1)), grid, factor, top


@pytest.mark.parametrize(
    ("blocks", "count"),
    [
        (ONE_THREAD, 1000),
        ((7, 3, 33), 20),
        pytest.param((32, 8, 1024), 5, marks=pytest.mark.thorough),
    ],
)
def test_random_cases_match_torch_bit_by_bit(
    kernels: Kernels, blocks: tuple[int, int, int], count: int
) -> None:
    for affinity, keep, grid, factor, top in random_cases(count):
        scores, selected = kernels(affinity, keep, grid, factor, top, blocks)
        values = affinity.float().topk(min(top, affinity.shape[1]), dim=1).values
        torch.testing.assert_close(scores, values.sum(dim=1), rtol=0, atol=0, equal_nan=True)
        expected = first_of_the_largest(enlarged(scores, grid, factor), keep)
        assert torch.equal(selected, expected), (affinity.shape, keep, grid, factor, top)


@pytest.mark.parametrize("grid", [(16, 32), (1, 9), (9, 1), (1, 1)])
def test_enlarged_maps_keep_the_tokens_that_interpolate_ranks_highest(
    kernels: Kernels, grid: tuple[int, int]
) -> None:
    rng = np.random.default_rng(1)
    affinity = random_affinity(rng, (2, 30, grid[0] * grid[1]))
    keep = 2 * grid[0] * grid[1]
    _, selected = kernels(affinity, keep, grid, factor=2)
    scores = enlarged(importance(affinity), grid, factor=2)
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter(1, selected, True)
    assert (kept.sum(dim=1) == keep).all()
    for mask, row in zip(kept, scores, strict=True):
        # Torch may fuse the blend's steps, so that scores as good as equal can change places.
        assert row[mask].min() >= row[~mask].max() - 1e-5


@pytest.mark.parametrize("blocks", BLOCK_SIZES)
def test_equal_scores_keep_the_lower_indices(
    kernels: Kernels, blocks: tuple[int, int, int]
) -> None:
    _, selected = kernels(torch.ones(2, 6, 100), keep=37, blocks=blocks)
    assert torch.equal(selected, torch.arange(37).expand(2, -1))


def test_a_zero_ties_with_a_negative_zero(kernels: Kernels) -> None:
    _, selected = kernels(torch.tensor([[[-0.0, 0.0, -0.0, 0.0]]]), keep=2)
    assert selected.tolist() == [[0, 1]]


def test_nan_counts_as_the_largest_value(kernels: Kernels) -> None:
    affinity = torch.zeros(1, 7, 6)
    affinity[0, 3, 4] = float("nan")
    affinity[0, 0, 1] = -float("nan")
    affinity[0, :, 2] = float("inf")
    scores, selected = kernels(affinity, keep=2)
    assert scores.isnan().tolist() == [[False, True, False, False, True, False]]
    assert selected.tolist() == [[1, 4]]


def test_minus_infinity_is_kept_only_for_want_of_better(kernels: Kernels) -> None:
    affinity = torch.tensor([[[-torch.inf, -3e38, -torch.inf, -1.0]]])
    assert kernels(affinity, keep=2)[1].tolist() == [[1, 3]]
    assert kernels(affinity, keep=3)[1].tolist() == [[0, 1, 3]]


@pytest.mark.parametrize("keep", [1, 405])
def test_one_token_or_all_can_be_kept(kernels: Kernels, keep: int) -> None:
    affinity = random_affinity(np.random.default_rng(2), (3, 20, 405))
    _, selected = kernels(affinity, keep)
    assert torch.equal(selected, select_tokens(importance(affinity), keep))


def test_a_single_key_is_kept(kernels: Kernels) -> None:
    assert kernels(torch.ones(2, 3, 1), keep=1)[1].tolist() == [[0], [0]]


@pytest.mark.parametrize("queries", [1, 3])
def test_fewer_queries_than_top_are_all_summed(kernels: Kernels, queries: int) -> None:
    affinity = random_affinity(np.random.default_rng(3), (2, queries, 50))
    scores, selected = kernels(affinity, keep=20)
    torch.testing.assert_close(scores, affinity.sum(dim=1))
    assert torch.equal(selected, select_tokens(importance(affinity), 20))


@pytest.mark.parametrize("blocks", BLOCK_SIZES)
def test_more_tokens_than_tensorrt_can_sort_are_selected(
    kernels: Kernels, blocks: tuple[int, int, int]
) -> None:
    affinity = random_affinity(np.random.default_rng(4), (2, 12, 8192))
    scores, selected = kernels(affinity, keep=4096, grid=(64, 128), blocks=blocks)
    assert torch.equal(selected, first_of_the_largest(scores, 4096))


@pytest.mark.parametrize("blocks", BLOCK_SIZES)
def test_every_half_is_read_and_ranked_as_torch_does(
    kernels: Kernels, blocks: tuple[int, int, int]
) -> None:
    bits = np.random.default_rng(5).permutation(65536).astype(np.uint16)
    affinity = torch.from_numpy(bits.view(np.float16))[None, None]
    scores, selected = kernels(affinity, keep=40000, grid=(256, 256), blocks=blocks)
    reference = affinity[:, 0].float()
    torch.testing.assert_close(scores, reference, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(selected, first_of_the_largest(reference, 40000))


THOROUGH_SMS = [pytest.param(sm, marks=pytest.mark.thorough) for sm in (80, 86, 87, 89, 120)]


@pytest.mark.parametrize("sm", [75, *THOROUGH_SMS])
def test_kernels_stay_in_registers_and_a_little_shared_memory(sm: int, tmp_path: Path) -> None:
    """Bounds on what ptxas reports. A block of 1,024 threads may use 64 registers a thread."""
    printed = compile_source(
        [*NVCC, "-cubin", f"-arch=sm_{sm}", "-Xptxas=-v"], tmp_path / "kernels.cubin"
    )
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", printed)]
    shared = [int(number) for number in re.findall(r"(\d+) bytes smem", printed)]
    spills = {int(number) for number in re.findall(r"(\d+) bytes spill", printed)}
    assert len(registers) == 3  # scoring for FP32 and for FP16, and the selection
    assert max(registers) <= 64
    assert 0 < max(shared) <= 10 * 1024
    assert spills == {0}


RACE = """
#include <random>
#include <vector>
#include "select_tokens.cuh"

int main() {
    const mrcfa::Attributes attributes{20, 5, 6, 7, 2};
    const mrcfa::BlockSizes sizes{5, 3, 16};
    const int references = 2, queries = 19;
    std::mt19937 random(0);
    std::vector<float> affinity(references * queries * attributes.keys());
    for (float& value : affinity) value = static_cast<float>(random() % 9);
    std::vector<float> scores(references * attributes.keys());
    std::vector<int32_t> selected(references * attributes.keep);
    return mrcfa::selectTokens(affinity.data(), references, queries, attributes, scores.data(),
                               selected.data(), nullptr, sizes);
}
"""
BARRIER = "__syncthreads();"
BARRIERS = (SOURCE.parent / "select_tokens.cuh").read_text().count(BARRIER)


@pytest.mark.parametrize(
    "removed",
    [None, 0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, BARRIERS))],
)
def test_threads_race_only_where_a_barrier_is_taken_out(removed, tmp_path: Path) -> None:
    """ThreadSanitizer watches the kernels with one OS thread for each CUDA thread."""
    parts = (SOURCE.parent / "select_tokens.cuh").read_text().split(BARRIER)
    if removed is not None:
        parts[removed : removed + 2] = [parts[removed] + parts[removed + 1]]
    (tmp_path / "select_tokens.cuh").write_text(BARRIER.join(parts))
    (tmp_path / "race.cpp").write_text(RACE)
    program = tmp_path / "race"
    compile_source(
        [*GXX, "-O1", "-fsanitize=thread", f"-I{SOURCE.parent}"], program, tmp_path / "race.cpp"
    )
    done = subprocess.run([program], capture_output=True, text=True)
    assert ("data race" in done.stderr) == (removed is not None), done.stderr[-2000:]
    assert done.returncode == (0 if removed is None else 66)
