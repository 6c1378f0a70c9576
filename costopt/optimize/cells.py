"""The variables of one job in the mixed-integer program, by option or gang and slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

GangGroup = tuple[int, int]
"""(stage, gang)."""


@dataclass(slots=True)
class ModelVariables:
    """Numbers of the variables x by (option, slot), u and k by (group, slot).

    x counts in shares of ``hours``, its most; ``members`` are the options of a group that the slot
    allows; ``living`` are the groups that run when the plan is made.
    """

    x: dict[tuple[int, int], int] = field(default_factory=dict)
    hours: dict[tuple[int, int], float] = field(default_factory=dict)
    u: dict[tuple[GangGroup, int], int] = field(default_factory=dict)
    k: dict[tuple[GangGroup, int], int] = field(default_factory=dict)
    living: set[tuple[GangGroup, int]] = field(default_factory=set)
    members: dict[tuple[GangGroup, int], list[int]] = field(default_factory=dict)

    def before(self, group: GangGroup, t: int) -> Iterator[GangGroup]:
        """The groups from which a gang can run on into slot t: its own stage, or the one before."""
        stage, gang = group
        return ((s, gang) for s in (stage, stage - 1) if ((s, gang), t - 1) in self.u)
