// SelectTokens for a caller without TensorRT; the tests load it with ctypes.
//
// A C++ compiler makes it run on the CPU. `nvcc -x cu` makes the same functions run on the GPU,
// then with device pointers and asynchronously on the default stream. They return 0 or a
// cudaError_t.
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
