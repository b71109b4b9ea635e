// SelectTokens for a caller without TensorRT; the tests load it with ctypes.
//
// Compiled with a C++ compiler, the functions run on the CPU. Compiled with `nvcc -x cu`, they run
// on the GPU, take device pointers, and return before the default stream has finished. They return
// 0 or a cudaError_t.
#include "select_tokens.cuh"

extern "C" int mrcfa_select_tokens_f32(const float* affinity, int references, int queries,
                                       const mrcfa::Attributes* attributes, float* importance,
                                       int32_t* selected, const mrcfa::BlockSizes* sizes) {
    return mrcfa::selectTokens(affinity, references, queries, *attributes, importance, selected,
                               nullptr, *sizes);
}

extern "C" int mrcfa_select_tokens_f16(const uint16_t* affinity, int references, int queries,
                                       const mrcfa::Attributes* attributes, float* importance,
                                       int32_t* selected, const mrcfa::BlockSizes* sizes) {
    return mrcfa::selectTokens(reinterpret_cast<const __half*>(affinity), references, queries,
                               *attributes, importance, selected, nullptr, *sizes);
}
