"""No file gives anything but a Job, a Policy or a SpecError; what is written is what is read."""

from __future__ import annotations

import json
import string
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.spec import load_job, load_policy

NOW = datetime(2026, 5, 1, tzinfo=UTC)

WORDS = """
name work amount unit steps deadline 72h throughput points gpu T4 gpus nodes units_per_s
checkpoint uri interval auto phases share resources min_nodes max_nodes budget usd run env start
startup data objective risk strategy parameters limits max_price_age rules then low
""".split()  # noqa: SIM905 - one word per line would be longer than the tests

scalars = st.one_of(
    st.sampled_from(WORDS),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=12),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), inner, max_size=6),
    ),
    max_leaves=20,
)

good_job: dict[str, Any] = {
    "name": "x",
    "work": {"amount": 10, "unit": "steps"},
    "deadline": "72h",
    "throughput": {"points": [{"gpu": "T4", "units_per_s": 2.0}]},
    "checkpoint": {"uri": "c"},
    "resources": {"gpu_models": ["T4"], "max_nodes": 2},
    "budget": {"usd": 1},
    "env": {"A": "b"},
    "run": ["python"],
    "phases": [{"name": "a", "share": 1.0}],
}
good_policy: dict[str, Any] = {
    "name": "x",
    "objective": {"usd": 1.0},
    "risk": {"on_time": 0.9, "reserve": "1m"},
    "strategy": {"name": "milp", "parameters": {"a": 1}},
    "limits": {"max_usd": 5, "capacity_types": ["spot"]},
    "rules": [{"name": "r", "trigger": "slack", "low": 0, "high": 1, "then": {"max_nodes": 1}}],
}


def read(data: bytes, load: Callable[[Path], Job | Policy]) -> Job | Policy | SpecError:
    """What the loader answers to these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_bytes(data)
        try:
            return load(path)
        except SpecError as error:
            return error


def job(path: Path) -> Job:
    return load_job(path, NOW)


def mutated(document: dict[str, Any], at: list[int], value: object) -> dict[str, Any]:
    """A copy of ``document`` with one of its values replaced."""
    copy: Any = yaml.safe_load(yaml.safe_dump(document))
    here = copy
    for depth, choice in enumerate(at):
        keys: list[Any] = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            break
        key = keys[choice % len(keys)]
        if depth == len(at) - 1 or not isinstance(here[key], dict | list):
            here[key] = value
            break
        here = here[key]
    assert isinstance(copy, dict)
    return copy


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_no_bytes_give_a_traceback(data: bytes) -> None:
    read(data, job)
    read(data, load_policy)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@?, \n\t~0.e\\", max_size=60))
@settings(deadline=None)
def test_no_yaml_like_text_gives_a_traceback(text: str) -> None:
    read(text.encode(), job)
    read(text.encode(), load_policy)


@given(values)
@settings(deadline=None)
def test_no_document_gives_a_traceback(value: object) -> None:
    data = yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "replace")
    read(data, job)
    read(data, load_policy)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), values)
@settings(deadline=None)
def test_one_wrong_value_in_a_good_file_gives_a_job_or_an_error(
    at: list[int], value: object
) -> None:
    for document, load in ((good_job, job), (good_policy, load_policy)):
        data = yaml.safe_dump(mutated(document, at, value), allow_unicode=True)
        read(data.encode("utf-8", "replace"), load)


names = st.text(string.ascii_letters + string.digits, min_size=1, max_size=10)
amounts = st.floats(1e-6, 1e12)


@given(
    name=names,
    amount=amounts,
    hours=st.integers(1, 1000),
    speed=amounts,
    gpus=st.integers(1, 64),
    nodes=st.integers(1, 64),
    save=st.floats(0, 1e4),
    usd=st.none() | amounts,
    words=st.lists(st.text(string.printable[:95], min_size=1), min_size=1, max_size=4),
    env=st.dictionaries(names, st.text(string.printable[:95], max_size=8), max_size=3),
)
@settings(deadline=None)
def test_what_is_written_is_what_is_read(
    name: str, amount: float, hours: int, speed: float, gpus: int, nodes: int, save: float,
    usd: float | None, words: list[str], env: dict[str, str],
) -> None:  # fmt: skip
    document = {
        "name": name,
        "work": {"amount": amount, "unit": "tokens"},
        "deadline": f"{hours}h",
        "resources": {"max_nodes": nodes},
        "throughput": {"points": [{"gpu": "T4", "gpus": gpus, "units_per_s": speed}]},
        "checkpoint": {"uri": "s3://b/k", "save": save},
        "budget": {"usd": usd},
        "run": words,
        "env": env,
    }
    # JSON is YAML 1.2; PyYAML writes 1.1, in which 0E0 without quotes is no number.
    result = read(json.dumps(document).encode(), job)
    assert isinstance(result, Job), result
    assert (result.name, result.work.amount) == (name, amount)
    assert result.deadline_at == NOW + timedelta(hours=hours)
    assert result.phases[0].max_nodes == nodes
    assert result.throughput.points[0].units_per_s == speed
    assert (result.checkpoint.save_s, result.budget.max_usd) == (save, usd)
    assert (result.run, dict(result.env)) == (tuple(words), env)
