"""The bundle on disk: graphs, weights, engines, and the manifest that describes them."""

from mrcfa.bundle.bundle import (
    EXPECTED,
    MANIFEST,
    WEIGHTS,
    Bundle,
    Unfit,
    write_bundle,
)

__all__ = ["EXPECTED", "MANIFEST", "WEIGHTS", "Bundle", "Unfit", "write_bundle"]
