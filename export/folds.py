"""Folds: operators of the reference model merged into fewer; docs/algebra.md has the proofs.

Every function takes modules in any precision and returns float64; the caller rounds once.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mrcfa.model.fusion import Fusion


class Affine(NamedTuple):
    """A linear map and its bias; the weight has the layout of the conv or linear it stands for."""

    weight: Tensor
    bias: Tensor


def affine(module: nn.Module) -> Affine:
    """The weight and bias of a linear layer or conv, in float64."""
    assert isinstance(module, nn.Linear | nn.Conv2d)
    weight = module.weight.detach().double()
    if module.bias is None:
        return Affine(weight, weight.new_zeros(weight.shape[0]))
    return Affine(weight, module.bias.detach().double())


def fold_fusion(fusion: Fusion) -> list[Affine]:
    """One (256, C) matrix per stage for its lift, its slice of the mixing conv and BatchNorm.

    It is applied at the stage's own resolution, before the bilinear resize. The biases of all
    stages and BatchNorm's shift are added to the last stage's (docs/algebra.md, lemma 1).
    """
    norm = fusion.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
    shift = norm.bias.detach().double() - scale * norm.running_mean.double()
    mix = scale[:, None] * fusion.mix.weight.detach().double().flatten(1)
    slices = mix.chunk(len(fusion.lift), dim=1)[::-1]  # the conv's input is coarsest first
    lifts = [affine(lift) for lift in fusion.lift]
    folded = [
        Affine(part @ lift.weight, part @ lift.bias)
        for part, lift in zip(slices, lifts, strict=True)
    ]
    constant = torch.stack([stage.bias for stage in folded]).sum(dim=0) + shift
    silent = torch.zeros_like(constant)
    return [Affine(stage.weight, silent) for stage in folded[:-1]] + [
        Affine(folded[-1].weight, constant)
    ]


def fold_after_conv(linear: Affine, conv: Affine) -> Affine:
    """One conv for a conv and the linear map of channels after it (docs/algebra.md, lemma 3)."""
    matrix = linear.weight.flatten(1)
    weight = torch.einsum("oc,cikl->oikl", matrix, conv.weight)
    return Affine(weight, matrix @ conv.bias + linear.bias)


def fold_values(classify: Affine, value: Affine, references: int) -> Affine:
    """One conv for the value conv, the classifier and the factor 1/R of the mean.

    Its values are class scores. The classifier's bias is added to the target's own scores instead
    (docs/algebra.md, lemma 4).
    """
    silent = Affine(classify.weight, torch.zeros_like(classify.bias))
    weight, bias = fold_after_conv(silent, value)
    return Affine(weight / references, bias / references)


def fold_query_scale(query: Affine, channels: int) -> Affine:
    """Queries divided by √C, because affinities of C-channel tokens may overflow FP16.

    STM selects the same tokens, and with `fold_affinity_scale` SAR computes the same
    (docs/algebra.md, lemma 5).
    """
    return Affine(query.weight / channels**0.5, query.bias / channels**0.5)


def fold_affinity_scale(conv: Affine, eps: float, channels: int) -> tuple[Affine, float]:
    """SAR's first conv and its norm's ε, for affinities divided by √C.

    The conv's result y is divided by √C too, and the norm's is unchanged (docs/algebra.md, lemma
    5). Nothing is multiplied by √C, which might overflow FP16.
    """
    return Affine(conv.weight, conv.bias / channels**0.5), eps / channels


def fold_norm(after: Affine, norm: nn.LayerNorm) -> Affine:
    """A linear layer, or a conv without padding, that contains γ and β of the norm before it.

    The norm is left with γ = β = 1 (docs/algebra.md, lemma 9).
    """
    scale, shift = norm.weight.detach().double(), norm.bias.detach().double()
    per_input = (-1, *(1 for _ in after.weight.shape[2:]))
    constant = (after.weight * (shift - scale).view(per_input)).flatten(1).sum(dim=1)
    return Affine(after.weight * scale.view(per_input), after.bias + constant)


def fold_bias(linear: Affine) -> Affine:
    """A linear layer with its bias in the matrix, for tokens whose channels have the mean 1.

    A norm with γ = β = 1 outputs such tokens (docs/algebra.md, lemma 9).
    """
    weight = linear.weight + linear.bias[:, None] / linear.weight.shape[1]
    return Affine(weight, torch.zeros_like(linear.bias))


def conv_of(folded: Affine) -> nn.Conv2d:
    """The conv of a folded map. Its kernels tile the image: the stride is the kernel's size."""
    weight = folded.weight.reshape(*folded.weight.shape[:2], *(folded.weight.shape[2:] or (1, 1)))
    outputs, inputs, kernel, _ = weight.shape
    conv = nn.Conv2d(inputs, outputs, kernel, stride=kernel)
    conv.weight, conv.bias = nn.Parameter(weight), nn.Parameter(folded.bias)
    return conv
