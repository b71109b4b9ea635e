"""The model class of each method: the paper's model and its baselines."""

from mrcfa.model.config import Config, Method
from mrcfa.model.feature_pyramid import FeaturePyramid
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.segformer import SegFormer

MODELS: dict[Method, type[SegFormer]] = {
    Method.MRCFA: MRCFA,
    Method.SEGFORMER: SegFormer,
    Method.FEATURE_PYRAMID: FeaturePyramid,
}


def build_model(config: Config, seed: int = 0) -> SegFormer:
    """The config's model with random weights."""
    return MODELS[config.method](config, seed)
