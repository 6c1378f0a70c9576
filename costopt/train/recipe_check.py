"""What happens where a script's recipe is not the one that a checkpoint was trained with."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch.optim import Optimizer

from costopt.domain.errors import CheckpointError
from costopt.train.optimizer_state import OWN_SETTINGS
from costopt.train.recipe import NONE, Difference, Recipe, find_differences

RecipeChange = Literal["refuse", "apply", "keep"]
CONDITIONS = ("mode", "seed", "global batch", "virtual shards")
"""Settings that are stored among the conditions, as they always were."""
UNKNOWN = "the checkpoint has no recipe, so it is unknown whether settings changed"
BEGAN_AGAIN = "the optimizer's state began again"
MAX_NAMED = 50
MAX_REASONS = 8
OF_GROUP, SCHEDULER, PARAMETERS = " of group ", "scheduler ", "parameters of group "
WITHOUT_STATE = ("maximize ", "nesterov ")
"""Switches of optimizers that change nothing of their state."""


@dataclass(frozen=True, slots=True)
class RecipeComparison:
    """How a script differs from what was saved: in settings, and in what may not matter."""

    settings: tuple[Difference, ...] = ()
    notes: tuple[Difference, ...] = ()
    is_known: bool = True

    def encode(self) -> list[Any]:
        """Return the comparison as it is sent to other ranks."""
        kinds = (self.settings, self.notes)
        return [[[d.name, d.before, d.now] for d in kind] for kind in kinds] + [self.is_known]

    @classmethod
    def decode(cls, sent: Sequence[Any]) -> RecipeComparison:
        """Return what was sent."""
        settings, notes = (tuple(Difference(*each) for each in kind) for kind in sent[:2])
        return cls(settings, notes, sent[2])


class RecipeCheck:
    """Compares recipes, and settles a difference as the user says.

    Made when optimizer and scheduler are as the script makes them. ``stored`` is the recipe that is
    trained with: where the saved one is used on, that is not the script's. ``conditions`` are those
    of this process. ``found`` and ``reasons`` are what ``settle`` last accepted and returned.
    """

    def __init__(
        self,
        recipe: Recipe,
        changed: RecipeChange,
        optimizer: Optimizer | None,
        scheduler: Any,
        conditions: Mapping[str, str],
    ) -> None:
        self._own = recipe
        self.stored = recipe.encode()
        self.found = RecipeComparison()
        self.reasons: list[str] = []
        self.changed: RecipeChange = changed
        self.conditions = conditions
        self._optimizer, self._scheduler = optimizer, scheduler
        self._groups = [] if optimizer is None else _copied_groups(optimizer)
        self._schedule = None if scheduler is None else copy.deepcopy(scheduler.state_dict())

    def compare(
        self,
        stored: object,
        before: Mapping[str, str],
        weights: Iterable[Difference] = (),
    ) -> RecipeComparison:
        """Compare the script's recipe with a stored one; ``before`` were the conditions then.

        ``weights`` are differences that were found in what was saved itself. What another version
        of PyTorch or Python names or compiles otherwise is only noted.
        """
        known, now = Recipe.decode(stored), self.conditions
        moved = find_differences(*({n: v[n] for n in CONDITIONS if n in v} for v in (before, now)))
        settings, notes = [*moved, *weights], list[Difference]()
        for found in () if known is None else find_differences(known.settings, self._own.settings):
            is_other_torch = before.get("torch") != now.get("torch") and NONE in found.values
            is_other_python = before.get("Python") != now.get("Python") and found.has_code
            (notes if is_other_torch or is_other_python else settings).append(found)
        if known is not None:
            notes += find_differences(known.notes, self._own.notes)
        return RecipeComparison(tuple(settings), tuple(notes), known is not None)

    def settle(self, found: RecipeComparison, source: str) -> list[str]:
        """Return why bit-equality is not proven. Raise CheckpointError for refused differences."""
        refused = [d for d in found.settings if not self._is_accepted(d)]
        if refused:
            raise _refusal(source, refused, self.changed)
        saved = {d.name: d.before for d in found.settings} if self.changed == "keep" else {}
        self.stored = Recipe({**self._own.settings, **saved}, self._own.notes).encode()
        reasons = [_reason(difference, self.changed) for difference in found.settings]
        reasons += [f"{d.name} {d.before} became {d.now}" for d in found.notes]
        if len(reasons) > MAX_REASONS:
            more = len(reasons) - MAX_REASONS
            reasons = [*reasons[:MAX_REASONS], f"{more} more settings changed"]
        self.found = found
        if self.replaces_optimizer:
            reasons.append(BEGAN_AGAIN)
        self.reasons = reasons if found.is_known else [*reasons, UNKNOWN]
        return self.reasons

    @property
    def replaces_optimizer(self) -> bool:
        """Whether the saved state of the optimizer is not this one's, which starts fresh."""
        return self.changed == "apply" and any(map(_replaces_state, self.found.settings))

    @property
    def replaces_schedule(self) -> bool:
        """Whether the script's learning rates and schedule are used instead of the saved ones."""
        moved = any(n.startswith((f"lr{OF_GROUP}", "scheduler")) for n in self._applied_names())
        return moved or self.replaces_optimizer

    def apply(self, step: int) -> None:
        """Use the script's settings where they differ and the user says so.

        A schedule is then where it would be, had it been used from the beginning.
        """
        names, is_schedule = self._applied_names(), self.replaces_schedule
        if self._optimizer is None or not names:
            return
        for number, (group, own) in enumerate(
            zip(self._optimizer.param_groups, self._groups, strict=True)
        ):
            for key, value in own.items():
                if is_schedule or f"{key}{OF_GROUP}{number}" in names:
                    group[key] = value.clone() if isinstance(value, Tensor) else value
        if is_schedule and self._scheduler is not None:
            self._scheduler.load_state_dict(copy.deepcopy(self._schedule))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # no step of the optimizer came before
                for _ in range(step):
                    self._scheduler.step()

    def saved_value(self, name: str) -> str | None:
        """Return the saved value of a setting that is used on; None if the script's is used."""
        if self.changed != "keep":
            return None
        return next((d.before for d in self.found.settings if d.name == name), None)

    def _applied_names(self) -> set[str]:
        if self.changed != "apply":
            return set()
        # Without a recipe all of the script's are used, unless a schedule is not known here.
        is_moved = any("initial_lr" in group for group in self._groups) and self._scheduler is None
        if not self.found.is_known and not is_moved:
            return set(self._own.settings)
        return {d.name for d in self.found.settings}

    def _is_accepted(self, found: Difference) -> bool:
        if self.changed == "keep":
            return _is_in_state(found)
        return self.changed == "apply"


def _is_in_state(found: Difference) -> bool:
    """Whether the value that was saved can be used: it lies in the state or is the loop's."""
    if found.name == "clip_norm":
        return True
    if NONE in found.values or found.has_code:
        return False
    of_group = OF_GROUP in found.name and not found.name.startswith(PARAMETERS)
    is_part = found.name.startswith(SCHEDULER) and not found.name.split()[-1].isdigit()
    return of_group or is_part


def _replaces_state(found: Difference) -> bool:
    """Whether an optimizer keeps other state for the parameters with the other setting.

    That is another class, other parameters, another dtype, or what switches a part of the state on,
    as amsgrad.
    """
    if found.name == "optimizer" or found.name.startswith((PARAMETERS, "weights ")):
        return True
    is_boolean = not {"True", "False"}.isdisjoint(found.values)
    is_switch = is_boolean and not found.name.startswith(WITHOUT_STATE)
    return OF_GROUP in found.name and (is_switch or found.name.startswith("momentum "))


def _reason(found: Difference, changed: RecipeChange) -> str:
    if changed == "keep":
        return f"{found.name} stayed {found.before} although the script says {found.now}"
    return f"{found.name} {found.before} became {found.now}"


def _refusal(source: str, refused: Sequence[Difference], changed: RecipeChange) -> CheckpointError:
    named = "; ".join(map(str, refused[:MAX_NAMED]))
    more = f"; and {len(refused) - MAX_NAMED} more" if len(refused) > MAX_NAMED else ""
    hint = (
        'restore the settings, or pass changed="apply" to train on with the new ones or '
        'changed="keep" with the old ones: the result is then not exact'
    )
    if changed == "keep":
        hint = (
            'restore these settings in the script, or pass changed="apply" to train on with the '
            "new ones: they are not part of what was saved"
        )
    return CheckpointError(
        f"{source} was trained with other settings: {named}{more}", hint=hint, code="other_recipe"
    )


def _copied_groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [
        {
            key: value.clone() if isinstance(value, Tensor) else copy.copy(value)
            for key, value in group.items()
            if key not in OWN_SETTINGS
        }
        for group in optimizer.param_groups
    ]
