"""A measured speed gets into a job file, and nothing else of the file changes."""

from __future__ import annotations

import json

import pytest
import yaml

from costopt.catalog import load_catalog
from costopt.domain.errors import SpecError
from costopt.spec.measured_point import with_measured_speed

GPU = load_catalog().find(gpu="T4")[0].gpu
POINT = {"gpu": "T4", "gpus": 4, "units_per_s": 7.25}
HEAD = "# head\nname: x    # a name\n\nthroughput:"


def edited(text: str) -> str:
    return with_measured_speed(text, "job.yaml", GPU, 4, 7.2504, "measured today")


@pytest.mark.parametrize(
    "text",
    [
        "name: x\n",
        "name: x",
        "{name: x}\n",
        '{"name": "x"}\n',
        "{name: x, }",
        "name: x\r\nrun: [a,\r\n  b]\r\n",
        "run: |\n  a\n  b\n",
        "run: |-\n  a\n\n\n# the end\n",
        f"{HEAD} {{}}\nz: 1\n",
        f"{HEAD} {{mfu: 0.4, flops_per_unit: 5}}    # why\nz: 1\n",
        f"{HEAD} {{points: []}}\n",
        f"{HEAD} {{points: [{{gpu: H100, units_per_s: 5}}]}}\nz: 1\n",
        f"{HEAD}\n  points: [{{gpu: H100, units_per_s: 5}},\n    {{gpu: T4, units_per_s: 5}},]\n",
        f"{HEAD}\n  mfu: 0.4    # a share\n\n# then\nz: 1\n",
        f"{HEAD}\n  points:\n    - {{gpu: H100, units_per_s: 5}}    # by hand\n  mfu: 0.4\nz: 1\n",
        f"{HEAD}\n  mfu: 1\n  points:\n  - gpu: H100\n    units_per_s: 5    # mine\n# then\nz: 1\n",
        f"{HEAD}\n    points:\n        -   gpu: 'H100'\n            units_per_s: 5\n\n\nz: 1",
        "\ufeffname: x\n",
    ],
)
def test_a_new_point_is_added_and_comments_stay(text: str) -> None:
    after = edited(text)
    plain = yaml.safe_load(text.lstrip("\ufeff"))
    throughput = plain.setdefault("throughput", {})
    throughput.setdefault("points", []).append(POINT)
    found = yaml.safe_load(after.lstrip("\ufeff"))
    assert found["throughput"]["points"].pop()["gpu"] == GPU.model
    assert json.dumps(found["throughput"]["points"]) == json.dumps(throughput["points"][:-1])
    rest = {**found, "throughput": 0}
    assert rest == {**plain, "throughput": 0}
    assert [c for c in text.splitlines() if "#" in c and "{" not in c] == [
        c for c in after.splitlines() if "#" in c and "{" not in c
    ]
    assert ("\r\n" in after) == ("\r\n" in text)
    assert "\n" not in after.replace("\r\n", "") or "\r\n" not in after


@pytest.mark.parametrize(
    "point",
    [
        "{gpu: T4, gpus: 4, units_per_s: 5}",
        "{units_per_s: 5e0, gpus_per_node: 4, gpu: t4}",
        "{gpu: T4, nodes: 2, gpus_per_node: 2, units_per_s: 5.0}",
    ],
)
def test_the_same_gang_is_measured_again_in_place(point: str) -> None:
    text = f"{HEAD}\n  points:\n    - {point}    # first\n    - {{gpu: T4, units_per_s: 2}}\n"
    number = next(word for word in ("5e0", "5.0", "5") if f": {word}" in point)
    assert edited(text) == text.replace(f"units_per_s: {number}", "units_per_s: 7.25", 1)


@pytest.mark.parametrize(
    "text",
    [
        "a: &p {points: []}\nthroughput: *p\n",
        "throughput: &t {mfu: 0.4}\nphases: [{throughput: *t}]\n",
    ],
)
def test_a_file_that_cannot_be_edited_is_left_alone(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        edited(text)
    assert "units_per_s: 7.25" in (caught.value.hint or "")
