"""Exact algebra: operators of the reference model merged into fewer, with the proof of each.

Every function takes modules in any precision and answers in float64; the caller rounds once.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mrcfa.fusion import Fusion


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
    """One (256, C) matrix per stage that replaces lift, its slice of the mixing conv and BatchNorm.

    The fused feature is F = ReLU(BN(Σᵢ Wᵢ·up(Lᵢcᵢ + lᵢ))), where Wᵢ is the slice of the mixing conv
    for stage i and BN(x) = s·x + t with s = γ/√(var+ε), t = β − s·mean. A 1×1 conv acts on channels
    and bilinear resizing on positions, so they commute; resizing keeps constants as its weights sum
    to one. Hence F = ReLU(Σᵢ up(s·WᵢLᵢ·cᵢ) + Σᵢ s·Wᵢlᵢ + t): each matrix is applied at the
    stage's own resolution, and the constant joins the last one.
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
    """A linear map on channels after a conv is one conv: L(w∗x + b) + l = (Lw)∗x + (Lb + l)."""
    matrix = linear.weight.flatten(1)
    weight = torch.einsum("oc,cikl->oikl", matrix, conv.weight)
    return Affine(weight, matrix @ conv.bias + linear.bias)


def fold_values(classify: Affine, value: Affine, references: int) -> Affine:
    """Values that are already class scores: the classifier and the mean go before the retrieval.

    With Aᵣ the (softmaxed) weights of reference r, Vᵣ its values, D and d the classifier's matrix
    and bias: D·(1/R·Σᵣ AᵣVᵣ + f) + d = Σᵣ Aᵣ(VᵣDᵀ/R) + (D·f + d). The bias d stays with the
    target's own feature f, so the values take D without it.
    """
    silent = Affine(classify.weight, torch.zeros_like(classify.bias))
    weight, bias = fold_after_conv(silent, value)
    return Affine(weight / references, bias / references)


def fold_query_scale(query: Affine, channels: int) -> Affine:
    """Queries over √C, so that affinities of C-channel tokens stay in FP16's range.

    STM ranks tokens by sums of affinities, which a positive factor does not reorder.
    `fold_affinity_scale` undoes the factor where the values matter.
    """
    return Affine(query.weight / channels**0.5, query.bias / channels**0.5)


def fold_affinity_scale(conv: Affine, eps: float, channels: int) -> tuple[Affine, float]:
    """SAR's first conv and its norm's ε for affinities that come divided by √C.

    A conv is linear, so with its bias divided as well it answers y/√C instead of y. The norm undoes
    that exactly: (y − m)/√(v + ε) = (y/√C − m/√C)/√(v/C + ε/C). Nothing is multiplied back, so
    nothing can leave FP16's range.
    """
    return Affine(conv.weight, conv.bias / channels**0.5), eps / channels


def fold_norm(after: Affine, norm: nn.LayerNorm) -> Affine:
    """A linear map, or a conv without padding, for the norm before it with γ = β = 1.

    That norm answers y = z + 1 where this one answers γz + β = γy + (β − γ), so γ scales the
    weight's inputs and β − γ goes through it into the bias.
    """
    scale, shift = norm.weight.detach().double(), norm.bias.detach().double()
    per_input = (-1, *(1 for _ in after.weight.shape[2:]))
    constant = (after.weight * (shift - scale).view(per_input)).flatten(1).sum(dim=1)
    return Affine(after.weight * scale.view(per_input), after.bias + constant)


def fold_bias(linear: Affine) -> Affine:
    """The same map without a bias, for what a norm with γ = β = 1 answers.

    Its answers y of C channels have the mean 1, so b = b·(1ᵀy)/C and Wy + b = (W + b1ᵀ/C)y.
    """
    weight = linear.weight + linear.bias[:, None] / linear.weight.shape[1]
    return Affine(weight, torch.zeros_like(linear.bias))
