"""What the durations of past jobs say of those that run: expected remaining work, Gittins index.

Jobs of one tenant, name and class of size form a group. Its histogram of durations (three bins an
octave) is shrunk towards its tenant's, and that towards all jobs', as if some jobs of the larger
set had been seen in the smaller one, so many that the others predict each job best. Only jobs
that have ended count.

The Gittins index of a job of age a is the greatest P(S - a ≤ Δ | S > a) / E[min(S - a, Δ) | S > a]
over Δ: serving the highest index first is optimal for the mean completion time on one machine
(Gittins, 1979; Aalto, Ayesta and Righter, 2009, for unknown service times).
"""

from __future__ import annotations

import numpy as np

from costopt.optimize.rounds.gangs import Flags, Floats, Ints

BINS_PER_OCTAVE = 3
BINS = 75
EDGES_S = 2.0 ** (np.arange(BINS + 1) / BINS_PER_OCTAVE)
"""From a second to more than a year."""
MIDDLES_S = np.sqrt(EDGES_S[:-1] * EDGES_S[1:])
SHRINKAGES = np.array([10.0, 30.0, 3.0, 1.0, 0.3, 0.1])
"""How many, the first where nothing tells."""
RESOLUTION = float(np.log(2)) / BINS_PER_OCTAVE / 2
"""The error, in ln, that a bin's middle may have."""
FORGETTING = 0.98
"""The part of the errors that remains at each refresh, so that groups can become better."""
MIN_JUDGED = 30
"""Ended jobs of a tenant before its groups' predictions are compared with its mean."""


def bin_of(seconds: Floats) -> Ints:
    """Return the bins of ages or durations."""
    bins: Ints = (np.log2(np.maximum(seconds, 1.0)) * BINS_PER_OCTAVE).astype(np.int64)
    return np.minimum(bins, BINS - 1)


class DurationHistory:
    """Durations of ended jobs by group. Looking up is cheap; ``refresh`` applies what was observed.

    ``is_off`` says of which tenants the groups predicted worse than the tenant's mean duration
    would have, by the mean of abs(ln(predicted / actual)) and by more than RESOLUTION: their jobs
    are all predicted from the tenant's histogram until their groups are better again.
    """

    def __init__(self, tenant_of_group: Ints, tenants: int) -> None:
        self._tenant = tenant_of_group
        self._counts = np.zeros((len(tenant_of_group), BINS))
        self._errors = np.zeros((tenants, 2))
        self._judged = np.zeros(tenants)
        self._sum_s = np.zeros(tenants)
        self._ended = np.zeros(tenants)
        self.is_off: Flags = np.zeros(tenants, dtype=bool)
        self.refresh()

    def observe(self, group: Ints, duration_s: Floats) -> None:
        """Add jobs that have ended."""
        tenant = self._tenant[group]
        actual = np.maximum(duration_s, 1.0)
        mean = self._sum_s[tenant] / np.maximum(self._ended[tenant], 1)
        guesses = np.stack([self._by_group_s[group], mean], axis=1)
        errors = np.abs(np.log(np.maximum(guesses, 1.0) / actual[:, None]))
        known = self._ended[tenant] > 0
        np.add.at(self._errors, tenant[known], errors[known])
        np.add.at(self._judged, tenant[known], 1)
        np.add.at(self._sum_s, tenant, duration_s)
        np.add.at(self._ended, tenant, 1)
        np.add.at(self._counts, (group, bin_of(duration_s)), 1.0)

    def refresh(self) -> None:
        """Compute the tables from what was observed."""
        groups_of = self._tenant
        by_tenant = np.zeros((len(self._ended), BINS))
        np.add.at(by_tenant, groups_of, self._counts)
        everyone = self._counts.sum(axis=0) + 0.05
        of_tenant = _shrunk(by_tenant, everyone / everyone.sum())
        of_group = _shrunk(self._counts, of_tenant[groups_of])
        self._by_group_s = of_group @ MIDDLES_S
        self._errors *= FORGETTING
        self._judged *= FORGETTING
        worse = (self._errors[:, 0] - self._errors[:, 1]) / np.maximum(self._judged, 1)
        self.is_off = (self._judged >= MIN_JUDGED) & (worse > RESOLUTION)
        shares = np.where(self.is_off[groups_of][:, None], of_tenant[groups_of], of_group)
        self._index, self._remaining_s, self._spread = _tables(shares)

    def index(self, group: Ints, age_s: Floats) -> Floats:
        """Return the Gittins index of jobs that have had this service, per second."""
        return self._index[group, bin_of(age_s)]

    def remaining_s(self, group: Ints, age_s: Floats) -> Floats:
        """Return the service that jobs are expected to need yet, on the GPUs they asked for."""
        return self._remaining_s[group, bin_of(age_s)]

    def spread(self, group: Ints, age_s: Floats) -> Floats:
        """Return the standard deviation of the logarithm of that service."""
        return self._spread[group, bin_of(age_s)]


def _shrunk(counts: Floats, parent: Floats) -> Floats:
    rows, bins = counts.nonzero()
    seen, total = counts[rows, bins][:, None], counts.sum(axis=1, keepdims=True)
    expected = SHRINKAGES * np.broadcast_to(parent, counts.shape)[rows, bins][:, None]
    predicted = (seen - 1 + expected) / (total[rows] - 1 + SHRINKAGES)
    more = SHRINKAGES[(seen * np.log(predicted)).sum(axis=0).argmax()]
    shares: Floats = (counts + more * parent) / (total + more)
    return shares


def _tables(shares: Floats) -> tuple[Floats, Floats, Floats]:
    """Index, expected remaining seconds and their spread, by group and bin of age."""
    starts = EDGES_S[:-1]
    times = shares * MIDDLES_S
    survive = shares[:, ::-1].cumsum(axis=1)[:, ::-1]
    later = times[:, ::-1].cumsum(axis=1)[:, ::-1]
    # A job is somewhere in its bin, not at its start: at least a quarter of the age remains.
    remaining_s = np.maximum(later / survive - starts, starts / 4)
    left = np.log(np.maximum(MIDDLES_S - starts[:, None], starts[:, None] / 4))
    ahead = np.triu(np.ones_like(left))
    mean = shares @ (ahead * left).T / survive
    spread = np.sqrt(shares @ (ahead * left**2).T / survive - mean**2 + RESOLUTION**2)
    index = np.zeros_like(shares)
    for age in range(BINS):
        done = shares[:, age:].cumsum(axis=1)
        ended_s = times[:, age:].cumsum(axis=1) - starts[age] * done
        alive = survive[:, age][:, None] - done
        spent_s = ended_s + alive * (EDGES_S[age + 1 :] - starts[age])
        index[:, age] = (done / np.maximum(spent_s, 1e-9)).max(axis=1)
    return index, remaining_s, spread
