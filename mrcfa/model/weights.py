"""Weights in and out: the authors' checkpoints, our safetensors, ImageNet backbones.

Loading is strict, and nothing that a file contains is ever executed.
"""

import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from mrcfa.errors import Damaged, Mismatch, NotFound, named
from mrcfa.machine.files import write_whole
from mrcfa.model.segformer import SegFormer

_STAGE = {"4": "1", "8": "2", "16": "3", "32": "4"}

# Our names on the left, the authors' on the right.
_AUTHORS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"^encoder\.stages\.(\d)\.embed\.", lambda m: f"backbone.patch_embed{int(m[1]) + 1}."),
    (r"^encoder\.stages\.(\d)\.blocks\.", lambda m: f"backbone.block{int(m[1]) + 1}."),
    (r"^encoder\.stages\.(\d)\.norm\.", lambda m: f"backbone.norm{int(m[1]) + 1}."),
    (r"\.mlp\.dwconv\.", lambda m: ".mlp.dwconv.dwconv."),
    (r"^fusion\.lift\.(\d)\.", lambda m: f"decode_head.linear_c{int(m[1]) + 1}.proj."),
    (r"^fusion\.mix\.", lambda m: "decode_head.linear_fuse.conv."),
    (r"^fusion\.norm\.", lambda m: "decode_head.linear_fuse.bn."),
    (r"^linear_pred\.", lambda m: "decode_head.linear_pred."),
    (r"^classify\.", lambda m: "decode_head.deco4.smalldecoder.1."),
    (r"^value\.", lambda m: "decode_head.sr1_feat."),
    (r"^reduce\.(\d+)\.", lambda m: f"decode_head.sr{_STAGE[m[1]]}."),
    (r"^query\.(\d+)\.", lambda m: f"decode_head.hypercorre_module.q{int(_STAGE[m[1]]) - 1}."),
    (r"^key\.(\d+)\.", lambda m: f"decode_head.hypercorre_module.k{int(_STAGE[m[1]]) - 1}."),
    (
        r"^refinement\.sar\.(\d+)\.(\d+)\.",
        lambda m: f"decode_head.hypercorre_module.hpn.encoder_layer{_STAGE[m[1]]}.{_conv(m[2])}.",
    ),
    (
        r"^refinement\.maa\.(\d+)\.(\d+)\.",
        lambda m: (
            "decode_head.hypercorre_module.hpn."
            f"encoder_layer{int(_STAGE[m[1]]) + 1}to{_STAGE[m[1]]}.{_conv(m[2])}."
        ),
    ),
)
_HEADS = ("linear_pred.", "classify.")
"""The classifiers, whose size is the number of classes."""
MOST_COPIES, OTHER_BYTES = 16, 1 << 26
"""How many times the model's bytes a file may have, with optimizer state in FP64 and averages, and
how many besides."""
MOST_UNPACKED = 2
"""How many times its own size a file may unpack to; PyTorch's are archives that are not packed."""
_NUMBERS = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
}
_TRAINING_ONLY = re.compile(r"^decode_head\.(conv_seg|deco[123])\.")
_IMAGENET = re.compile(r"^(patch_embed|block|norm)\d\.|^head\.")


def load_weights(model: SegFormer, path: str | Path, to_train: bool = False) -> list[str]:
    """Fill `model` from a file; on any mismatch the model stays as it was and the keys are named.

    A file that holds an ImageNet backbone alone fills the encoder and leaves the rest. A model that
    is `to_train` also takes what it shares with a checkpoint of another method or of other classes:
    the parts that stay as they are, are answered.
    """
    path = Path(path)
    own = model.state_dict()
    _check_size(path, sum(value.nbytes for value in own.values()))
    entries = {key.removeprefix("module."): value for key, value in _read(path).items()}
    new: list[str] = []
    if not entries.keys().isdisjoint(own.keys()):
        expected = {key: key for key in own}
        if to_train:
            new, entries, expected = _shared_parts(entries, expected)
    elif entries and all(_IMAGENET.match(key) for key in entries):
        expected = {
            _authors_name(key).removeprefix("backbone."): key
            for key in own
            if key.startswith("encoder.")
        }
        entries = {key: value for key, value in entries.items() if not key.startswith("head.")}
    else:
        expected = {_authors_name(key): key for key in own}
        entries = {key: value for key, value in entries.items() if not _TRAINING_ONLY.match(key)}
    if to_train:
        resized = [
            key
            for key, name in expected.items()
            if name.startswith(_HEADS) and key in entries and entries[key].shape != own[name].shape
        ]
        entries = {key: value for key, value in entries.items() if key not in resized}
        expected = {key: name for key, name in expected.items() if key not in resized}
        new += dict.fromkeys(key.rpartition(".")[0] for key in resized)
    _compare_classes(path, entries, expected, model.config.classes)
    _compare(path, entries, {key: own[name] for key, name in expected.items()})
    model.load_state_dict({expected[key]: value for key, value in entries.items()}, strict=False)
    return new


def save_weights(model: SegFormer, path: str | Path) -> None:
    """Write the model's weights as safetensors, under our own names."""
    write_whole(Path(path), save({k: v.contiguous() for k, v in model.state_dict().items()}))


def _check_size(path: Path, own: int) -> None:
    """Refuse a file of far more bytes than the model has, or that unpacks to more than it has."""
    if not path.is_file():
        raise NotFound(f"there is no weights file {path}")
    size, most = path.stat().st_size, MOST_COPIES * own + OTHER_BYTES
    if size > most:
        raise Mismatch(
            f"{path} has {size:,} bytes and the model {own:,}; check --backbone, and save the bare "
            "state dict without the optimizer's"
        )
    try:
        with ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (BadZipFile, OSError, ValueError, NotImplementedError, OverflowError):
        return  # another format, or for PyTorch to refuse
    if unpacked > min(most, MOST_UNPACKED * size):
        raise Damaged(
            f"{path} is packed, and has {unpacked:,} bytes when it is unpacked; save it with "
            "torch.save, which does not pack"
        )


def _read(path: Path) -> dict[str, Tensor]:
    content = _content(path)
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise Damaged(f"{path} holds no state dict: {key!r} is no tensor")
        if (
            value.is_nested
            or value.layout is not torch.strided
            or value.device.type != "cpu"
            or value.dtype not in _NUMBERS
        ):
            raise Damaged(
                f"{path} holds {key} in a form that is no plain array of numbers ({value.dtype}, "
                f"{value.layout}); save it as dense float32"
            )
    return dict(content)


def _content(path: Path) -> Mapping[Any, Any]:
    """The state dict, whatever it holds."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an unusual pickle protocol
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise Damaged(_refusal(path, str(error))) from None
    except Exception:  # a damaged file makes them raise anything
        raise Damaged(f"{path} is no checkpoint that PyTorch or safetensors can read") from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise Damaged(f"{path} holds no state dict; give a checkpoint of the model's weights")
    return content


def _shared_parts(
    entries: dict[str, Tensor], expected: dict[str, str]
) -> tuple[list[str], dict[str, Tensor], dict[str, str]]:
    """The parts that a file of another method lacks, and both sides without what they do not share.

    A part is a module at the top of the model, such as `encoder` or `refinement`.
    """
    theirs, ours = ({key.partition(".")[0] for key in side} for side in (entries, expected))
    return (
        sorted(ours - theirs),
        {key: value for key, value in entries.items() if key.partition(".")[0] in ours},
        {key: name for key, name in expected.items() if key.partition(".")[0] in theirs},
    )


def _refusal(path: Path, reason: str) -> str:
    """torch names the first global that a pickle asks for beyond plain tensors."""
    wanted = re.search(r"Unsupported global: GLOBAL (\S+)", reason)
    if wanted is None:
        return f"{path} is no checkpoint that can be read without running code from it"
    return (
        f"{path} is a pickle that wants to run code ({wanted[1]}) and is refused; "
        "save the bare state dict and give that"
    )


def _compare_classes(
    path: Path, entries: Mapping[str, Tensor], expected: Mapping[str, str], classes: int
) -> None:
    """A head of another size is a matter of labels, so it gets a sentence of its own."""
    names = expected.values()
    head = "classify.weight" if "classify.weight" in names else "linear_pred.weight"
    for key, name in expected.items():
        if name == head and key in entries and entries[key].ndim == 4:
            found = len(entries[key])
            if found != classes:
                raise Mismatch(
                    f"{path} has {found} classes and the model {classes}; "
                    f"name all {found} of them with --labels"
                )


def _compare(path: Path, entries: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    missing = [key for key in expected if key not in entries]
    surplus = [key for key in entries if key not in expected]
    if missing or surplus:
        parts = [f"lacks {named(missing)}"] if missing else []
        parts += [f"has unknown {named(surplus)}"] if surplus else []
        raise Mismatch(
            f"{path} does not fit this model: it {' and '.join(parts)}; "
            "check --backbone and --dataset"
        )
    shapes = [
        f"{key} {tuple(value.shape)} instead of {tuple(expected[key].shape)}"
        for key, value in entries.items()
        if value.shape != expected[key].shape
    ]
    if shapes:
        raise Mismatch(
            f"{path} has other shapes than this model: {named(shapes)}; "
            "check --backbone and --dataset"
        )
    others = [
        key
        for key, value in entries.items()
        if expected[key].is_floating_point() and not value.is_floating_point()
    ]
    if others:
        raise Damaged(f"{path} holds {named(others)} as {entries[others[0]].dtype}; save floats")
    broken = [key for key, value in entries.items() if not value.to(expected[key]).isfinite().all()]
    if broken:
        raise Damaged(f"{path} holds NaN, infinite or too large weights in {named(broken)}")


def _authors_name(key: str) -> str:
    for pattern, replacement in _AUTHORS:
        key = re.sub(pattern, replacement, key)
    return key


def _conv(index: str) -> str:
    """The authors wrap each conv of a refinement block; its norm stands bare."""
    return f"{index}.conv2" if int(index) % 3 == 0 else index
