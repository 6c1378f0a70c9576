"""Fits how the end of a period with or without capacity depends on its age.

``COSTOPT_DATA=… python -m benchmarks.fit_lifetime > costopt/market/data/lifetime.toml``

Reads the public availability records of the "Can't Be Late" study (NSDI'24,
github.com/skypilot-org/spot-traces). Per class of age a and kind of period, the rate is endings
over hours spent at that age, the maximum-likelihood estimate of a constant rate, with one ending
and 1 / (age + 0.3 h) added so that no class is empty; pooled over all records given. Periods whose
beginning lies outside the record are left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from costopt.market.lifetime import AgeRates
from tests.support.cant_be_late import read_trace

FROM_H = (0.0, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

HEAD = """\
# How often a period with capacity (up) or without (down) ends, per hour, by its age.
#
# Fitted by benchmarks/fit_lifetime.py, which says how, on the twelve public spot availability
# records of the "Can't Be Late" study (github.com/skypilot-org/spot-traces, NSDI'24): AWS V100 and
# K80, five zones of February to April 2023 every 195 s, two zones of October and November 2022
# every 600 s; 2,255 periods with capacity, 2,253 without. from_h are the ages, in hours, at which
# the classes begin. benchmarks/deadlines.py measures what the strategy adaptive costs with rates
# that were fitted on the other year's records than those it runs on.
"""


def fit(records: Iterable[tuple[Sequence[int], float]]) -> AgeRates:
    """Rates of all the records together; each is the capacity (0 or 1) and its grid in seconds."""
    endings = [[1.0] * len(FROM_H), [1.0] * len(FROM_H)]
    hours = [[age + 0.3 for age in FROM_H], [age + 0.3 for age in FROM_H]]
    ages = AgeRates(FROM_H, FROM_H, FROM_H)
    for up, grid_s in records:
        grid_h, age_h = grid_s / 3600, None
        for before, after in pairwise(up):
            if age_h is not None:
                of_age = ages.class_at(age_h)
                hours[before][of_age] += grid_h
                endings[before][of_age] += before != after
                age_h += grid_h
            if before != after:
                age_h = 0.0
    down, ups = (tuple(n / h for n, h in zip(endings[k], hours[k], strict=True)) for k in (0, 1))
    return AgeRates(FROM_H, ups, down)


def main() -> int:
    """Print the file of parameters."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("COSTOPT_DATA is unset: nothing to fit on", file=sys.stderr)
        return 2
    rates = fit(read_trace(path) for path in sorted((Path(data) / "traces").glob("*.json")))
    print(HEAD)
    for name in ("from_h", "up_per_hour", "down_per_hour"):
        print(f"{name} = [{', '.join(f'{value:.4g}' for value in getattr(rates, name))}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
