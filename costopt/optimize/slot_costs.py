"""The cost of a configuration in each slot, where prices and carbon intensity change over time.

The table of configurations holds the figures at present prices. A ``ForecastTable`` holds what each
slot adds to them, per pool: dollars of a node-hour and grams of the grid's carbon intensity;
``SlotCosts`` applies it to the rows of one job's table. In array shapes T counts slots, P pools and
R the rows that the caller asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.estimate import Series
from costopt.domain.market import Pool
from costopt.domain.policy import Objective
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.slots import Slot, open_hours

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ForecastTable:
    """Forecasts of all pools by slot, as differences from the present figures.

    ``usd_more`` has shape (T, P) and is in dollars per node-hour; ``gco2e_more`` has shape (T, P)
    and is in gCO2e/kWh. Either is None where nothing changes over time. ``column`` maps a pool to
    its place on the axis P.
    """

    slots: tuple[Slot, ...]
    column: Mapping[Pool, int]
    usd_more: Array | None
    gco2e_more: Array | None

    @classmethod
    def of(cls, request: PlanRequest, slots: Sequence[Slot]) -> Self:
        """Return the forecasts of the request's pools, averaged over time within each slot."""
        offers = request.offers
        column = {o.pool: i for i, o in enumerate(offers)}
        if not (request.price_forecasts or request.carbon_forecasts):
            return cls(tuple(slots), column, None, None)
        regions = [f"{o.pool.provider}/{o.pool.region}" for o in offers]
        powers = [request.powers.get(o.pool) for o in offers]
        spans = [
            (request.now + timedelta(hours=s.start_h), request.now + timedelta(hours=s.end_h))
            for s in slots
        ]
        return cls(
            tuple(slots),
            column,
            _more(
                [request.price_forecasts.get(o.pool) for o in offers],
                [p.value if (p := o.price_usd_per_hour) else None for o in offers],
                spans,
            ),
            _more(
                [request.carbon_forecasts.get(region) for region in regions],
                [power.gco2e_per_kwh if power else None for power in powers],
                spans,
            ),
        )

    def at_slots(self, picked: NDArray[np.int64]) -> Self:
        """Return the forecasts of the slots with these numbers alone, in this order."""
        return replace(
            self,
            slots=tuple(self.slots[t] for t in picked.tolist()),
            usd_more=None if self.usd_more is None else self.usd_more[picked],
            gco2e_more=None if self.gco2e_more is None else self.gco2e_more[picked],
        )

    def least(self, starts: NDArray[np.int64]) -> Self:
        """Return the least figures of each block of slots.

        ``starts`` holds the number of the first slot of each block, ascending; the axis T of the
        result counts blocks.
        """
        usd, gco2e = self.usd_more, self.gco2e_more
        return replace(
            self,
            slots=tuple(self.slots[t] for t in starts.tolist()),
            usd_more=None if usd is None else np.minimum.reduceat(usd, starts, axis=0),
            gco2e_more=None if gco2e is None else np.minimum.reduceat(gco2e, starts, axis=0),
        )

    @property
    def constant(self) -> bool:
        """Return whether every slot has the present prices and carbon intensity."""
        return self.usd_more is None and self.gco2e_more is None


@dataclass(frozen=True, slots=True)
class SlotCosts:
    """The forecasts applied to the rows of a job's table.

    ``column`` has shape (offers of the table,) and holds each offer's column of the forecast table.
    """

    table: ConfigurationTable
    outlook: ForecastTable
    objective: Objective
    column: NDArray[np.int64]
    _first: NDArray[np.int64]

    @classmethod
    def of(cls, outlook: ForecastTable, table: ConfigurationTable, objective: Objective) -> Self:
        """Return the slot costs of a job's table under an objective."""
        column = np.array([outlook.column[o.pool] for o in table.offers], dtype=np.int64)
        return cls(table, outlook, objective, column, column[table.first()])

    def scored_by(self, objective: Objective) -> Self:
        """Return the costs under another objective."""
        return replace(self, table=self.table.scored_by(objective), objective=objective)

    def at_slots(self, picked: NDArray[np.int64]) -> Self:
        """Return the costs in the slots with these numbers alone, in this order."""
        return replace(self, outlook=self.outlook.at_slots(picked))

    def usd_per_hour(self, rows: Rows) -> Array:
        """Return the dollars of a paid hour of each gang, shape (T, R): slot × row."""
        return self._flat(self.table.usd_per_hour[rows]) + self._usd_more(rows)

    def usd_per_start(self, rows: Rows) -> Array:
        """Return the dollars of a start of each gang, shape (T, R): slot × row."""
        more = self._usd_more(rows) * self.table.billed_startup_h[rows]
        return self._flat(self.table.usd_per_start[rows]) + more

    def gco2e_per_kwh(self, rows: Rows) -> Array:
        """Return the carbon intensity in gCO2e/kWh, shape (T, R): slot × row; NaN where unknown."""
        return self._flat(self.table.gco2e_per_kwh[rows]) + self._gco2e_more(rows)

    def score_per_hour(self, rows: Rows) -> Array:
        """Return the objective of a paid hour, shape (T, R): slot × row."""
        table = self.table
        return self._flat(table.score_per_hour[rows]) + self._score_more(
            rows, np.ones(len(rows)), table.kwh_per_hour[rows]
        )

    def start_score(self, rows: Rows) -> Array:
        """Return the objective of a start, shape (T, R): slot × row."""
        table = self.table
        return self._flat(table.start_score[rows]) + self._score_more(
            rows, table.billed_startup_h[rows], table.kwh_per_start[rows]
        )

    def usd_at(self, slots: Rows, rows: Rows) -> tuple[Array, Array]:
        """Return the dollars of a paid hour and of a start for each pair of a slot and a row.

        ``slots`` and ``rows`` have the same shape (pairs,), and so has each of the two results.
        """
        table, by_offer = self.table, self.outlook.usd_more
        if by_offer is None:
            return table.usd_per_hour[rows], table.usd_per_start[rows]
        more = by_offer[slots, self.column_of(rows)] * table.nodes[rows]
        places = np.flatnonzero(table.offer[rows] < 0)
        if len(places):
            spread = table.spread.take(rows[places])
            held = np.repeat(slots[places], spread.counts)
            more[places] = spread.total(by_offer[held, self.column[spread.offer]] * spread.nodes)
        start_usd: Array = table.usd_per_start[rows] + more * table.billed_startup_h[rows]
        return table.usd_per_hour[rows] + more, start_usd

    def score_at(self, slots: Rows, rows: Rows) -> tuple[Array, Array]:
        """Return the objective of a paid hour and of a start for each pair of a slot and a row.

        ``slots`` and ``rows`` have the same shape (pairs,), and so has each of the two results.
        """
        table, objective = self.table, self.objective
        hour, start = table.score_per_hour[rows], table.start_score[rows]
        if self.outlook.usd_more is not None and objective.usd:
            usd_per_hour, _ = self.usd_at(slots, rows)
            more = objective.usd * (usd_per_hour - table.usd_per_hour[rows])
            hour, start = hour + more, start + more * table.billed_startup_h[rows]
        if self.outlook.gco2e_more is not None and objective.usd_per_tonne_co2e:
            grams = self.gco2e_at(slots, rows) - table.gco2e_per_kwh[rows]
            usd = objective.usd_per_tonne_co2e * grams / 1e6
            hour = hour + usd * table.kwh_per_hour[rows]
            start = start + usd * table.kwh_per_start[rows]
        return hour, start

    def gco2e_at(self, slots: Rows, rows: Rows) -> Array:
        """Return the carbon intensity in gCO2e/kWh for each pair of a slot and a row.

        ``slots`` and ``rows`` have the same shape (pairs,), and so has the result, which is NaN
        where unknown.
        """
        base: Array = self.table.gco2e_per_kwh[rows]
        by_offer = self.outlook.gco2e_more
        return base if by_offer is None else base + by_offer[slots, self.column_of(rows)]

    def usable(self, demand: Demand, rows: Rows) -> NDArray[np.bool_]:
        """Return whether the job may run each row in each slot, shape (T, R): slot × row.

        It may where the slot overlaps the job's time, the row's dated offers cover the whole slot,
        and the gang could start or already runs at present, as far as present availability is known
        for the slot.
        """
        table, slots = self.table, self.outlook.slots
        here = open_hours(slots, demand) > 0
        near = np.array([slot.near for slot in slots], dtype=bool)
        start_h = np.array([slot.start_h for slot in slots])[:, None]
        end_h = np.array([slot.end_h for slot in slots])[:, None]
        startable = (table.now | table.running)[rows][None, :]
        known = near[:, None] | table.steady[rows][None, :]
        dated = (start_h >= table.from_h[rows] - 1e-9) & (end_h <= table.until_h[rows] + 1e-9)
        return here[:, None] & (startable | ~known) & dated

    def _score_more(self, rows: Rows, hours: Array, kwh: Array) -> Array:
        objective = self.objective
        more: Array = np.zeros((len(self.outlook.slots), 1))
        if self.outlook.usd_more is not None and objective.usd:
            more = more + objective.usd * self._usd_more(rows) * hours
        if self.outlook.gco2e_more is not None and objective.usd_per_tonne_co2e:
            grams = self._gco2e_more(rows) * kwh
            more = more + objective.usd_per_tonne_co2e * grams / 1e6
        return more

    def _flat(self, figure: Array) -> Array:
        return np.broadcast_to(figure, (len(self.outlook.slots), len(figure)))

    def _usd_more(self, rows: Rows) -> Array:
        """Of the whole gang."""
        if self.outlook.usd_more is None:
            return np.zeros((len(self.outlook.slots), 1))
        by_offer, table = self.outlook.usd_more, self.table
        more: Array = by_offer[:, self.column_of(rows)] * table.nodes[rows]
        places = np.flatnonzero(table.offer[rows] < 0)
        if len(places):
            spread = table.spread.take(rows[places])
            part_usd = by_offer[:, self.column[spread.offer]] * spread.nodes
            more[:, places] = spread.total(part_usd)
        return more

    def _gco2e_more(self, rows: Rows) -> Array:
        if self.outlook.gco2e_more is None:
            return np.zeros((len(self.outlook.slots), 1))
        return self.outlook.gco2e_more[:, self.column_of(rows)]

    def column_of(self, rows: Rows) -> Rows:
        """Return the forecast table's column of each row's (first) offer, shape (R,)."""
        return self._first[rows]


def time_weighted_means(series: Series, spans: Sequence[tuple[datetime, datetime]]) -> Array:
    """Return the time-weighted mean of a step series over each span, shape (spans,).

    The means are in the unit of the series. Spans are pairs of aware times, the end not before the
    beginning; of an empty one the mean is the value there.
    """
    at = np.array([instant.timestamp() for instant in series.at])
    values = np.asarray(series.values, dtype=float)
    area = np.concatenate(([0.0], np.cumsum(values[:-1] * np.diff(at))))
    edges = np.array([[begin.timestamp(), end.timestamp()] for begin, end in spans])
    place = np.clip(np.searchsorted(at, edges, side="right") - 1, 0, None)
    integral = area[place] + values[place] * (edges - at[place])
    width, mean = edges[:, 1] - edges[:, 0], values[place[:, 0]]
    np.divide(integral[:, 1] - integral[:, 0], width, out=mean, where=width > 0)
    return mean


def _more(
    series: Sequence[Series | None],
    present: Sequence[float | None],
    spans: Sequence[tuple[datetime, datetime]],
) -> Array | None:
    """(T, P) of the means over each slot less the present figure; None where all are missing."""
    if not any(series):
        return None
    known: dict[int, Array] = {}
    more = np.zeros((len(spans), len(series)))
    for number, (one, now) in enumerate(zip(series, present, strict=True)):
        if one is None or now is None or not np.isfinite(one.values).all():
            continue
        if id(one) not in known:
            known[id(one)] = time_weighted_means(one, spans)
        more[:, number] = known[id(one)] - now
    return more
