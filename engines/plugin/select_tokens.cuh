// SelectTokens: affinities [references, queries, keys] -> the indices of the tokens to keep.
//
// There are two kernels. `sumTopAffinities` scores every key token. `keepMostImportant`, one block
// per reference, finds the score of the last kept token by radix selection and writes the kept
// tokens in ascending order. The tokens need not fit into shared memory, and the result does not
// depend on the block size: one thread per block computes the same bits as a thousand. A CPU does
// too, through cpu_shim.hpp; the tests run this source in that way.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "cpu_shim.hpp"
#endif

namespace mrcfa {

constexpr int kMaxTop = 8;            // A thread holds the largest affinities in registers.
constexpr int kMaxTokens = 1 << 30;   // Token counts and block strides stay within an int.
constexpr int kMaxLanes = 32;         // Block of sumTopAffinities: neighbouring keys ...
constexpr int kMaxSlices = 8;         // ... times shares of the queries.
constexpr int kLoads = 4;             // Affinities that a thread reads before it ranks them.
constexpr int kMaxSelectors = 1024;   // Block of keepMostImportant.
constexpr int kDigitBits = 8;         // Radix selection finds the threshold digit by digit.
constexpr int kBins = 1 << kDigitBits;

/// The operator's attributes, named as in the ONNX node and in the plugin's fields.
struct Attributes {
    int32_t keep;    // Tokens to keep, per reference.
    int32_t top;     // A key token's importance is the sum of this many largest affinities.
    int32_t height;  // Grid of the key tokens, row by row.
    int32_t width;
    int32_t factor;  // 2 doubles the importance map in both directions before the selection.

    __host__ __device__ int keys() const { return height * width; }
    __host__ __device__ int tokens() const { return keys() * factor * factor; }
};

struct BlockSizes {
    int lanes = kMaxLanes;
    int slices = kMaxSlices;
    int selectors = kMaxSelectors;
};

/// Bytes that `selectTokens` needs as workspace: the importance of every key token.
inline size_t workspaceBytes(int references, const Attributes& attributes) {
    return sizeof(float) * references * attributes.keys();
}

/// A number, never 0, that orders floats as torch.topk does: NaN is the largest.
///
/// -0 ranks below +0. That changes nothing: their sums are equal, and no importance is ever -0,
/// because every sum starts from +0.
__device__ inline uint32_t rankOf(float value) {
    if (value != value) return 0xFFFFFFFFu;
    const uint32_t bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// The inverse of `rankOf`.
__device__ inline float valueOf(uint32_t rank) {
    return __uint_as_float(rank & 0x80000000u ? rank ^ 0x80000000u : ~rank);
}

__device__ inline float toFloat(float value) { return value; }
__device__ inline float toFloat(__half value) { return __half2float(value); }

/// The largest ranks seen so far, in descending order; 0 marks an empty place.
struct TopRanks {
    uint32_t ranks[kMaxTop] = {};

    __device__ void insert(uint32_t rank) {
        if (rank <= ranks[kMaxTop - 1]) return;
        for (int place = 0; place < kMaxTop; ++place) {
            const uint32_t smaller = min(ranks[place], rank);
            ranks[place] = max(ranks[place], rank);
            rank = smaller;
        }
    }

    __device__ float sum(int count) const {
        float total = 0.0f;
        for (int place = 0; place < kMaxTop; ++place) {
            if (place < count) total += valueOf(ranks[place]);
        }
        return total;
    }
};

/// Scores every key token of every reference: [references, queries, keys] -> [references, keys].
///
/// A column is one key token of one reference. The lanes of a block read neighbouring columns. The
/// slices divide the queries among themselves, and slice 0 merges their results.
template <typename T>
__global__ void __launch_bounds__(kMaxLanes * kMaxSlices)
    sumTopAffinities(const T* affinity, int columns, int queries, int keys, int top,
                     float* scores) {
    __shared__ uint32_t found[kMaxSlices][kMaxTop][kMaxLanes];
    const int lane = threadIdx.x;
    const int slice = threadIdx.y;
    const int column = static_cast<int>(blockIdx.x * blockDim.x) + lane;
    TopRanks best;

    if (column < columns) {
        const size_t reference = column / keys;
        const T* affinities = affinity + reference * queries * keys + column % keys;
        const int slices = static_cast<int>(blockDim.y);
        const auto rank = [=](int query) {
            return rankOf(toFloat(affinities[static_cast<size_t>(query) * keys]));
        };
        int query = slice;
        for (; query + (kLoads - 1) * slices < queries; query += kLoads * slices) {
            uint32_t ranks[kLoads];  // Loads that do not wait for each other.
            for (int load = 0; load < kLoads; ++load) ranks[load] = rank(query + load * slices);
            for (int load = 0; load < kLoads; ++load) best.insert(ranks[load]);
        }
        for (; query < queries; query += slices) best.insert(rank(query));
    }
    for (int place = 0; place < kMaxTop; ++place) found[slice][place][lane] = best.ranks[place];
    __syncthreads();

    if (slice == 0 && column < columns) {
        for (int other = 1; other < static_cast<int>(blockDim.y); ++other) {
            for (int place = 0; place < kMaxTop; ++place) best.insert(found[other][place][lane]);
        }
        scores[column] = best.sum(min(top, queries));
    }
}

/// Two neighbours along one axis of the key grid and the share of the second.
struct Neighbours {
    int first;
    int second;
    float share;
};

/// Neighbours of a token of the enlarged grid: half-pixel centres, clamped at the edges. The
/// arithmetic is exact, because `factor` is 1 or 2.
__device__ inline Neighbours neighboursOf(int position, int factor, int size) {
    const float source = max((position + 0.5f) / factor - 0.5f, 0.0f);
    const int first = static_cast<int>(source);
    return {first, min(first + 1, size - 1), source - first};
}

/// Linear interpolation with every step rounded: no compiler may fuse the steps, so CPU and GPU
/// agree to the last bit.
__device__ inline float mix(float first, float second, float share) {
    return __fadd_rn(__fmul_rn(1.0f - share, first), __fmul_rn(share, second));
}

/// The importance of one reference's tokens; the enlarged map is computed on the fly.
struct ImportanceMap {
    const float* scores;
    Attributes grid;

    __device__ uint32_t rank(int token) const {
        if (grid.factor == 1) return rankOf(scores[token]);
        const int columns = grid.width * grid.factor;
        const Neighbours y = neighboursOf(token / columns, grid.factor, grid.height);
        const Neighbours x = neighboursOf(token % columns, grid.factor, grid.width);
        const float* upper = scores + y.first * grid.width;
        const float* lower = scores + y.second * grid.width;
        return rankOf(mix(mix(upper[x.first], upper[x.second], x.share),
                          mix(lower[x.first], lower[x.second], x.share), y.share));
    }
};

/// The rank of the last token kept, and how many tokens of exactly this rank are kept.
struct Cutoff {
    uint32_t rank;
    int ties;
};

/// Radix selection. Each pass looks at the tokens that have the digits found so far, counts them by
/// their next digit, and picks the digit of the last kept token. Uses the whole block.
__device__ inline Cutoff findCutoff(const ImportanceMap& map) {
    __shared__ int histogram[kBins];
    __shared__ Cutoff cutoff;
    const int thread = threadIdx.x;
    const int threads = blockDim.x;
    if (thread == 0) cutoff = {0u, map.grid.keep};

    uint32_t settled = 0u;  // Mask of the digits found so far.
    for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
        for (int bin = thread; bin < kBins; bin += threads) histogram[bin] = 0;
        __syncthreads();

        const Cutoff known = cutoff;
        for (int token = thread; token < map.grid.tokens(); token += threads) {
            const uint32_t rank = map.rank(token);
            const uint32_t digit = rank >> shift & (kBins - 1);
            if ((rank & settled) == known.rank) atomicAdd(&histogram[digit], 1);
        }
        __syncthreads();

        for (int bin = thread; bin < kBins; bin += threads) {
            int above = 0;
            for (int higher = bin + 1; higher < kBins; ++higher) above += histogram[higher];
            if (above < known.ties && known.ties <= above + histogram[bin]) {
                cutoff = {known.rank | static_cast<uint32_t>(bin) << shift, known.ties - above};
            }
        }
        settled |= static_cast<uint32_t>(kBins - 1) << shift;
        __syncthreads();
    }
    return cutoff;
}

/// Number of tokens that rank above the cutoff, and of tokens with the cutoff's rank.
struct Tally {
    int above;
    int level;
};

/// The sum of the tallies of all threads before this one. Uses the whole block.
__device__ inline Tally tallyBefore(Tally own) {
    __shared__ Tally sums[kMaxSelectors];
    const int thread = threadIdx.x;
    const int threads = blockDim.x;
    Tally sum = own;
    sums[thread] = sum;
    __syncthreads();
    for (int distance = 1; distance < threads; distance *= 2) {
        if (thread >= distance) {
            const Tally earlier = sums[thread - distance];
            sum = {sum.above + earlier.above, sum.level + earlier.level};
        }
        __syncthreads();
        sums[thread] = sum;
        __syncthreads();
    }
    return {sum.above - own.above, sum.level - own.level};
}

/// Writes the kept tokens in ascending order; of tokens with the cutoff's rank, the first ones.
///
/// A thread owns consecutive tokens, so the tally of all threads before it is its output position.
__device__ inline void writeKept(const ImportanceMap& map, const Cutoff& cutoff,
                                 int32_t* selected) {
    const int tokens = map.grid.tokens();
    const int threads = blockDim.x;
    const int share = (tokens + threads - 1) / threads;
    const int begin = min(static_cast<int>(threadIdx.x) * share, tokens);
    const int end = min(begin + share, tokens);

    Tally own = {0, 0};
    for (int token = begin; token < end; ++token) {
        const uint32_t rank = map.rank(token);
        own.above += rank > cutoff.rank;
        own.level += rank == cutoff.rank;
    }
    Tally before = tallyBefore(own);
    for (int token = begin; token < end; ++token) {
        const uint32_t rank = map.rank(token);
        const bool above = rank > cutoff.rank;
        const bool level = rank == cutoff.rank;
        if (above || (level && before.level < cutoff.ties)) {
            selected[before.above + min(before.level, cutoff.ties)] = token;
        }
        before.above += above;
        before.level += level;
    }
}

/// [references, keys] -> [references, keep]; one block per reference.
static __global__ void __launch_bounds__(kMaxSelectors)
    keepMostImportant(const float* scores, Attributes attributes, int32_t* selected) {
    const size_t reference = blockIdx.x;
    const ImportanceMap map = {scores + reference * attributes.keys(), attributes};
    const Cutoff cutoff = findCutoff(map);
    writeKept(map, cutoff, selected + reference * attributes.keep);
}

#ifdef __CUDACC__
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), unsigned blocks, dim3 threads,
                   cudaStream_t stream, Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = threads;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}
#endif

/// Enqueues the selection. `workspace` holds `workspaceBytes`; `selected` is [references, keep].
template <typename T>
cudaError_t selectTokens(const T* affinity, int references, int queries,
                         const Attributes& attributes, void* workspace, int32_t* selected,
                         cudaStream_t stream, const BlockSizes& sizes = {}) {
    float* scores = static_cast<float*>(workspace);
    const int columns = references * attributes.keys();
    const cudaError_t status =
        launch(sumTopAffinities<T>, (columns + sizes.lanes - 1) / sizes.lanes,
               dim3(sizes.lanes, sizes.slices), stream, affinity, columns, queries,
               attributes.keys(), attributes.top, scores);
    if (status != cudaSuccess) return status;
    return launch(keepMostImportant, references, dim3(sizes.selectors), stream,
                  static_cast<const float*>(scores), attributes, selected);
}

}  // namespace mrcfa
