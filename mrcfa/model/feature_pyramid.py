"""The paper's feature pyramid baseline, which merges features over the scales, not affinities.

No public code of it exists; one sentence of the paper is the specification.
"""

import torch
from torch import Tensor, nn

from mrcfa.model.affinity import gather_tokens
from mrcfa.model.config import FEATURE_CHANNELS, Config
from mrcfa.model.frames import resize
from mrcfa.model.mrcfa import MRCFA, Reference, Target


class FeaturePyramid(MRCFA):
    """A model in which every scale retrieves features with its own affinity.

    Affinities are not refined, so they are scaled by 1/√C as in ordinary attention. Features are
    merged coarse to fine by upsampling, adding and a depthwise conv, which adds few parameters.
    """

    def _build(self, config: Config) -> None:
        super()._build(config)
        del self.refinement
        self.merge = nn.ModuleDict(
            {
                str(stride): nn.Conv2d(
                    FEATURE_CHANNELS, FEATURE_CHANNELS, 3, padding=1, groups=FEATURE_CHANNELS
                )
                for stride in config.strides[1:]
            }
        )

    def retrieve(self, target: Target, reference: Reference) -> Tensor:
        selected = self.select(target, reference)
        affinities = self._affinities(target, reference, selected)
        values = gather_tokens(reference.values, selected)
        merged: Tensor | None = None
        for stride, affinity in affinities.items():
            weights = (affinity / self.config.width(stride) ** 0.5).softmax(dim=2)
            feature = (weights @ values).transpose(1, 2).unflatten(2, target.grids[stride])
            if merged is None:
                merged = feature
            else:
                coarser = resize(merged, target.grids[stride])
                merged = torch.relu(self.merge[str(stride)](coarser + feature))
        assert merged is not None
        return resize(merged, target.feature.shape[2:])
