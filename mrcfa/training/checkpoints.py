"""Checkpoints as safetensors: the model with its config and labels, and the state beside it.

`last` names its state file by the iteration, and that is written first: whenever a run is killed,
`last` and the state that belongs to it are both whole.
"""

import json
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from mrcfa.data.decoding import Damage, from_json
from mrcfa.data.labels import Labels
from mrcfa.errors import Damaged, InvalidValue, NotFound
from mrcfa.machine.files import CannotWrite, write_whole
from mrcfa.model.config import Config
from mrcfa.model.segformer import SegFormer
from mrcfa.training.recipe import Recipe
from mrcfa.training.runs import LAST
from mrcfa.training.trainee import Trainee

FIELD = "mrcfa"
"""The entry of a file's metadata that holds `Facts` as JSON."""
LONGEST = 1 << 20
"""Characters of it; those of 255 classes are a twentieth."""
FP16_BYTES = 2
"""Of a weight, at least: `publish` halves them."""


@dataclass(frozen=True)
class Facts:
    """What a checkpoint says of itself."""

    config: Config
    labels: Labels
    recipe: Recipe
    iteration: int
    """How many iterations it has seen."""
    score: float | None = None
    """mIoU of the last validation."""
    validate_every: int = 2000
    save_every: int = 200

    def __post_init__(self) -> None:
        classes, labels = self.config.classes, self.labels
        counts = {len(labels.names), len(labels.colours), len(labels.values)}
        if counts != {classes}:
            raise InvalidValue(f"names, colours and values are not {classes} each")
        numbers = (*labels.values, *labels.ignore, *chain(*labels.colours))
        if not all(0 <= number <= 255 for number in numbers):
            raise InvalidValue("a colour or value of a class is no number from 0 to 255")
        if len(set(labels.values)) < classes or len(set(labels.names)) < classes:
            raise InvalidValue("two classes have the same name or value")


def read_facts(path: Path) -> Facts | None:
    """Of a checkpoint that training wrote; None for any other safetensors file."""
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(FIELD)
        if text is None:
            return None
        if len(text) > LONGEST:
            raise Damage(f"it has {len(text)} characters")
        facts = from_json(Facts, json.loads(text))
        if facts.config.block_parameters * FP16_BYTES > path.stat().st_size:
            raise Damage("it asks for a larger model than the file has weights of")
        return facts
    except (Damage, ValueError) as error:
        raise Damaged(f"{path} has damaged metadata: {error}") from None
    except Exception as error:  # safetensors raises its own kind, or OSError
        raise Damaged(f"{path} is no checkpoint that safetensors can read: {error}") from None


def save_model(path: Path, model: SegFormer, facts: Facts) -> None:
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    write_whole(path, save(weights, {FIELD: json.dumps(asdict(facts))}))


def publish(checkpoint: Path, path: Path) -> None:
    """A checkpoint in FP16, half the size, to be handed on: its facts stay with it."""
    with safe_open(checkpoint, "pt") as file:
        metadata = file.metadata()
    weights = load_file(checkpoint)
    halved = {name: w.half() if w.is_floating_point() else w for name, w in weights.items()}
    write_whole(path, save(halved, metadata))


def save_last(run: Path, trainee: Trainee, optimizer: torch.optim.Optimizer, facts: Facts) -> None:
    state = {f"head.{name}": weight for name, weight in trainee.deco.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            state[f"optimizer.{number}.{name}"] = torch.as_tensor(value)
    contiguous = {name: value.contiguous() for name, value in state.items()}
    path = _state_file(run, facts.iteration)
    write_whole(path, save(contiguous))
    try:
        save_model(run / LAST, trainee.model, facts)
    except CannotWrite:
        path.unlink(missing_ok=True)  # of no use without its model, and a disk may be full of them
        raise
    for old in run.glob("state.*.safetensors"):
        if old != path:
            old.unlink(missing_ok=True)


def load_state(
    run: Path, trainee: Trainee, optimizer: torch.optim.Optimizer, iteration: int
) -> None:
    """Classifiers and optimizer as they were after that iteration."""
    path = _state_file(run, iteration)
    if not path.is_file():
        raise NotFound(f"{path} is missing, so {run} cannot be resumed; start a new run")
    try:
        entries = load_file(path)
        heads = {key[5:]: value for key, value in entries.items() if key.startswith("head.")}
        trainee.deco.load_state_dict(heads)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in entries.items():
            if key.startswith("optimizer."):
                _, number, name = key.split(".")
                state.setdefault(int(number), {})[name] = value
        groups: Any = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (SafetensorError, OSError, ValueError, RuntimeError):
        raise Damaged(
            f"{path} is damaged, so {run} cannot be resumed; start a new run with "
            f"--weights {run / LAST}"
        ) from None


def _state_file(run: Path, iteration: int) -> Path:
    return run / f"state.{iteration}.safetensors"
