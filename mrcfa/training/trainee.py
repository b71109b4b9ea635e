"""A model with what only training needs: the classifiers of each reference, dropout, the loss."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.data.labels import IGNORED
from mrcfa.model.affinity import gather_tokens
from mrcfa.model.config import FEATURE_CHANNELS
from mrcfa.model.frames import resize
from mrcfa.model.mit import MiT
from mrcfa.model.mrcfa import MRCFA, Features
from mrcfa.training.recipe import Recipe

HEAD_STD = 0.01
"""Of a new classifier's weights; mmsegmentation's."""


class Trainee(nn.Module):
    """Clips (B, T, 3, h, w) and labels (B, T, h, w) -> the sum of losses and how many pixels count.

    Loss = ½·CE(`linear_pred` of all frames) + CE(`deco1`…`deco3` of each reference's retrieved
    feature alone, and `classify` of their mean plus F½), the latter against the target's label.
    """

    def __init__(self, model: MRCFA, recipe: Recipe) -> None:
        super().__init__()
        config = model.config
        self.model, self._recipe = model, recipe
        self.deco = nn.ModuleList(
            nn.Conv2d(FEATURE_CHANNELS, config.classes, 1) for _ in config.references
        )
        for head in self.deco:
            nn.init.normal_(head.weight, std=HEAD_STD)  # type: ignore[arg-type]
            nn.init.zeros_(head.bias)  # type: ignore[arg-type]
        self.dropout = nn.Dropout2d(recipe.dropout)
        set_drop_path(model.encoder, recipe.drop_path)

    def forward(self, clips: Tensor, labels: Tensor) -> Tensor:
        """(2, 2): summed loss and counted pixels of the single-frame and of the temporal part."""
        model, batch = self.model, len(clips)
        features = model.encode(clips.transpose(0, 1).flatten(0, 1))
        single = model.linear_pred(self.dropout(features.fused))
        parts = [
            Features(tuple(stage[start : start + batch] for stage in features.stages), fused)
            for start, fused in enumerate_batches(features.fused, batch)
        ]
        *earlier, now = parts
        target = model.ask(now)
        retrieved = []
        for frame in earlier:
            reference = model.answer(frame)
            selected, weights = model.relate(target, reference)
            tokens = weights @ gather_tokens(reference.values, selected)
            retrieved.append(tokens.transpose(1, 2).view_as(target.feature))
        mean = torch.stack(retrieved).mean(dim=0) + target.feature
        temporal = [
            classify(self.dropout(feature))
            for classify, feature in zip(
                (*self.deco, model.classify), (*retrieved, mean), strict=True
            )
        ]
        of_frames = labels.transpose(0, 1).flatten(0, 1)
        of_target = labels[:, -1]
        return torch.stack(
            [
                summed_loss([single], of_frames, model.config.output_stride),
                summed_loss(temporal, of_target, model.config.output_stride),
            ]
        )

    def loss(self, sums: Tensor) -> Tensor:
        """From the (2, 2) of `forward`, or from their total over all processes."""
        single, temporal = (total / count.clamp(min=1) for total, count in sums)
        return self._recipe.single_weight * single + temporal


def summed_loss(logits: list[Tensor], labels: Tensor, stride: int) -> Tensor:
    """(2,): cross entropy summed over the pixels that have a label, and their number.

    Logits go to 1/4 first and from there to the label's size, as at test time.
    """
    quarter = (labels.shape[-2] // 4, labels.shape[-1] // 4)
    total = torch.stack(
        [
            F.cross_entropy(
                resize(resize(each, quarter), labels.shape[-2:]).float(),
                labels,
                ignore_index=IGNORED,
                reduction="sum",
            )
            for each in logits
        ]
    ).sum()
    return torch.stack([total, (labels != IGNORED).sum().to(total) * len(logits)])


def enumerate_batches(fused: Tensor, batch: int) -> Iterator[tuple[int, Tensor]]:
    """The frames of a clip one after the other: where each starts, and its part."""
    for start in range(0, len(fused), batch):
        yield start, fused[start : start + batch]


def start_classifiers(model: MRCFA) -> None:
    """Near zero, as SegFormer's training does: the first loss is then that of guessing."""
    for head in (model.linear_pred, model.classify):
        nn.init.normal_(head.weight, std=HEAD_STD)
        nn.init.zeros_(head.bias)  # type: ignore[arg-type]  # it has one


def set_drop_path(encoder: MiT, most: float) -> None:
    """From 0 in the first block to `most` in the last."""
    blocks = [block for stage in encoder.stages for block in stage.blocks]  # type: ignore[union-attr]
    for number, block in enumerate(blocks):
        block.drop_path = most * number / max(1, len(blocks) - 1)


def parameter_groups(trainee: Trainee, recipe: Recipe) -> list[dict[str, object]]:
    """Backbone and head, with and without weight decay; the head's rate is `head_factor` higher."""
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
