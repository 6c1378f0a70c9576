"""Work and speed as people say them: 10 epochs, of which each takes 40 minutes on one A100."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field
from pydantic_core import PydanticCustomError

from costopt.domain.job import WorkAmount, WorkUnit
from costopt.domain.throughput import ThroughputSample
from costopt.spec.fields import AMOUNT, DurationS, FileModel, Text, parse_amount
from costopt.spec.gpu_text import GPUS, split_gpus

_WORDS = {
    r"epochs?": WorkUnit.EPOCHS,
    r"(?:step|iteration)s?|batch(?:es)?": WorkUnit.STEPS,
    r"samples?": WorkUnit.SAMPLES,
    r"tokens?": WorkUnit.TOKENS,
    r"tasks?": WorkUnit.TASKS,
    r"percent": WorkUnit.PERCENT,
}
_UNIT = "|".join(_WORDS)
WORK = re.compile(rf"^ *({AMOUNT.pattern}) +({_UNIT}) *$")
"""An amount and its unit; its first and last groups."""
PER = re.compile(rf"^(?:({AMOUNT.pattern}) +)?({_UNIT}|(?:whole )?job)$")
WHOLE_JOB = WorkAmount(100.0, WorkUnit.PERCENT)
"""The work of a job that says only how long it takes."""


def _unit(word: str) -> WorkUnit | None:
    return next((unit for words, unit in _WORDS.items() if re.fullmatch(words, word)), None)


def parse_work(value: object) -> object:
    """Return the fields of a text such as 10 epochs or 2B tokens; a mapping as it is."""
    if isinstance(value, dict):
        return value
    match = WORK.match(value) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError(
            "work", "expected an amount and its unit, such as 10 epochs or 2B tokens"
        )
    return {"amount": parse_amount(match[1]), "unit": _unit(match[match.re.groups])}


class TakesSection(FileModel):
    """How long a unit of work took on GPUs of one model: a measured speed."""

    per: Annotated[Text, Field(pattern=PER.pattern)] = Field(
        description="what took the time: epoch, step, 1000 steps, sample, token, task, or job for "
        "all of the work"
    )
    time: DurationS = Field(description="how long it took")
    on: Annotated[Text, Field(pattern=f"^(?:{GPUS.pattern})$")] = Field(
        description="the GPUs that did it together: 1xA100, or A100 alone for one"
    )

    @property
    def amount(self) -> WorkAmount | None:
        """Return the work that took the time; None: all of the job's."""
        match = PER.match(self.per)
        assert match is not None
        unit = _unit(match[match.re.groups])
        count = parse_amount(match[1]) if match[1] else 1.0
        assert isinstance(count, float)
        return None if unit is None else WorkAmount(count, unit)

    def sample(self, work: WorkAmount) -> ThroughputSample:
        """Return the speed, in units of the job's work. Raise ValueError where it has others."""
        amount = self.amount or work
        if amount.unit is not work.unit:
            raise ValueError(
                f"counts {amount.unit.value}, and work counts {work.unit.value}: name one unit in "
                "both"
            )
        model, gpus = split_gpus(self.on)
        return ThroughputSample(model, gpus or 1, amount.amount / self.time)
