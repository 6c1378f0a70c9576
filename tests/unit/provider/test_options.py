"""Options of providers in account files, checked by each adapter: file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import costopt_aws
import costopt_gcp
import costopt_sim
from costopt.cli.main import cli
from costopt.controller.site import connect_provider
from costopt.domain.errors import BadRequestError
from costopt.engine.loop import WallClock
from costopt.provider.options import OptionModel
from costopt.spec import load_account
from costopt.spec.yaml_document import SpecFileError

HEAD = "kind: account\nversion: 1\n"
REGIONS = {"aws": "us-east-1", "gcp": "us-central1"}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def account(folder: Path, provider: str, *options: str) -> Path:
    path = folder / "account.yaml"
    lines = "".join(f"    {option}\n" for option in (f"regions: [{REGIONS[provider]}]", *options))
    path.write_text(f"{HEAD}providers:\n  {provider}:\n{lines}")
    return path


@pytest.mark.parametrize(
    ("provider", "option", "field"),
    [
        ("aws", "queues: https://sqs.us-east-1.amazonaws.com/1/q", "queues"),
        ("aws", "queues: {us-east-1: 5}", "queues.us-east-1"),
        ("aws", "profile: 5", "profile"),
        ("aws", "timeouts: 5s", "timeouts"),
        ("aws", "timeouts: {connect_s: soon}", "timeouts.connect_s"),
        ("aws", "timeouts: {conect_s: 5}", "timeouts.conect_s"),
        ("aws", "root_gib: true", "root_gib"),
        ("aws", "image: 7", "image"),
        ("aws", "instance_types: p5.48xlarge", "instance_types"),
        ("aws", "cache_folder: 5", "cache_folder"),
        ("aws", "subnets: {use1-az1: [a]}", "subnets.use1-az1"),
        ("aws", "key_name: 0", "key_name"),
        ("aws", "payloads: {}", "payloads"),
        ("aws", "machines: x", "machines"),
        ("aws", "list_prices: x", "list_prices"),
        ("aws", "queue: {}", "queue"),
        ("gcp", 'external_ip: "no"', "external_ip"),
        ("gcp", "external_ip: 0", "external_ip"),
        ("gcp", "timeouts: {read_s: -1}", "timeouts.read_s"),
        ("gcp", "service_account: 5", "service_account"),
        ("gcp", "disk_type: 5", "disk_type"),
        ("gcp", "network: {a: b}", "network"),
        ("gcp", "subnetworks: {us-central1: 5}", "subnetworks.us-central1"),
        ("gcp", "preemption_notice_s: 60", "preemption_notice_s"),
        ("gcp", "compact_placement: near", "compact_placement"),
        ("gcp", "advised_nodes: 0", "advised_nodes"),
        ("gcp", "colour: blue", "colour"),
    ],
)
def test_a_wrong_option_is_reported_with_its_line_and_field(
    tmp_path: Path, provider: str, option: str, field: str
) -> None:
    with pytest.raises(SpecFileError) as caught:
        load_account(account(tmp_path, provider, option))
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (6, f"providers.{provider}.{field}")


def test_validate_reports_all_of_them(tmp_path: Path) -> None:
    path = account(tmp_path, "aws", "profile: 5", "queus: {}")
    done = CliRunner().invoke(cli, ["validate", str(path)])
    assert done.exit_code == 2
    assert f"{path}:6:14: providers.aws.profile" in done.stderr
    assert f"{path}:7:5: providers.aws.queus" in done.stderr
    assert "'queues'" in done.stderr


def test_regions_are_required(tmp_path: Path) -> None:
    path = tmp_path / "account.yaml"
    path.write_text(f"{HEAD}providers: {{aws: {{profile: x}}}}\n")
    with pytest.raises(SpecFileError) as caught:
        load_account(path)
    assert [problem.field for problem in caught.value.problems] == ["providers.aws.regions"]


@pytest.mark.parametrize("model", [costopt_aws.OPTIONS, costopt_gcp.OPTIONS, costopt_sim.OPTIONS])
def test_every_option_is_described(model: type[OptionModel]) -> None:
    assert all(field.description for field in model.model_fields.values())
    assert model.injected <= model.model_fields.keys()


@pytest.mark.parametrize("name", ["aws", "gcp", "sim"])
@given(options=st.dictionaries(st.text(), PLAIN, max_size=3), value=PLAIN, data=st.data())
def test_whatever_the_options_hold_they_are_refused_by_name_or_taken(
    name: str, options: dict[str, object], value: object, data: st.DataObject
) -> None:
    model = {"aws": costopt_aws, "gcp": costopt_gcp, "sim": costopt_sim}[name].OPTIONS
    options[data.draw(st.sampled_from(sorted(model.model_fields)))] = value
    options.setdefault("regions", [REGIONS.get(name, "")])
    refused = model.problems(options)
    try:
        connect_provider(name, WallClock(), options).close()
    except BadRequestError:
        assert refused
