"""What Slurm prints, typed from its own output: 22.05.8, but where another version is named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from costopt.domain.errors import ProviderUnavailableError
from costopt_slurm.cluster_state import has_gres
from costopt_slurm.text_format import (
    parse_columns,
    parse_duration_s,
    parse_hostlist,
    parse_instant,
    parse_pairs,
)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ("n1",)),
        ("n[1-3,7]", ("n1", "n2", "n3", "n7")),
        ("gpu[008-011],login", ("gpu008", "gpu009", "gpu010", "gpu011", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("(null)", ()),
        ("", ()),
    ],
)
def test_hostlists(text: str, hosts: tuple[str, ...]) -> None:
    assert parse_hostlist(text) == hosts


@pytest.mark.parametrize("text", ["n[1-", "n[a-b]", "n1,,n2"])
def test_a_torn_hostlist_is_refused(text: str) -> None:
    with pytest.raises(ProviderUnavailableError) as error:
        parse_hostlist(text)
    assert error.value.code == "unreadable"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2-00:00:00", 172800.0),
        ("1:40:00", 6000.0),
        ("30:00", 1800.0),
        ("1-12", 129600.0),
        ("1-12:30", 131400.0),
        ("00:05:00", 300.0),
        ("300 sec", 300.0),
        ("UNLIMITED", None),
        ("infinite".upper(), None),
        ("NONE", None),
        ("INVALID", None),
        ("Partition_Limit", None),  # sacct, where a job has no limit of its own
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration_s(text) == seconds


def test_instants() -> None:
    assert parse_instant("1795636391") == datetime.fromtimestamp(1795636391, UTC)
    assert parse_instant("N/A") is parse_instant("Unknown") is parse_instant("0") is None
    with pytest.raises(ProviderUnavailableError):
        parse_instant("2026-11-25T19:53:13")


def test_pairs_keep_spaces_of_values() -> None:
    line = (
        "JobId=1 JobName=costopt-abc JobState=PENDING Reason=ReqNodeNotAvail, Reserved for "
        "maintenance Dependency=(null) AllocNode:Sid=localhost:8630 "
        'ReqB:S:C:T=0:0:*:* Comment={"a":1,"b":"x y"}  StdErr=/tmp/1.out'
    )
    pairs = parse_pairs(line)
    assert pairs["Reason"] == "ReqNodeNotAvail, Reserved for maintenance"
    assert pairs["Comment"] == '{"a":1,"b":"x y"}'
    assert parse_pairs("No reservations in the system") == {}


def test_columns() -> None:
    rows = list(
        parse_columns("1   |RUNNING  |{} |\n\n2 |PENDING |a|b |\n", ("id", "state", "more"))
    )
    assert [row["more"] for row in rows] == ["{}", "a|b"]
    with pytest.raises(ProviderUnavailableError):
        list(parse_columns("slurm_load_jobs error", ("id", "state")))


@pytest.mark.parametrize(
    ("shown", "requested", "fits"),
    [
        ("gpu:h100:8", "gpu:h100:8", True),
        ("gpu:h100:8", "gpu:8", True),
        ("gpu:h100:8", "gpu:h100:4", False),
        ("gpu:a100:4,gpu:h100:4", "gpu:8", True),
        ("gpu:a100:8", "gpu:h100:8", False),
        ("gpu:8", "gpu:8", True),
        ("lustre:1,gpu:h100:8", "gpu:h100:8", True),
        ("", "gpu:8", False),
    ],
)
def test_whole_nodes_match(shown: str, requested: str, fits: bool) -> None:
    assert has_gres(shown, requested) is fits
