"""The model in training, with classifiers for each reference, dropout and the loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.data.labels import IGNORED
from mrcfa.model.config import FEATURE_CHANNELS
from mrcfa.model.frames import resize
from mrcfa.model.mit import Block, MiT
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.segformer import Features, SegFormer
from mrcfa.training.recipe import Recipe

HEAD_STD = 0.01
"""Standard deviation of a new classifier's weights, as in mmsegmentation."""


class Trainee(nn.Module):
    """The model with its training-only classifiers and the paper's loss.

    Loss = ½·CE(`linear_pred` of all frames, their labels) + CE(`deco1`…`deco3`, `classify`, the
    target's label). `deco1`…`deco3` read the feature retrieved from one reference each, `classify`
    their mean plus F½. A model without references has only the first term, with weight 1.
    """

    def __init__(self, model: SegFormer, recipe: Recipe) -> None:
        super().__init__()
        self.model, self._recipe = model, recipe
        self.deco = nn.ModuleList(
            nn.Conv2d(FEATURE_CHANNELS, model.config.classes, 1) for _ in model.config.references
        )
        for head in self.deco:
            _start(head)
        self.dropout = nn.Dropout2d(recipe.dropout)
        set_drop_path(model.encoder, recipe.drop_path)

    def forward(self, clips: Tensor, labels: Tensor) -> Tensor:
        """Summed loss and number of pixels of the single-frame and the temporal part: (2, 2).

        Clips are (B, T, 3, h, w), labels (B, T, h, w).
        """
        model, batch = self.model, len(clips)
        features = model.encode(clips.transpose(0, 1).flatten(0, 1))
        single = model.linear_pred(self.dropout(features.fused))
        frame_labels = labels.transpose(0, 1).flatten(0, 1)
        sums = [summed_loss([single], frame_labels)]
        if isinstance(model, MRCFA):
            sums.append(summed_loss(self._temporal(model, features, batch), labels[:, -1]))
        else:
            sums.append(torch.zeros_like(sums[0]))
        return torch.stack(sums)

    def _temporal(self, model: MRCFA, features: Features, batch: int) -> list[Tensor]:
        """Logits from each reference alone, and from their mean plus the target's own feature."""
        *earlier, now = features.split(batch)
        target = model.as_target(now)
        retrieved = [model.retrieve(target, model.as_reference(frame)) for frame in earlier]
        mean = torch.stack(retrieved).mean(dim=0) + target.feature
        heads = (*self.deco, model.classify)
        return [
            head(self.dropout(feature))
            for head, feature in zip(heads, (*retrieved, mean), strict=True)
        ]

    def loss(self, sums: Tensor) -> Tensor:
        """The loss from the result (2, 2) of `forward`, or from its total over all processes."""
        single, temporal = (total / count.clamp(min=1) for total, count in sums)
        if not self.deco:
            return single
        return self._recipe.single_weight * single + temporal


def summed_loss(logits: list[Tensor], labels: Tensor) -> Tensor:
    """Cross entropy summed over the labelled pixels, and their number: (2,).

    Logits are resized to 1/4 and then to the label's size, as at test time.
    """
    quarter = (labels.shape[-2] // 4, labels.shape[-1] // 4)
    total = torch.stack(
        [
            F.cross_entropy(
                resize(resize(maps, quarter), labels.shape[-2:]).float(),
                labels,
                ignore_index=IGNORED,
                reduction="sum",
            )
            for maps in logits
        ]
    ).sum()
    return torch.stack([total, (labels != IGNORED).sum().to(total) * len(logits)])


def start_classifiers(model: SegFormer) -> None:
    """Initialise classifiers near zero as SegFormer does; the first loss is then log(classes)."""
    _start(model.linear_pred)
    if isinstance(model, MRCFA):
        _start(model.classify)


def _start(head: nn.Module) -> None:
    assert isinstance(head, nn.Conv2d)
    assert head.bias is not None
    nn.init.normal_(head.weight, std=HEAD_STD)
    nn.init.zeros_(head.bias)


def set_drop_path(encoder: MiT, last: float) -> None:
    """Set drop path to grow linearly from 0 in the first block to `last` in the last one."""
    blocks = [part for part in encoder.modules() if isinstance(part, Block)]
    for number, block in enumerate(blocks):
        block.drop_path = last * number / max(1, len(blocks) - 1)


def parameter_groups(trainee: Trainee, recipe: Recipe) -> list[dict[str, object]]:
    """Groups of parameters for the optimizer: backbone and head, with and without weight decay."""
    norms = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d, nn.SyncBatchNorm)
    undecayed = {
        id(weight)
        for module in trainee.modules()
        if isinstance(module, norms)
        for weight in module.parameters(recurse=False)
    }
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, weight in trainee.named_parameters():
        key = (name.startswith("model.encoder."), id(weight) in undecayed)
        groups.setdefault(key, []).append(weight)
    return [
        {
            "params": weights,
            "lr": recipe.learning_rate * (1 if backbone else recipe.head_factor),
            "weight_decay": 0.0 if norm else recipe.weight_decay,
        }
        for (backbone, norm), weights in groups.items()
    ]
