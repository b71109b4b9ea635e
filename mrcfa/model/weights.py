"""Loading and saving of weights: the authors' checkpoints, our safetensors, ImageNet backbones.

Loading is strict and never executes code from a file.
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

# Pairs of our names (left) and the authors' names (right).
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
"""Prefixes of the classifiers, the parameters whose size depends on the number of classes."""
MOST_COPIES, OTHER_BYTES = 16, 1 << 26
"""A file may have `MOST_COPIES` times the model's bytes plus `OTHER_BYTES`: enough for optimizer
state in FP64 and averaged weights."""
MOST_UNPACKED = 2
"""A file may unpack to this many times its size; PyTorch writes uncompressed archives."""
_NUMBERS = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
}
_TRAINING_ONLY = re.compile(r"^decode_head\.(conv_seg|deco[123])\.")
_IMAGENET = re.compile(r"^(patch_embed|block|norm)\d\.|^head\.")


def load_weights(model: SegFormer, path: str | Path, to_train: bool = False) -> list[str]:
    """Load a file's weights into `model`; return the parts that the file has no weights for.

    On a mismatch the model stays unchanged and the error names the keys. An ImageNet file has
    weights for the encoder only. With `to_train`, a checkpoint of another method or of other
    classes is accepted, and the parameters that both models share are loaded.
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
    """Write the model's weights as safetensors under our own names."""
    write_whole(Path(path), save({k: v.contiguous() for k, v in model.state_dict().items()}))


def _check_size(path: Path, model_bytes: int) -> None:
    """Refuse a file that is far larger than the model, or that unpacks to far more bytes."""
    if not path.is_file():
        raise NotFound(f"there is no weights file {path}")
    size, limit = path.stat().st_size, MOST_COPIES * model_bytes + OTHER_BYTES
    if size > limit:
        raise Mismatch(
            f"{path} has {size:,} bytes, but the model only {model_bytes:,}; check --backbone, and "
            "save the state dict without the optimizer's"
        )
    try:
        with ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (BadZipFile, OSError, ValueError, NotImplementedError, OverflowError):
        return  # another format, or one that PyTorch refuses
    if unpacked > min(limit, MOST_UNPACKED * size):
        raise Damaged(
            f"{path} is compressed and would unpack to {unpacked:,} bytes; save it with "
            "torch.save, which does not compress"
        )


def _read(path: Path) -> dict[str, Tensor]:
    content = _content(path)
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise Damaged(f"{path} holds no state dict: {key!r} is not a tensor")
        if (
            value.is_nested
            or value.layout is not torch.strided
            or value.device.type != "cpu"
            or value.dtype not in _NUMBERS
        ):
            raise Damaged(
                f"{path} holds {key} as {value.dtype} and {value.layout}, which is not a plain "
                "array of numbers; save it as dense float32"
            )
    return dict(content)


def _content(path: Path) -> Mapping[Any, Any]:
    """The file's state dict, with keys and values unchecked."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an unusual pickle protocol
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise Damaged(_refusal(path, str(error))) from None
    except Exception:  # both libraries raise many kinds of errors for damaged files
        raise Damaged(f"{path} cannot be read by PyTorch or safetensors") from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise Damaged(f"{path} holds no state dict; give a checkpoint of the model's weights")
    return content


def _shared_parts(
    entries: dict[str, Tensor], expected: dict[str, str]
) -> tuple[list[str], dict[str, Tensor], dict[str, str]]:
    """The parts that the file lacks, and both sides reduced to the parts that they share.

    A part is a top-level module of the model, such as `encoder` or `refinement`. The file may be
    of another method.
    """
    theirs, ours = ({key.partition(".")[0] for key in side} for side in (entries, expected))
    return (
        sorted(ours - theirs),
        {key: value for key, value in entries.items() if key.partition(".")[0] in ours},
        {key: name for key, name in expected.items() if key.partition(".")[0] in theirs},
    )


def _refusal(path: Path, reason: str) -> str:
    """The error sentence for a refused pickle, from torch's message, which names the global."""
    wanted = re.search(r"Unsupported global: GLOBAL (\S+)", reason)
    if wanted is None:
        return f"{path} cannot be read without running code from it; save only the state dict"
    return (
        f"{path} is refused because it is a pickle that runs code ({wanted[1]}); "
        "save only the state dict"
    )


def _compare_classes(
    path: Path, entries: Mapping[str, Tensor], expected: Mapping[str, str], classes: int
) -> None:
    """Refuse a head of another size by its own error, because the remedy is --labels."""
    names = expected.values()
    head = "classify.weight" if "classify.weight" in names else "linear_pred.weight"
    for key, name in expected.items():
        if name == head and key in entries and entries[key].ndim == 4:
            found = len(entries[key])
            if found != classes:
                raise Mismatch(
                    f"{path} has {found} classes, but the model has {classes}; "
                    f"name all {found} of them with --labels"
                )


def _compare(path: Path, entries: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    missing = [key for key in expected if key not in entries]
    surplus = [key for key in entries if key not in expected]
    if missing or surplus:
        parts = [f"lacks {named(missing)}"] if missing else []
        parts += [f"has unknown {named(surplus)}"] if surplus else []
        raise Mismatch(
            f"{path} does not fit the model: it {' and '.join(parts)}; "
            "check --backbone and --dataset"
        )
    shapes = [
        f"{key} {tuple(value.shape)} instead of {tuple(expected[key].shape)}"
        for key, value in entries.items()
        if value.shape != expected[key].shape
    ]
    if shapes:
        raise Mismatch(
            f"{path} has other shapes than the model: {named(shapes)}; "
            "check --backbone and --dataset"
        )
    others = [
        key
        for key, value in entries.items()
        if expected[key].is_floating_point() and not value.is_floating_point()
    ]
    if others:
        raise Damaged(
            f"{path} holds {named(others)} as {entries[others[0]].dtype}; save them as float32"
        )
    broken = [key for key, value in entries.items() if not value.to(expected[key]).isfinite().all()]
    if broken:
        raise Damaged(f"{path} holds NaN, infinite or too large values in {named(broken)}")


def _authors_name(key: str) -> str:
    for pattern, replacement in _AUTHORS:
        key = re.sub(pattern, replacement, key)
    return key


def _conv(index: str) -> str:
    """The authors' name of a layer in a refinement block: convs have a suffix, norms do not."""
    return f"{index}.conv2" if int(index) % 3 == 0 else index
