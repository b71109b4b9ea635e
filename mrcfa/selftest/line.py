"""`Line`: one result of the self-test (works, does not, not run); `line_of` runs one check."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from mrcfa.bundle import Unfit
from mrcfa.errors import MrcfaError
from mrcfa.machine.extras import MissingExtra


class Outcome(str, Enum):
    WORKS = "works"
    FAILS = "does not"
    NOT_RUN = "not run"


_SIGNS = {Outcome.WORKS: "✓", Outcome.FAILS: "✗", Outcome.NOT_RUN: "-"}


class NotRun(MrcfaError):
    """A check cannot run on this machine; the message says why."""


class Fault(MrcfaError):
    """A check failed; the message says why, `remedy` what to do about it."""

    def __init__(self, why: str, remedy: str, **facts: Any) -> None:
        super().__init__(why)
        self.remedy, self.facts = remedy, facts


@dataclass(frozen=True)
class Found:
    """Result of a passed check, in words and in figures."""

    words: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    subject: str
    """The thing that was checked: the machine, an engine, a backend."""
    check: str
    outcome: Outcome
    words: str
    """The result in words, or the reason why the check failed or was not run."""
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        words = f"{self.words}; {self.remedy}" if self.remedy else self.words
        name = f"{self.subject:30} {self.check:16}"
        return f"{_SIGNS[self.outcome]} {name} {self.outcome.value}: {words}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, text: str) -> "Line":
        content = json.loads(text)
        return cls(**{**content, "outcome": Outcome(content["outcome"])})


REPORT = "report a bug, with the file that --json writes"


def line_of(subject: str, check: str, examine: Callable[[], Found]) -> Line:
    """Run one check. Something that this machine lacks makes it "not run"; other errors fail."""
    began = time.perf_counter()
    outcome, words, remedy, facts = Outcome.WORKS, "", "", dict[str, Any]()
    try:
        found = examine()
        words, facts = found.words, dict(found.facts)
    except (NotRun, MissingExtra, Unfit) as error:
        outcome, words = Outcome.NOT_RUN, _sentence(error)
    except Fault as error:
        outcome, words, remedy, facts = Outcome.FAILS, _sentence(error), error.remedy, error.facts
    except MrcfaError as error:  # its message names the remedy
        outcome, words = Outcome.FAILS, _sentence(error)
    except Exception as error:  # any error of a runtime
        outcome, words = Outcome.FAILS, f"{type(error).__name__}: {_sentence(error)}"
        remedy = REPORT
    return Line(subject, check, outcome, words, remedy, facts, time.perf_counter() - began)


def _sentence(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
