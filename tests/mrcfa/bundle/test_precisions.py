import numpy as np
import pytest
from onnx import numpy_helper

from mrcfa.bundle.manifest import Device
from mrcfa.bundle.precisions import PRECISIONS, PREFERRED, precision_named
from mrcfa.export.quantization.choices import Method
from mrcfa.export.quantization.formats import FORMATS
from mrcfa.export.variants import VARIANTS


def test_records_name_the_variants_that_export_and_quantize_write():
    rows = {(row.precision, row.device, name) for name, row in VARIANTS.items()}
    assert rows == {
        (record.name, device, name)
        for record in PRECISIONS.values()
        for device, name in record.variants.items()
    }


def test_every_device_prefers_a_precision_that_is_laid_out_for_it():
    for device in Device:
        assert (PREFERRED[device], device) in {(v.precision, v.device) for v in VARIANTS.values()}


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_an_8_bit_record_names_a_type_of_onnx_and_a_method_of_calibration(form):
    stored = form.tensor("clipped", np.float32([2 * form.largest]))
    assert numpy_helper.to_array(stored).astype(np.float32) == form.largest
    assert Method(form.calibration)


def test_a_precision_of_a_later_version_has_no_facts():
    later = precision_named("fp4")
    assert (later.name, later.variant_for(Device.GPU), later.first_sm) == ("fp4", "fp4", 0)
