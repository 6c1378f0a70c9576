"""A policy limit is one row of a table, which everything that knows of limits reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from costopt.domain.account import Quota
from costopt.domain.limits import LimitScope, Resource, limit_specs
from costopt.domain.policy import LIMIT_SPECS, Limits

ROOT = Path(__file__).parents[2]
NEXT_ROW = "    max_launches_per_hour: Count | None = field("
ROWS = """\
    max_gpus: Count | None = field(
        default=None,
        metadata=limit_row(
            "GPUs", LimitUnit.NUMBER, LimitScope.CONCURRENT, "GPUs of all jobs at once",
            resource=Resource.GPUS,
        ),
    )
    zones: Annotated[tuple[Text, ...], Length(min=1)] = field(
        default=(),
        metadata=limit_row(
            "zones", LimitUnit.NAMES, LimitScope.POOL, "allowed; default: all", pool_field="zone"
        ),
    )
"""


def test_every_limit_has_a_row_with_what_its_scope_needs() -> None:
    assert list(LIMIT_SPECS) == [each.name for each in fields(Limits)]
    assert len({spec.key for spec in LIMIT_SPECS.values()}) == len(LIMIT_SPECS)
    for spec in LIMIT_SPECS.values():
        assert (spec.resource is not None) == (spec.scope is LimitScope.CONCURRENT)
        assert (spec.pool_field is not None) == (spec.scope is LimitScope.POOL)
        assert spec.label
        assert spec.help
        assert spec.resource is None or spec.resource.field == spec.field


def test_a_limit_without_a_row_is_refused() -> None:
    @dataclass(frozen=True)
    class Incomplete:
        with_row: int | None = field(default=None, metadata={"limit": LIMIT_SPECS["max_nodes"]})
        without: int | None = None

    with pytest.raises(TypeError, match="without"):
        limit_specs(Incomplete)


def test_a_quota_can_limit_every_resource() -> None:
    values: dict[str, Any] = {each.field: 1 for each in Resource}
    assert dict(Quota("q", **values).limits()) == dict.fromkeys(Resource, 1)


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tests/support/hypothetical_limit.py finds in a copy of costopt with two rows more."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "costopt", copy / "costopt", copy_function=os.symlink)
    (copy / "tests").symlink_to(ROOT / "tests")
    policy = copy / "costopt/domain/policy.py"
    source = policy.read_text(encoding="utf-8")
    assert source.count(NEXT_ROW) == 1
    policy.unlink()
    policy.write_text(source.replace(NEXT_ROW, ROWS + NEXT_ROW), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.hypothetical_limit"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_new_row_binds_the_optimizer(effects: dict[str, Any]) -> None:
    assert effects["plans"] == {
        "sizes": [1, 2],
        "infeasible": "limit: the policy's max_gpus of 4",
        "shared": ["max_gpus", 4.0, "GPUs"],
        "starts": 2,
        "constraints": ["deadline of a (h)", "deadline of b (h)", "max_gpus (GPUs)"],
    }


def test_a_new_row_stops_launches(effects: dict[str, Any]) -> None:
    assert effects["runs"] == {"nodes": [3, 0], "guards": ["max_gpus"]}


def test_a_new_row_is_in_files_their_schema_and_pages(effects: dict[str, Any]) -> None:
    files = effects["files"]
    assert files["limits"] == [4, ["us-east-1b"]]
    assert files["tighter"] == [2, ["max_gpus", "zones"]]
    assert files["schema"]["max_gpus"]["anyOf"][0]["type"] == "integer"
    assert files["schema"]["max_gpus"]["description"] == "GPUs of all jobs at once"
    assert files["schema"]["zones"]["type"] == "array"
    assert ["GPUs", "4", ""] in files["page"]
    assert ["zones", "us-east-1b", ""] in files["page"]


def test_a_new_row_of_pools_screens_offers(effects: dict[str, Any]) -> None:
    files = effects["files"]
    assert files["usable"] == ["aws/us-east-1/us-east-1b/p3.2xlarge/spot"]
    ((pool, code, reason),) = files["rejected"]
    assert (pool, code) == ("aws/us-east-1/us-east-1a/p3.2xlarge/spot", "policy")
    assert "zone us-east-1a" in reason
