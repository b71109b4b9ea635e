// The element's properties.
#pragma once

#include <gst/gst.h>

#include <string>

namespace mrcfa {

enum class Output { overlay, mask, meta };

/// The value of `device` that leaves the choice of the GPU to the library.
constexpr int kAnyDevice = -1;

struct Settings {
  std::string bundle;
  std::string backend = "auto";
  int device = kAnyDevice;
  Output output = Output::overlay;
  double alpha = 0.5;
  std::string classes;
  bool reset_on_discont = false;
};

/// All properties but `stats` read and write Settings.
enum Property : guint {
  kBundle = 1,
  kBackend,
  kDevice,
  kOutput,
  kAlpha,
  kClasses,
  kResetOnDiscont,
  kStats,
};

void install_properties(GObjectClass* gobject);

/// Sets or gets a property; false if there is no such property.
bool set(Settings& settings, guint property, const GValue* value);
bool get(const Settings& settings, guint property, GValue* value);

}  // namespace mrcfa
