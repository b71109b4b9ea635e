"""The build-time half of mrcfa::SelectTokens in Python, where no library was compiled.

Building only asks a plugin for its types, shapes and fields; running it is the C++ plugin's part.

    python plugin_twin.py BUNDLE auto    # `mrcfa build BUNDLE --sm 75 --plugin auto` with the twin
"""

import sys
from typing import Any

import numpy as np

from mrcfa.engines.builder import BuildOptions, build_engines
from mrcfa.engines.choices import FlavourChoice, PluginUse
from mrcfa.engines.target import choose_target
from mrcfa.errors import MrcfaError

FIELDS = ("keep", "top", "height", "width", "factor")


def register_twin(trt: Any) -> None:
    class Plugin(
        trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
    ):
        def __init__(self, fields: dict[str, int]) -> None:
            for base in type(self).__bases__:
                base.__init__(self)
            self.fields = fields
            self.plugin_name, self.plugin_version = "SelectTokens", "1"
            self.plugin_namespace, self.num_outputs = "mrcfa", 1

        def get_capability_interface(self, kind):
            return self

        def get_output_data_types(self, inputs):
            return [trt.DataType.INT32]

        def get_output_shapes(self, inputs, shape_inputs, builder):
            shape = trt.DimsExprs(2)
            shape[0], shape[1] = inputs[0][0], builder.constant(self.fields["keep"])
            return [shape]

        def supports_format_combination(self, position, tensors, inputs):
            wanted = (trt.DataType.INT32,) if position else (trt.DataType.HALF, trt.DataType.FLOAT)
            found = tensors[position].desc
            return found.format == trt.TensorFormat.LINEAR and found.type in wanted

        def configure_plugin(self, inputs, outputs):
            pass

        def get_fields_to_serialize(self):
            return trt.PluginFieldCollection(
                [
                    trt.PluginField(name, np.array([value], np.int32), trt.PluginFieldType.INT32)
                    for name, value in self.fields.items()
                ]
            )

        def clone(self):
            return Plugin(self.fields)

        def attach_to_context(self, context):
            return self.clone()

        def on_shape_change(self, inputs, outputs):
            pass

    class Creator(trt.IPluginCreatorV3One):
        def __init__(self) -> None:
            trt.IPluginCreatorV3One.__init__(self)
            self.name, self.plugin_version, self.plugin_namespace = "SelectTokens", "1", "mrcfa"
            self.field_names = trt.PluginFieldCollection(
                [trt.PluginField(name, np.array([]), trt.PluginFieldType.INT32) for name in FIELDS]
            )

        def create_plugin(self, name, fields, phase):
            return Plugin({field.name: int(field.data[0]) for field in fields})

    trt.get_plugin_registry().register_creator(Creator(), "mrcfa")


if __name__ == "__main__":
    target = choose_target(FlavourChoice.RTX, [75])
    register_twin(target.trt)
    try:
        build_engines(sys.argv[1], target, BuildOptions(plugin=PluginUse(sys.argv[2])))
    except MrcfaError as error:
        sys.exit(str(error))
