"""Every fold against the modules that it replaces, in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mrcfa.export.folds import (
    affine,
    fold_affinity_scale,
    fold_after_conv,
    fold_fusion,
    fold_query_scale,
    fold_values,
)
from mrcfa.model.affinity import importance, select_tokens
from mrcfa.model.fusion import Fusion

pytestmark = pytest.mark.usefixtures("float64")


def close(first, second):
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


def test_fusion_commutes_with_upsampling():
    fusion = Fusion((8, 16, 24, 32)).eval()
    fusion.norm.running_mean.normal_()
    fusion.norm.running_var.uniform_(0.5, 2)
    nn.init.normal_(fusion.norm.weight)
    nn.init.normal_(fusion.norm.bias)
    stages = [torch.randn(1, width, 24 >> i, 40 >> i) for i, width in enumerate((8, 16, 24, 32))]
    total = sum(
        F.interpolate(
            F.conv2d(stage, fold.weight[..., None, None], fold.bias),
            size=(24, 40),
            mode="bilinear",
            align_corners=False,
        )
        for stage, fold in zip(stages, fold_fusion(fusion), strict=True)
    )
    close(F.relu(total), fusion(stages))


def test_halving_bilinearly_is_average_pooling():
    image = torch.randn(1, 3, 12, 20)
    half = F.interpolate(image, scale_factor=0.5, mode="bilinear", align_corners=False)
    close(F.avg_pool2d(image, 2), half)


def test_a_linear_map_after_a_strided_conv_is_one_conv():
    conv, linear, image = nn.Conv2d(4, 6, 2, stride=2), nn.Linear(6, 5), torch.randn(1, 4, 8, 8)
    fold = fold_after_conv(affine(linear), affine(conv))
    wanted = linear(conv(image).movedim(1, -1)).movedim(-1, 1)
    close(F.conv2d(image, fold.weight, fold.bias, stride=2), wanted)


def test_values_take_the_classifier_and_the_mean():
    classify, value = nn.Conv2d(6, 3, 1), nn.Conv2d(6, 6, 2, stride=2)
    features = [torch.randn(1, 6, 4, 4) for _ in range(3)]
    weights = [torch.rand(10, 4).softmax(dim=1) for _ in range(3)]
    own = torch.randn(10, 6)

    retrieved = [w @ value(f).flatten(2)[0].t() for w, f in zip(weights, features, strict=True)]
    feature = own + torch.stack(retrieved).mean(dim=0)
    wanted = F.linear(feature, classify.weight.flatten(1), classify.bias)

    fold = fold_values(affine(classify), affine(value), references=3)
    scores = F.linear(own, classify.weight.flatten(1), classify.bias)
    for w, f in zip(weights, features, strict=True):
        scores = scores + w @ F.conv2d(f, fold.weight, fold.bias, stride=2).flatten(2)[0].t()
    close(scores, wanted)


def test_scaled_queries_select_the_same_tokens_and_sars_norm_undoes_the_scale():
    query, keys, tokens = nn.Linear(16, 16), torch.randn(1, 9, 16), torch.randn(1, 12, 16)
    fold = fold_query_scale(affine(query), 16)
    plain = query(tokens) @ keys.transpose(1, 2)
    scaled = F.linear(tokens, fold.weight, fold.bias) @ keys.transpose(1, 2)
    chosen = [select_tokens(importance(a), 4).tolist() for a in (plain, scaled)]
    assert chosen[0] == chosen[1]

    conv, norm = nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2, eps=1e-2)
    folded, eps = fold_affinity_scale(affine(conv), norm.eps, 16)
    images = [a.transpose(1, 2).reshape(9, 1, 3, 4) for a in (plain, scaled)]
    answer = F.conv2d(images[1], folded.weight, folded.bias, padding=1)
    close(F.group_norm(answer, 1, norm.weight, norm.bias, eps), norm(conv(images[0])))


def test_a_conv_without_bias_folds_like_one_with_zeros():
    conv = nn.Conv2d(2, 3, 1, bias=False)
    weight, bias = affine(conv)
    assert torch.equal(weight, conv.weight)
    assert bias.tolist() == [0, 0, 0]
