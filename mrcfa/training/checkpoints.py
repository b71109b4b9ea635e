"""Checkpoints as safetensors: the model with its config and labels, and the optimizer's state.

The state file is written before `last.safetensors` and has the iteration in its name. So a complete
pair of both exists whenever a run is killed.
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
"""Key of the safetensors metadata entry that holds `Facts` as JSON."""
LONGEST = 1 << 20
"""Largest length of that entry in characters; 255 classes need a twentieth of it."""
FP16_BYTES = 2
"""Fewest bytes per weight, because `publish` writes FP16."""


@dataclass(frozen=True)
class Facts:
    """The metadata of a checkpoint."""

    config: Config
    labels: Labels
    recipe: Recipe
    iteration: int
    """Number of finished iterations."""
    score: float | None = None
    """The mIoU of the last validation."""
    validate_every: int = 2000
    save_every: int = 200

    def __post_init__(self) -> None:
        classes, labels = self.config.classes, self.labels
        counts = {len(labels.names), len(labels.colours), len(labels.values)}
        if counts != {classes}:
            raise InvalidValue(f"there are not {classes} names, colours and values")
        numbers = (*labels.values, *labels.ignore, *chain(*labels.colours))
        if not all(0 <= number <= 255 for number in numbers):
            raise InvalidValue("a colour or value of a class is not a number from 0 to 255")
        if len(set(labels.values)) < classes or len(set(labels.names)) < classes:
            raise InvalidValue("two classes have the same name or value")


def read_facts(path: Path) -> Facts | None:
    """The metadata of a checkpoint of `mrcfa train`; None for any other safetensors file."""
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(FIELD)
        if text is None:
            return None
        if len(text) > LONGEST:
            raise Damage(f"it has {len(text)} characters")
        facts = from_json(Facts, json.loads(text))
        if facts.config.block_parameters * FP16_BYTES > path.stat().st_size:
            raise Damage("its config describes a larger model than the file holds")
        return facts
    except (Damage, ValueError) as error:
        raise Damaged(f"{path} has damaged metadata: {error}") from None
    except Exception as error:  # safetensors raises its own kind, or OSError
        raise Damaged(f"{path} is not a checkpoint that safetensors can read: {error}") from None


def save_model(path: Path, model: SegFormer, facts: Facts) -> None:
    """Write the model's weights with their metadata."""
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    write_whole(path, save(weights, {FIELD: json.dumps(asdict(facts))}))


def publish(checkpoint: Path, path: Path) -> None:
    """Write an FP16 copy of a checkpoint, which has half the size and the same metadata."""
    with safe_open(checkpoint, "pt") as file:
        metadata = file.metadata()
    weights = load_file(checkpoint)
    halved = {name: w.half() if w.is_floating_point() else w for name, w in weights.items()}
    write_whole(path, save(halved, metadata))


def save_last(run: Path, trainee: Trainee, optimizer: torch.optim.Optimizer, facts: Facts) -> None:
    """Write the state from which a run can be resumed, and remove the one before."""
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
        path.unlink(missing_ok=True)  # useless without its model, and the disk may be full
        raise
    for old in run.glob("state.*.safetensors"):
        if old != path:
            old.unlink(missing_ok=True)


def load_state(
    run: Path, trainee: Trainee, optimizer: torch.optim.Optimizer, iteration: int
) -> None:
    """Load the reference classifiers and the optimizer as they were after an iteration."""
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
