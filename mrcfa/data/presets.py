"""`preset`, the paper's configuration for a dataset and a backbone."""

from dataclasses import asdict, replace
from typing import Any

from mrcfa.data.datasets import dataset_named
from mrcfa.errors import InvalidValue, member, named
from mrcfa.model.config import Backbone, Config


def preset(dataset: str, backbone: str, **changes: Any) -> Config:
    """The paper's `Config` for a dataset and a backbone; keyword arguments change its fields.

    >>> preset("vspw", "b1", maa=False, keep=0.3).references
    (9, 6, 3)
    """
    size, kind = member(Backbone, backbone, "backbone"), dataset_named(dataset)
    config = Config(
        dataset=kind.name,
        backbone=size.value,
        classes=len(kind.labels.names),
        keep=size.keep,
        widths=size.widths,
        depths=size.depths,
        kernels=size.kernels,
        affinity_channels=size.affinity_channels,
        **asdict(kind.preset),
    )
    unknown = changes.keys() - config.__dataclass_fields__.keys()
    if unknown:
        raise InvalidValue(
            f"a config has no field {named(sorted(unknown))}; "
            f"choose from {named(config.__dataclass_fields__, most=20)}"
        )
    return replace(config, **changes)
