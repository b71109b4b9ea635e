// The part of CUDA that select_tokens.cuh uses, for a plain C++17 compiler without a GPU.
//
// The threads of a block are threads of the operating system that wait at a barrier; blocks run one
// after another. Compile with -pthread, and with -ffp-contract=off: steps that the GPU rounds
// separately must not be fused.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static  // Only one block runs at a time, so it may use the static variable.
#define __launch_bounds__(threads)

using std::max;
using std::min;

struct dim3 {
    unsigned x, y;
    explicit dim3(unsigned x_ = 1, unsigned y_ = 1) : x(x_), y(y_) {}
};

inline thread_local dim3 threadIdx;
inline thread_local dim3 blockIdx;
inline dim3 blockDim;
inline pthread_barrier_t blockBarriers[2];
inline thread_local unsigned barriersPassed;

/// Two barriers in turn: ThreadSanitizer would take a thread that leaves a barrier to have waited
/// for one that already enters the same barrier again, and so would miss races.
inline void __syncthreads() { pthread_barrier_wait(&blockBarriers[barriersPassed++ % 2]); }

inline int atomicAdd(int* address, int value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }

struct __half {
    uint16_t bits;
};

inline float __half2float(__half value) {
    const int exponent = value.bits >> 10 & 31;
    const int fraction = value.bits & 1023;
    float magnitude = fraction ? NAN : INFINITY;
    if (exponent == 0) magnitude = std::ldexp(static_cast<float>(fraction), -24);
    if (exponent > 0 && exponent < 31) {
        magnitude = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    }
    return value.bits & 0x8000 ? -magnitude : magnitude;
}

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess };

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), unsigned blocks, dim3 threads, cudaStream_t,
                   Arguments... arguments) {
    const unsigned count = threads.x * threads.y;
    blockDim = threads;
    for (pthread_barrier_t& barrier : blockBarriers) pthread_barrier_init(&barrier, nullptr, count);
    const auto run = [=](unsigned thread) {
        barriersPassed = 0;
        threadIdx = dim3(thread % threads.x, thread / threads.x);
        for (unsigned block = 0; block < blocks; ++block) {
            blockIdx = dim3(block);
            kernel(arguments...);
            __syncthreads();  // No thread enters the next block while this block's memory is in use.
        }
    };
    std::vector<std::thread> others;
    for (unsigned thread = 1; thread < count; ++thread) others.emplace_back(run, thread);
    run(0);
    for (std::thread& other : others) other.join();
    for (pthread_barrier_t& barrier : blockBarriers) pthread_barrier_destroy(&barrier);
    return cudaSuccess;
}
