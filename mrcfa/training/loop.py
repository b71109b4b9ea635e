"""The training loop: steps of AdamW, log entries, checkpoints and validations."""

import math
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, default_collate

from mrcfa.data.dataset import LabelledVideos
from mrcfa.data.datasets import labelled_videos
from mrcfa.errors import (
    AlreadyExists,
    Damaged,
    InvalidValue,
    Mismatch,
    MrcfaError,
    NotFound,
    RuntimeFailed,
    counted,
    named,
)
from mrcfa.machine.extras import MissingExtra
from mrcfa.machine.files import PARTIAL, CannotWrite
from mrcfa.machine.interrupts import ENDING, first_interrupt
from mrcfa.model.config import Config
from mrcfa.model.methods import build_model
from mrcfa.model.weights import load_weights
from mrcfa.training.checkpoints import Facts, load_state, read_facts, save_last, save_model
from mrcfa.training.clips import Clips, Shard
from mrcfa.training.log import Log, entries_of
from mrcfa.training.processes import Process, joined, share_norms
from mrcfa.training.recipe import Precision, Recipe
from mrcfa.training.report import write_report
from mrcfa.training.runs import BEST, LAST
from mrcfa.training.stopwatch import Stopwatch, profile
from mrcfa.training.trainee import Trainee, parameter_groups, start_classifiers
from mrcfa.training.validation import validate

Report = Callable[[str], None]
"""Called with a sentence for the user."""
Progress = Callable[[int, float], None]
"""Called after each step with the number of finished iterations and the loss."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that do not affect the weights."""

    run: Path
    """Folder for checkpoints, log and report."""
    workers: int = 2
    validate_every: int = 2000
    save_every: int = 200
    resume: bool = False
    compile: bool = False
    """Compile the model with torch.compile, which takes minutes and needs a C++ compiler."""
    profile: int | None = None
    """Number of steps after which their mean timing is reported."""


def train(
    root: Path,
    config: Config,
    recipe: Recipe,
    options: RunOptions,
    weights: Path | None = None,
    progress: Progress = lambda iteration, loss: None,
    report: Report = lambda sentence: None,
) -> Path:
    """Train on the dataset at `root`; return the path of the best checkpoint."""
    with joined(recipe.batch) as process:
        found = resumable(options.run) if options.resume else None
        if found is None and process.leads:
            _check_free(options.run)
        videos = labelled_videos(root, "train", config.depth)
        held_back = labelled_videos(root, "val", config.depth)
        clips = Clips(videos, config.references, config.size, recipe)
        facts = Facts(
            config,
            videos.labels,
            recipe,
            0,
            validate_every=options.validate_every,
            save_every=options.save_every,
        )
        if found is not None:
            facts = _continued(options.run, found, facts)
        model = build_model(config, seed=recipe.seed)
        torch.manual_seed(recipe.seed)
        start_classifiers(model)
        if found is not None:
            load_weights(model, options.run / LAST)
        elif weights is not None:
            new = load_weights(model, weights, to_train=True)
            if new and process.leads:
                report(f"{weights} has no weights that fit {named(new)}; these start from random")
        trainee = Trainee(model, recipe).to(process.device).train()
        share_norms(trainee, process)
        optimizer = torch.optim.AdamW(parameter_groups(trainee, recipe), betas=recipe.betas)
        if found is not None:
            load_state(options.run, trainee, optimizer, found.iteration)
        elif process.leads:
            options.run.mkdir(parents=True, exist_ok=True)
        process.wait()
        if process.leads:
            height, width = config.size
            report(
                f"training {config.method.display_name} {config.backbone} at {height}x{width} on "
                f"{process.device} in {recipe.precision.value}: iterations {facts.iteration} to "
                f"{recipe.iterations}, {counted(recipe.batch, 'clip')} per iteration"
            )
        run = _Run(process, options, trainee, optimizer, clips, held_back, report)
        with _killed_workers_reported():
            run.go(facts, progress if process.leads else lambda iteration, loss: None)
    return options.run / BEST


class _Run:
    """The state of one process during training; only the first writes logs and checkpoints."""

    def __init__(
        self,
        process: Process,
        options: RunOptions,
        trainee: Trainee,
        optimizer: torch.optim.Optimizer,
        clips: Clips,
        held_back: LabelledVideos,
        report: Report,
    ) -> None:
        self._process, self._options, self._report = process, options, report
        self._trainee, self._optimizer = trainee, optimizer
        self._clips, self._held_back = clips, held_back
        self._write_error = ""
        self._watch = Stopwatch(process.device, exact=options.profile is not None)
        self._learner: Callable[[Tensor, Tensor], Tensor] = trainee
        if process.world > 1:
            # Without MAA, queries and keys of the middle scales are unused.
            unused = not trainee.model.config.maa
            self._learner = DistributedDataParallel(trainee, find_unused_parameters=unused)
        if options.compile:
            # Checkpoints are written from the trainee itself, so parameter names stay.
            self._learner = torch.compile(self._learner)

    def go(self, facts: Facts, progress: Progress) -> None:
        """Train to the end; on Ctrl-C, save after the step and raise KeyboardInterrupt."""
        run = self._options.run
        log = Log(run, facts.iteration) if self._process.leads else None
        timed: list[dict[str, float]] = []
        with first_interrupt() as interrupted:
            if log is not None and self._validation_is_missing(facts):
                facts = self._validated(facts, log, interrupted)
            for iteration, loss, seconds in self._steps(facts):
                self._check_finite(iteration, loss, facts.recipe)
                facts = replace(facts, iteration=iteration + 1)
                stopped = self._process.any(interrupted.is_set())
                if log is not None:
                    rate = facts.recipe.learning_rate * facts.recipe.learning_rate_at(iteration)
                    line = {"loss": loss, "rate": rate, "seconds": seconds}
                    facts = self._recorded(facts, log, line, stopped, interrupted)
                    if len(timed) < (self._options.profile or 0):
                        timed.append(seconds)
                        if len(timed) == self._options.profile:
                            # The first step includes the start of the workers.
                            self._report(profile(timed[1:] or timed))
                progress(facts.iteration, loss)
                if stopped and facts.iteration < facts.recipe.iterations:
                    raise KeyboardInterrupt
        self._process.wait()
        if log is not None:
            log.close()

    def _recorded(
        self,
        facts: Facts,
        log: Log,
        line: dict[str, Any],
        stopped: bool,
        interrupted: threading.Event,
    ) -> Facts:
        """Log a step; save and validate if due. Return the updated metadata.

        A full disk ends a run only where it would end anyway. Validation comes after saving, so
        that it can be interrupted.
        """
        run, ended = self._options.run, facts.iteration == facts.recipe.iterations
        try:
            log.write(facts.iteration, **line)
            due = _validation_is_due(facts)
            if due or stopped or facts.iteration % facts.save_every == 0:
                save_last(run, self._trainee, self._optimizer, facts)
            if due:
                facts = self._validated(facts, log, interrupted)
        except CannotWrite as error:
            if ended or stopped:
                raise CannotWrite(f"{error}; free space and finish the run with --resume") from None
            if str(error) != self._write_error:
                self._report(f"{error}; the run continues, and {run / LAST} stays as it was")
            self._write_error = str(error)
        return facts

    def _validation_is_missing(self, facts: Facts) -> bool:
        """True if a resumed run was interrupted during the validation after its last save."""
        return _validation_is_due(facts) and not any(
            entry["iteration"] == facts.iteration and "miou" in entry
            for entry in entries_of(self._options.run)
        )

    def _validated(self, facts: Facts, log: Log, interrupted: threading.Event) -> Facts:
        """Validate, and save the model if it is the best so far; return the updated metadata."""
        run, model = self._options.run, self._trainee.model
        scores = validate(model, self._held_back, interrupted)
        log.write(
            facts.iteration,
            miou=scores.miou,
            single_miou=scores.single_miou,
            **{f"mvc{length}": value for length, value in scores.mvc.items()},
        )
        self._report(
            f"iteration {facts.iteration}: mIoU {scores.miou:.4f}, "
            f"single-frame head {scores.single_miou:.4f}"
        )
        best = read_facts(run / BEST) if (run / BEST).is_file() else None
        facts = replace(facts, score=scores.miou)
        if best is None or best.score is None or not scores.miou <= best.score:
            save_model(run / BEST, model, facts)
        with suppress(MissingExtra):  # the report is optional
            write_report(run, list(entries_of(run)), facts, scores.strip)
        return facts

    def _check_finite(self, iteration: int, loss: float, recipe: Recipe) -> None:
        if not math.isfinite(loss):
            first = iteration * recipe.batch
            clips = named(self._clips.name_of(first + index) for index in range(recipe.batch))
            raise MrcfaError(
                f"the loss is {loss} at iteration {iteration + 1} (clips {clips}); "
                f"{self._options.run / LAST} was saved before: start from it with --weights and a "
                "lower --learning-rate"
            )

    def _steps(self, facts: Facts) -> Iterator[tuple[int, float, dict[str, float]]]:
        """Number, loss and seconds per part of each iteration."""
        recipe, process = facts.recipe, self._process
        loader = DataLoader(
            _WithErrors(self._clips),
            batch_size=recipe.batch // process.world,
            sampler=Shard(recipe, facts.iteration, process.rank, process.world),
            num_workers=self._options.workers,
            collate_fn=_collated,
            worker_init_fn=_ignore_interrupts,
            persistent_workers=self._options.workers > 0,
            pin_memory=process.device.type == "cuda",
        )
        rates = [group["lr"] for group in self._optimizer.param_groups]
        self._watch.restart()
        for iteration, batch in enumerate(loader, facts.iteration):
            self._watch.lap("data")
            if isinstance(batch, MrcfaError):
                raise batch
            frames, labels = batch
            for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * recipe.learning_rate_at(iteration)
            # Seed dropout by the iteration, so that a resumed run is the same.
            torch.manual_seed((recipe.seed * 1_000_003 + iteration) * 64 + process.rank)
            loss = self._step(frames.to(process.device), labels.to(process.device), recipe)
            yield iteration, loss, self._watch.seconds
            self._watch.restart()

    def _step(self, frames: Tensor, labels: Tensor, recipe: Recipe) -> float:
        """Do one step and return the loss over all processes; skip the update if it is not finite.

        DistributedDataParallel averages gradients, but the loss already divides by the pixels of
        all processes, so it is multiplied by their number.
        """
        kind, narrow = self._process.device.type, recipe.precision is Precision.BF16
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, torch.bfloat16, enabled=narrow):
            sums = self._learner(frames, labels)
        with torch.no_grad():
            everywhere = self._process.total(sums.detach())
        counted = torch.stack([sums[:, 0], everywhere[:, 1]], dim=1)
        loss = self._trainee.loss(counted)
        whole: float = self._trainee.loss(everywhere).item()
        self._watch.lap("forward")
        if math.isfinite(whole):
            (loss * self._process.world).backward()
            self._watch.lap("backward")
            self._optimizer.step()
            self._watch.lap("optimizer")
        return whole


def resumable(run: Path) -> Facts:
    """The metadata of the last save of a run, from which the run can be resumed."""
    if not (run / LAST).is_file():
        raise NotFound(f"{run} has no {LAST} to resume from; start it without --resume")
    found = read_facts(run / LAST)
    if found is None:
        raise Damaged(f"{run / LAST} was not written by mrcfa train; start a new run")
    return found


def _continued(run: Path, found: Facts, facts: Facts) -> Facts:
    """The metadata of a resumed run; all settings except the iterations must be as before."""
    other = [
        f"{part} {field.name} {theirs}, not {ours}"
        for part in ("config", "labels", "recipe")
        for field in fields(getattr(facts, part))
        if field.name != "iterations"
        and (theirs := getattr(getattr(found, part), field.name))
        != (ours := getattr(getattr(facts, part), field.name))
    ]
    if other:
        raise Mismatch(
            f"{run} was started with {'; '.join(other)}; leave these options out to resume it with "
            "its own settings, or start a new run"
        )
    if facts.recipe.iterations < found.iteration:
        raise InvalidValue(
            f"{run} has already done {counted(found.iteration, 'iteration')}; --iterations "
            f"{facts.recipe.iterations} must be at least that"
        )
    return replace(facts, iteration=found.iteration, score=found.score)


def _check_free(run: Path) -> None:
    """Refuse a folder with checkpoints or other files; files of a run before its first save are
    allowed, and written again."""
    names = {path.name for path in run.iterdir()} if run.is_dir() else set()
    if LAST in names:
        raise AlreadyExists(
            f"{run} already holds a run; continue it with --resume, or name another folder with -o"
        )
    if BEST in names:
        raise AlreadyExists(
            f"{run} holds {BEST} but no {LAST} to resume; name another folder with -o and start "
            f"with --weights {run / BEST}"
        )
    foreign = sorted(name for name in names if not _LEFT_BEHIND.match(name))
    if foreign:
        raise AlreadyExists(
            f"{run} holds other files ({named(foreign, most=3)}); name another folder with -o"
        )


_LEFT_BEHIND = re.compile(
    rf"log\.jsonl$|state\.\d+\.safetensors$|events\.out\.|\..*{re.escape(PARTIAL)}$"
)


def _validation_is_due(facts: Facts) -> bool:
    ended = facts.iteration == facts.recipe.iterations
    return facts.iteration > 0 and (facts.iteration % facts.validate_every == 0 or ended)


@contextmanager
def _killed_workers_reported() -> Iterator[None]:
    """Turn PyTorch's error for a killed worker, which any line may raise, into a sentence."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        raise RuntimeFailed(
            "a process that reads clips was killed, probably because memory or shared memory ran "
            "out; use fewer --workers"
        ) from None


class _WithErrors(Dataset[Any]):
    """Samples, or the error raised instead; a worker that raises it would lose its kind."""

    def __init__(self, clips: Clips) -> None:
        self._clips = clips

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor] | MrcfaError:
        try:
            return self._clips[number]
        except MrcfaError as error:
            return error


def _collated(samples: list[Any]) -> Any:
    errors = (sample for sample in samples if isinstance(sample, MrcfaError))
    return next(errors, None) or default_collate(samples)


def _ignore_interrupts(worker: int) -> None:
    """Ignore the terminal's signals in a worker, because the training process ends it."""
    for number in set(ENDING) - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
