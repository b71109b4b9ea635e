"""Command-line options that several verbs share, and parsers for sizes, offsets and names.

Text that cannot be parsed is an error that shows an example.
"""

from functools import partial
from typing import Annotated, Any

import typer

from mrcfa.console.notices import warn
from mrcfa.errors import InvalidValue

ADVANCED = "Advanced"
ablation = partial(typer.Option, rich_help_panel="Paper's ablations")
advanced = partial(typer.Option, rich_help_panel=ADVANCED)
"""Rare options, which have panels of their own in `--help`."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
References = Annotated[
    str | None,
    ablation(
        metavar="N,N,…",
        help="Frames from each reference to the target, such as 9,6,3. Default: the preset's.",
    ),
]
Keep = Annotated[
    float | None,
    ablation(
        metavar="SHARE",
        help="Share of a reference's tokens that STM keeps. Default: 0.8 for b0, 0.5 for others.",
    ),
]
Scales = Annotated[
    int | None,
    ablation(
        metavar="N", help="Number of affinity scales, 1 to 4, from 1/32 on. Default: the preset's."
    ),
]
Sar = Annotated[bool, ablation("--sar/--no-sar", help="Refine the affinities of each scale (SAR).")]
Maa = Annotated[
    bool, ablation("--maa/--no-maa", help="Aggregate the affinities over the scales (MAA).")
]


def parse_size(text: str) -> tuple[int, int]:
    """Parse `480x864` as (480, 864); sizes in mrcfa are always height first."""
    first, _, second = text.partition("x")
    if not (first.isdecimal() and second.isdecimal() and int(first) and int(second)):
        raise InvalidValue(f"{text!r} is not a size; write HxW, such as 480x864")
    return int(first), int(second)


def warn_of_swap(option: str, size: tuple[int, int], usual: tuple[int, int], owner: str) -> None:
    """Warn if one of the two sizes is portrait and the other landscape.

    `owner` names the usual size in the warning, such as "the bundle's".
    """
    height, width = size
    if (height - width) * (usual[0] - usual[1]) < 0:
        warn(
            f"{option} {height}x{width} is {height} pixels high and {width} wide, but {owner} size "
            f"is {usual[0]}x{usual[1]}; sizes are HxW, so you may mean {option} {width}x{height}"
        )


def parse_offsets(text: str) -> tuple[int, ...]:
    """Parse `9,6,3` as (9, 6, 3)."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidValue(f"{text!r} is not a list of offsets; write it like 9,6,3") from None


def config_changes(
    size: str | None,
    references: str | None,
    keep: float | None,
    scales: int | None,
    sar: bool,
    maa: bool,
) -> dict[str, Any]:
    """The fields of `Config` that options change: the size, and those of the paper's ablations."""
    changes: dict[str, Any] = {}
    if size is not None:
        changes["size"] = parse_size(size)
    if references is not None:
        changes["references"] = parse_offsets(references)
    if keep is not None:
        changes["keep"] = keep
    if scales is not None:
        changes["scales"] = scales
    if not sar:
        changes["sar"] = False
    if not maa:
        changes["maa"] = False
    return changes


def parse_names(text: str) -> list[str]:
    """Parse `a, b` as ["a", "b"]."""
    return [name.strip() for name in text.split(",") if name.strip()]
