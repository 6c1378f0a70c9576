"""Prices, discounts, commitments and credits of an account file, and what is wrong with them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from costopt.domain.account import Account
from costopt.domain.account_price import CommitmentKind
from costopt.domain.market import CapacityType, Pool
from costopt.spec import load_account
from costopt.spec.yaml_document import SpecFileError, SpecProblem

P5 = Pool("aws", "us-east-1", "use1-az1", "p5.48xlarge", CapacityType.ON_DEMAND)
GOOD = """
kind: account
prices:
  - {name: deal, provider: aws, instance_types: [g6*], usd_per_hour: 0.5, last_day: 2027-01-31}
discounts:
  - {name: edp, provider: aws, percent: 12, capacity_types: [on_demand, spot]}
commitments:
  - name: sp
    kind: savings_plan
    provider: aws
    instance_types: [p5*]
    usd_per_hour: 10
    discount_percent: 50
  - {name: ri, kind: reserved_instances, provider: aws, instance_types: [p4d.24xlarge], nodes: 2,
     usd_per_hour: 24, first_day: 2026-11-01}
  - {name: odcr, kind: reservation, provider: aws, regions: [us-east-1], zones: [use1-az1],
     nodes: 4}
credits:
  - {name: grant, provider: aws, usd: 5000, last_day: 2026-12-31}
"""


def _load(tmp_path: Path, text: str) -> Account:
    path = tmp_path / "account.yaml"
    path.write_text(text)
    return load_account(path)


def _problem(tmp_path: Path, text: str) -> SpecProblem:
    with pytest.raises(SpecFileError) as caught:
        _load(tmp_path, f"kind: account\n{text}\n")
    (problem,) = caught.value.problems
    return problem


def test_every_section_is_read(tmp_path: Path) -> None:
    terms = _load(tmp_path, GOOD).price_terms
    assert terms.prices[0].period.last_day == date(2027, 1, 31)
    assert terms.discounts[0].pools.capacity_types == (CapacityType.ON_DEMAND, CapacityType.SPOT)
    plan, instances, reservation = terms.commitments
    assert plan.kind is CommitmentKind.SAVINGS_PLAN
    assert plan.rates["us-east-1", "p5.48xlarge"] == pytest.approx(55.04 / 2)
    assert (instances.quantity, instances.share_usd_per_hour(P5)) == (2.0, 12.0)
    assert reservation.share_usd_per_hour(P5) is None
    assert terms.credits[0].usd == 5000.0


def test_commitments_bound_what_all_nodes_use(tmp_path: Path) -> None:
    account = _load(tmp_path, GOOD)
    assert [quota.max_committed for quota in account.limits] == [10.0, 2.0, 4.0]


RULE = "{name: a, provider: aws, percent: 5"
PLAN = "{name: a, kind: savings_plan, provider: aws, usd_per_hour: 10"


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        (f"discounts: [{RULE}, instance_types: [p5.48xlarg]}}]", "instance_types", "unknown_name"),
        (f"discounts: [{RULE}, regions: [us-esat-1]}}]", "regions", "unknown_name"),
        (
            f"discounts: [{RULE}, first_day: 2026-02-02, last_day: 2026-02-01}}]",
            "last_day",
            "value_error",
        ),
        (f"discounts: [{RULE}, percent: 101}}]", "percent", "less_than_equal"),
        (f"discounts:\n  - {RULE}}}\n  - {{name: b, provider: aws, percent: 6}}", "1", "duplicate"),
        (
            "prices:\n"
            "  - {name: a, provider: aws, instance_types: [p5*], usd_per_hour: 1}\n"
            "  - {name: b, provider: aws, instance_types: ['*48xlarge'], usd_per_hour: 2}",
            "1",
            "duplicate",
        ),
        (f"commitments: [{PLAN}}}]", "0", "missing"),
        (f"commitments: [{PLAN}, discount_percent: 5, nodes: 3}}]", "nodes", "extra_forbidden"),
        (f"commitments: [{PLAN}, rates: {{p5.48xlarg: 3}}}}]", "p5.48xlarg", "unknown_name"),
        ("commitments: [{name: a, kind: reservation, provider: aws}]", "0", "missing"),
        (f"discounts: [{RULE}, zones: [use1-az1]}}]", "zones", "missing"),
        ("credits: [{name: a, provider: awz, usd: 5}]", "provider", "unknown_name"),
    ],
)
def test_contradictions_name_their_place(tmp_path: Path, text: str, field: str, code: str) -> None:
    if "percent: 101" in text:
        text = text.replace("percent: 5, ", "")
    problem = _problem(tmp_path, text)
    assert problem.line > 1
    assert field in (problem.field or "")
    assert problem.code == code


def test_rules_of_different_days_do_not_contradict(tmp_path: Path) -> None:
    text = """
kind: account
discounts:
  - {name: a, provider: aws, percent: 5, last_day: 2026-12-31}
  - {name: b, provider: aws, percent: 6, first_day: 2027-01-01}
"""
    assert len(_load(tmp_path, text).price_terms.discounts) == 2
