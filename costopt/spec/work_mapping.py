"""The work of a job file and the speed that its ``takes`` states, as the domain has them."""

from __future__ import annotations

from collections.abc import Callable

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import WorkAmount, WorkUnit
from costopt.domain.model_card import DerivedFigure, ModelCard
from costopt.domain.throughput import ThroughputSample
from costopt.spec.catalog_names import UNKNOWN_NAME, gpu_model_error
from costopt.spec.job_file import JobFile
from costopt.spec.takes_section import WHOLE_JOB
from costopt.spec.yaml_document import VALUE_ERROR, FieldPath

Refuse = Callable[[FieldPath, str, str], None]


def work_amount(
    file: JobFile, card: ModelCard | None, derived: list[DerivedFigure], refuse: Refuse
) -> WorkAmount:
    """Return the work that the file states, else the tokens of its model."""
    if card is not None and (card.active_params or 0) > card.params:
        message = f"{card.active_params:g} is above params, {card.params:g}"
        refuse(("model", "active_params"), message, VALUE_ERROR)
    if file.work is not None:
        return WorkAmount(file.work.amount, file.work.unit)
    if card is None and file.takes is not None and file.takes.amount is None:
        return WHOLE_JOB
    if card is None or card.tokens is None:
        if card is None:
            refuse(("work",), "is missing: how much is to be done, such as 10 epochs", "missing")
        else:
            refuse(("model", "tokens"), "is missing: how much is to be done", "missing")
        return WorkAmount(1.0, WorkUnit.TOKENS)
    stated = Estimate.exact(card.tokens, Basis.LISTED, "model.tokens")
    derived.append(DerivedFigure("work", "tokens", stated))
    return WorkAmount(card.tokens, WorkUnit.TOKENS)


def taken_sample(file: JobFile, work: WorkAmount, refuse: Refuse) -> ThroughputSample | None:
    """Return the speed that ``takes`` states, None where it states none."""
    takes = file.takes
    if takes is None:
        return None
    sample = None
    try:
        sample = takes.sample(work)
    except ValueError as error:
        refuse(("takes", "per"), str(error), VALUE_ERROR)
    except ZeroDivisionError:
        refuse(("takes", "time"), "expected a duration above 0", VALUE_ERROR)
    else:
        reason = gpu_model_error(sample.gpu_model)
        if reason is not None:
            refuse(("takes", "on"), reason, UNKNOWN_NAME)
    return sample
