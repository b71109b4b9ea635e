// The TensorRT plugin SelectTokens, version 1, namespace mrcfa (IPluginV3; TensorRT 10.3 or later).
//
// Load it with IPluginRegistry::loadLibrary, or trtexec --dynamicPlugins. It links to no TensorRT
// library, because it uses only interfaces in TensorRT's headers.
#include "select_tokens.cuh"

#include <NvInferRuntime.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>

namespace mrcfa {
namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginCapabilityType;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginFieldType;
using nvinfer1::PluginTensorDesc;

constexpr char kName[] = "SelectTokens";
constexpr char kVersion[] = "1";
constexpr char kNamespace[] = "mrcfa";

/// Prints what is wrong and returns the code by which TensorRT fails.
///
/// It prints to stderr and not to TensorRT's logger: ILoggerFinder gained virtual functions in
/// TensorRT 11, so a library compiled for 10 would call the wrong function there.
__attribute__((format(printf, 1, 2))) int32_t refuse(const char* format, ...) {
    char reason[256];
    va_list values;
    va_start(values, format);
    std::vsnprintf(reason, sizeof reason, format, values);
    va_end(values);
    std::fprintf(stderr, "mrcfa::SelectTokens: %s\n", reason);
    return 1;
}

using AttributeValue = int32_t Attributes::*;

struct NamedAttribute {
    const char* name;
    AttributeValue value;
};

constexpr NamedAttribute kAttributes[] = {
    {"keep", &Attributes::keep},
    {"top", &Attributes::top},
    {"height", &Attributes::height},
    {"width", &Attributes::width},
    {"factor", &Attributes::factor},
};

/// One int32 field per attribute: names only, or names with values that stay in `attributes`.
class Fields {
public:
    explicit Fields(const Attributes* attributes = nullptr) {
        for (const NamedAttribute& attribute : kAttributes) {
            const void* value = attributes ? &(attributes->*attribute.value) : nullptr;
            fields_[collection_.nbFields++] = {attribute.name, value, PluginFieldType::kINT32, 1};
        }
        collection_.fields = fields_.data();
    }
    Fields(const Fields&) = delete;

    const PluginFieldCollection* collection() const { return &collection_; }

private:
    std::array<PluginField, std::size(kAttributes)> fields_;
    PluginFieldCollection collection_ = {};
};

const PluginField* findField(const PluginFieldCollection& fields, const char* name) {
    for (int32_t i = 0; i < fields.nbFields; ++i) {
        if (std::strcmp(fields.fields[i].name, name) == 0) return &fields.fields[i];
    }
    return nullptr;
}

int32_t refuseRange(const char* name, int32_t value, int32_t least, int32_t most) {
    return refuse("field '%s' is %d; it must be between %d and %d", name, value, least, most);
}

/// 0 if the attributes describe a selection that the kernels can make.
int32_t check(const Attributes& a) {
    if (a.top < 1 || a.top > kMaxTop) return refuseRange("top", a.top, 1, kMaxTop);
    if (a.factor < 1 || a.factor > 2) return refuseRange("factor", a.factor, 1, 2);
    if (a.height < 1) return refuseRange("height", a.height, 1, kMaxTokens);
    if (a.width < 1) return refuseRange("width", a.width, 1, kMaxTokens);
    if (int64_t{a.height} * a.width > kMaxTokens / (a.factor * a.factor)) {
        return refuse("a grid of %dx%d with factor %d has more than %d tokens", a.height, a.width,
                      a.factor, kMaxTokens);
    }
    if (a.keep < 1 || a.keep > a.tokens()) return refuseRange("keep", a.keep, 1, a.tokens());
    return 0;
}

/// The attributes in an ONNX node or an engine, if they are complete and valid.
///
/// No attribute has a default, so that the node's function body and the plugin cannot disagree.
std::optional<Attributes> parse(const PluginFieldCollection& fields) {
    Attributes attributes = {};
    for (const NamedAttribute& attribute : kAttributes) {
        const PluginField* field = findField(fields, attribute.name);
        if (field == nullptr) {
            refuse("field '%s' is missing", attribute.name);
            return std::nullopt;
        }
        if (field->type != PluginFieldType::kINT32 || field->length != 1 || !field->data) {
            refuse("field '%s' must be a single int32", attribute.name);
            return std::nullopt;
        }
        attributes.*attribute.value = *static_cast<const int32_t*>(field->data);
    }
    if (check(attributes) != 0) return std::nullopt;
    return attributes;
}

class SelectTokensPlugin final : public nvinfer1::IPluginV3,
                                 public nvinfer1::IPluginV3OneCore,
                                 public nvinfer1::IPluginV3OneBuild,
                                 public nvinfer1::IPluginV3OneRuntime {
public:
    explicit SelectTokensPlugin(const Attributes& attributes)
        : attributes_(attributes), fields_(&attributes_) {}

    nvinfer1::IPluginCapability* getCapabilityInterface(
        PluginCapabilityType type) noexcept override {
        switch (type) {
            case PluginCapabilityType::kCORE: return static_cast<IPluginV3OneCore*>(this);
            case PluginCapabilityType::kBUILD: return static_cast<IPluginV3OneBuild*>(this);
            case PluginCapabilityType::kRUNTIME: return static_cast<IPluginV3OneRuntime*>(this);
        }
        return nullptr;
    }

    SelectTokensPlugin* clone() noexcept override {
        return new (std::nothrow) SelectTokensPlugin(attributes_);
    }

    // Core

    const char* getPluginName() const noexcept override { return kName; }
    const char* getPluginVersion() const noexcept override { return kVersion; }
    const char* getPluginNamespace() const noexcept override { return kNamespace; }

    // Build

    int32_t getNbOutputs() const noexcept override { return 1; }

    int32_t getOutputDataTypes(DataType* outputs, int32_t, const DataType*,
                               int32_t) const noexcept override {
        outputs[0] = DataType::kINT32;
        return 0;
    }

    int32_t getOutputShapes(const nvinfer1::DimsExprs* inputs, int32_t inputCount,
                            const nvinfer1::DimsExprs*, int32_t, nvinfer1::DimsExprs* outputs,
                            int32_t, nvinfer1::IExprBuilder& builder) noexcept override {
        if (inputCount != 1) return refuse("takes one input, the affinities, not %d", inputCount);
        if (inputs[0].nbDims != 3) {
            return refuse("affinities are [references, queries, keys], not of %d dimensions",
                          inputs[0].nbDims);
        }
        outputs[0].nbDims = 2;
        outputs[0].d[0] = inputs[0].d[0];
        outputs[0].d[1] = builder.constant(attributes_.keep);
        return 0;
    }

    bool supportsFormatCombination(int32_t position, const DynamicPluginTensorDesc* tensors,
                                   int32_t, int32_t) noexcept override {
        const PluginTensorDesc& tensor = tensors[position].desc;
        if (tensor.format != nvinfer1::TensorFormat::kLINEAR) return false;
        if (position > 0) return tensor.type == DataType::kINT32;
        return tensor.type == DataType::kHALF || tensor.type == DataType::kFLOAT;
    }

    int32_t configurePlugin(const DynamicPluginTensorDesc* inputs, int32_t,
                            const DynamicPluginTensorDesc*, int32_t) noexcept override {
        return checkShape(inputs[0].max);
    }

    size_t getWorkspaceSize(const DynamicPluginTensorDesc* inputs, int32_t,
                            const DynamicPluginTensorDesc*, int32_t) const noexcept override {
        return workspaceBytes(static_cast<int>(inputs[0].max.d[0]), attributes_);
    }

    // Runtime

    int32_t onShapeChange(const PluginTensorDesc* inputs, int32_t, const PluginTensorDesc*,
                          int32_t) noexcept override {
        return checkShape(inputs[0].dims);
    }

    int32_t enqueue(const PluginTensorDesc* descriptions, const PluginTensorDesc*,
                    const void* const* inputs, void* const* outputs, void* workspace,
                    cudaStream_t stream) noexcept override {
        const bool half = descriptions[0].type == DataType::kHALF;
        return half ? run<__half>(descriptions[0].dims, inputs[0], workspace, outputs[0], stream)
                    : run<float>(descriptions[0].dims, inputs[0], workspace, outputs[0], stream);
    }

    IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override {
        return clone();
    }

    const PluginFieldCollection* getFieldsToSerialize() noexcept override {
        return fields_.collection();
    }

private:
    int32_t checkShape(const Dims& affinity) const {
        if (affinity.d[0] < 1 || affinity.d[1] < 1) {
            return refuse("needs at least one reference and one query");
        }
        if (affinity.d[2] != attributes_.keys()) {
            return refuse("affinities have %lld keys, but height %d and width %d make %d",
                          static_cast<long long>(affinity.d[2]), attributes_.height,
                          attributes_.width, attributes_.keys());
        }
        return 0;
    }

    template <typename T>
    int32_t run(const Dims& affinity, const void* input, void* workspace, void* output,
                cudaStream_t stream) const {
        const cudaError_t status = selectTokens(
            static_cast<const T*>(input), static_cast<int>(affinity.d[0]),
            static_cast<int>(affinity.d[1]), attributes_, workspace, static_cast<int32_t*>(output),
            stream);
        return status == cudaSuccess ? 0 : refuse("%s", cudaGetErrorString(status));
    }

    const Attributes attributes_;
    const Fields fields_;
};

class SelectTokensCreator final : public nvinfer1::IPluginCreatorV3One {
public:
    const char* getPluginName() const noexcept override { return kName; }
    const char* getPluginVersion() const noexcept override { return kVersion; }
    const char* getPluginNamespace() const noexcept override { return kNamespace; }
    const PluginFieldCollection* getFieldNames() noexcept override { return fields_.collection(); }

    nvinfer1::IPluginV3* createPlugin(const char*, const PluginFieldCollection* fields,
                                      nvinfer1::TensorRTPhase) noexcept override {
        const std::optional<Attributes> attributes = parse(*fields);
        return attributes ? new (std::nothrow) SelectTokensPlugin(*attributes) : nullptr;
    }

private:
    const Fields fields_;
};

}  // namespace
}  // namespace mrcfa

// The two symbols that TensorRT looks up in a plugin library.

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const*
getCreators(int32_t& count) {
    static mrcfa::SelectTokensCreator creator;
    static nvinfer1::IPluginCreatorInterface* const creators[] = {&creator};
    count = 1;
    return creators;
}

extern "C" __attribute__((visibility("default"))) void setLoggerFinder(nvinfer1::ILoggerFinder*) {}
