#include "properties.hpp"

#include <array>

namespace mrcfa {
namespace {

constexpr auto kAtStart =
    static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
constexpr auto kAnyTime = static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS |
                                                   GST_PARAM_MUTABLE_PLAYING);
constexpr auto kRead = static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);

GType output_type() {
  static const std::array<GEnumValue, 4> values = {{
      {static_cast<int>(Output::overlay), "The frame, with the classes' colours over it (RGB)",
       "overlay"},
      {static_cast<int>(Output::mask), "The mask, a class per pixel (GRAY8)", "mask"},
      {static_cast<int>(Output::meta), "The frame untouched, its mask attached as GstMrcfaMeta",
       "meta"},
      {0, nullptr, nullptr},
  }};
  static const GType type = g_enum_register_static("GstMrcfaOutput", values.data());
  return type;
}

std::string text(const GValue* value) {
  const char* const given = g_value_get_string(value);
  return given == nullptr ? "" : given;
}

}  // namespace

void install_properties(GObjectClass* gobject) {
  const Settings usual;
  const auto install = [gobject](Property property, GParamSpec* spec) {
    g_object_class_install_property(gobject, property, spec);
  };
  install(kBundle,
          g_param_spec_string("bundle", "Bundle", "Directory that mrcfa export wrote; must be set",
                              nullptr, kAtStart));
  install(kBackend, g_param_spec_string("backend", "Backend",
                                        "What runs the bundle: auto, tensorrt, onnxruntime, "
                                        "onnxruntime:cpu, onnxruntime:cuda or "
                                        "onnxruntime:webgpu",
                                        usual.backend.c_str(), kAtStart));
  install(kDevice, g_param_spec_int("device", "Device",
                                    "Index of the GPU; -1 for that of the current CUDA context, "
                                    "or else the first",
                                    kAnyDevice, G_MAXINT, usual.device, kAtStart));
  install(kOutput, g_param_spec_enum("output", "Output", "What leaves the element", output_type(),
                                     static_cast<int>(usual.output), kAtStart));
  install(kAlpha, g_param_spec_double("alpha", "Alpha", "Opacity of the overlay's colours", 0, 1,
                                      usual.alpha, kAnyTime));
  install(kClasses,
          g_param_spec_string("classes", "Classes",
                              "Show only these, such as person,car; the others keep the frame's "
                              "pixels in an overlay and are 255 in a mask. Empty for all",
                              nullptr, kAnyTime));
  install(kResetOnDiscont,
          g_param_spec_boolean("reset-on-discont", "Reset on DISCONT",
                               "Forget earlier frames at a buffer that is marked DISCONT, not at "
                               "a new stream, a flush and new caps alone",
                               usual.reset_on_discont, kAnyTime));
  install(kStats,
          g_param_spec_boxed("stats", "Statistics",
                             "Since the start: frames processed, frames dropped because they "
                             "were late, resets of the memory, and what runs the bundle",
                             GST_TYPE_STRUCTURE, kRead));
  gst_type_mark_as_plugin_api(output_type(), static_cast<GstPluginAPIFlags>(0));
}

bool set(Settings& settings, guint property, const GValue* value) {
  switch (property) {
    case kBundle:
      settings.bundle = text(value);
      return true;
    case kBackend:
      settings.backend = text(value);
      return true;
    case kDevice:
      settings.device = g_value_get_int(value);
      return true;
    case kOutput:
      settings.output = static_cast<Output>(g_value_get_enum(value));
      return true;
    case kAlpha:
      settings.alpha = g_value_get_double(value);
      return true;
    case kClasses:
      settings.classes = text(value);
      return true;
    case kResetOnDiscont:
      settings.reset_on_discont = g_value_get_boolean(value) != 0;
      return true;
    default:
      return false;
  }
}

bool get(const Settings& settings, guint property, GValue* value) {
  switch (property) {
    case kBundle:
      g_value_set_string(value, settings.bundle.c_str());
      return true;
    case kBackend:
      g_value_set_string(value, settings.backend.c_str());
      return true;
    case kDevice:
      g_value_set_int(value, settings.device);
      return true;
    case kOutput:
      g_value_set_enum(value, static_cast<int>(settings.output));
      return true;
    case kAlpha:
      g_value_set_double(value, settings.alpha);
      return true;
    case kClasses:
      g_value_set_string(value, settings.classes.c_str());
      return true;
    case kResetOnDiscont:
      g_value_set_boolean(value, settings.reset_on_discont);
      return true;
    default:
      return false;
  }
}

}  // namespace mrcfa
