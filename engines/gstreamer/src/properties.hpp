// The element's properties.
#pragma once

#include <gst/gst.h>

#include <string>

namespace mrcfa {

enum class Output { overlay, mask, meta };

struct Settings {
  std::string bundle;
  std::string backend = "auto";
  int device = 0;
  Output output = Output::overlay;
  double alpha = 0.5;
  std::string classes;
  bool reset_on_discont = false;
};

/// `stats` alone is the element's own affair; all others read and write Settings.
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

/// False if there is no such property.
bool set(Settings& settings, guint property, const GValue* value);
bool get(const Settings& settings, guint property, GValue* value);

}  // namespace mrcfa
