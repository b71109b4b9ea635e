#include "element.hpp"

#include <exception>

#include "instance.hpp"

GST_DEBUG_CATEGORY(mrcfa_debug);

struct GstMrcfaClass {
  GstBaseTransformClass parent;
};

G_DEFINE_TYPE(GstMrcfa, gst_mrcfa, GST_TYPE_BASE_TRANSFORM)

namespace {

using mrcfa::mrcfa_of;
using mrcfa::Parts;

gboolean start(GstBaseTransform* base) {
  GstMrcfa* const self = mrcfa_of(base);
  Parts& parts = *self->parts;
  mrcfa::Settings settings;
  {
    const std::lock_guard lock(parts.mutex);
    settings = parts.settings;
    parts.processed = parts.dropped = parts.resets = 0;
    parts.repaint = parts.warned = false;
  }
  if (settings.bundle.empty()) {
    GST_ELEMENT_ERROR(self, RESOURCE, SETTINGS,
                      ("no bundle is named; set bundle=FOLDER, which mrcfa export wrote"),
                      (nullptr));
    return FALSE;
  }
  try {
    mrcfa::Options options;
    options.backend = settings.backend;
    if (settings.device != mrcfa::kAnyDevice) {
      options.device = settings.device;
    }
    parts.segmenter = std::make_unique<mrcfa::Segmenter>(settings.bundle, options, settings.alpha,
                                                         settings.classes);
  } catch (const std::exception& error) {
    GST_ELEMENT_ERROR(self, RESOURCE, OPEN_READ, ("%s", error.what()), (nullptr));
    return FALSE;
  }
  gst_base_transform_set_in_place(base, settings.output != mrcfa::Output::mask);
  const std::lock_guard lock(parts.mutex);
  parts.output = settings.output;
  parts.extent = parts.segmenter->extent();
  parts.format = parts.segmenter->format();
  parts.runs_on = parts.segmenter->info().backend;
  GST_INFO_OBJECT(self, "%s runs on %s", settings.bundle.c_str(), parts.runs_on.c_str());
  return TRUE;
}

gboolean stop(GstBaseTransform* base) {
  GstMrcfa* const self = mrcfa_of(base);
  Parts& parts = *self->parts;
  parts.segmenter.reset();
  gst_caps_replace(&parts.caps, nullptr);
  const std::lock_guard lock(parts.mutex);
  parts.extent = {};
  parts.format.clear();
  parts.duration = 0;
  return TRUE;
}

void set_property(GObject* object, guint id, const GValue* value, GParamSpec* spec) {
  Parts& parts = *mrcfa_of(object)->parts;
  const std::lock_guard lock(parts.mutex);
  if (!mrcfa::set(parts.settings, id, value)) {
    G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
  parts.repaint |= id == mrcfa::kAlpha || id == mrcfa::kClasses;
}

void get_property(GObject* object, guint id, GValue* value, GParamSpec* spec) {
  Parts& parts = *mrcfa_of(object)->parts;
  const std::lock_guard lock(parts.mutex);
  if (id == mrcfa::kStats) {
    g_value_take_boxed(
        value,
        gst_structure_new("application/x-mrcfa-stats", "processed", G_TYPE_UINT64, parts.processed,
                          "dropped", G_TYPE_UINT64, parts.dropped, "resets", G_TYPE_UINT64,
                          parts.resets, "runs-on", G_TYPE_STRING, parts.runs_on.c_str(), nullptr));
  } else if (!mrcfa::get(parts.settings, id, value)) {
    G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
  }
}

void finalize(GObject* object) {
  delete mrcfa_of(object)->parts;
  G_OBJECT_CLASS(gst_mrcfa_parent_class)->finalize(object);
}

void add_template(GstElementClass* element, const char* name, GstPadDirection direction,
                  const char* description) {
  GstCaps* const caps = gst_caps_from_string(description);
  gst_element_class_add_pad_template(element,
                                     gst_pad_template_new(name, direction, GST_PAD_ALWAYS, caps));
  gst_caps_unref(caps);
}

}  // namespace

static void gst_mrcfa_init(GstMrcfa* self) {
  self->parts = new mrcfa::Parts;
  gst_base_transform_set_qos_enabled(GST_BASE_TRANSFORM(self), TRUE);
}

static void gst_mrcfa_class_init(GstMrcfaClass* klass) {
  GST_DEBUG_CATEGORY_INIT(mrcfa_debug, "mrcfa", 0, "MRCFA video segmentation");
  auto* const gobject = G_OBJECT_CLASS(klass);
  gobject->set_property = set_property;
  gobject->get_property = get_property;
  gobject->finalize = finalize;
  mrcfa::install_properties(gobject);

  auto* const element = GST_ELEMENT_CLASS(klass);
  gst_element_class_set_static_metadata(
      element, "MRCFA video segmentation", "Filter/Analyzer/Video",
      "Gives every pixel of a video a class; each frame borrows from the frames before it",
      "mrcfa");
  add_template(element, "sink", GST_PAD_SINK, GST_VIDEO_CAPS_MAKE("{ RGB, BGR, NV12 }"));
  add_template(element, "src", GST_PAD_SRC, GST_VIDEO_CAPS_MAKE("{ RGB, BGR, NV12, GRAY8 }"));

  auto* const base = GST_BASE_TRANSFORM_CLASS(klass);
  base->start = start;
  base->stop = stop;
  mrcfa::install_negotiation(base);
  mrcfa::install_streaming(base);
}

namespace mrcfa {

GstBaseTransformClass* parent_class() {
  return GST_BASE_TRANSFORM_CLASS(gst_mrcfa_parent_class);
}

}  // namespace mrcfa
