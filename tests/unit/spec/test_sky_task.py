"""A SkyPilot task becomes a job file; what the file does not express is listed by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from costopt.spec.job_draft import JobDraft
from costopt.spec.sky_task import convert_sky_task, is_sky_task
from costopt.spec.yaml_document import SpecFileError, parse_document

TASK = """\
name: tune
workdir: code
num_nodes: 2
resources:
  infra: aws/us-east-1
  accelerators: H100:8
  use_spot: true
  disk_size: 500
  image_id: docker:nvcr.io/nvidia/pytorch:25.01-py3
envs:
  EPOCHS: 3
  WANDB_API_KEY: null
file_mounts:
  /data: s3://bucket/data
setup: |
  pip install -r requirements.txt
run: |
  torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=$SKYPILOT_NODE_RANK train.py
"""


def convert(folder: Path, text: str) -> JobDraft:
    path = folder / "sky.yaml"
    path.write_text(text)
    return convert_sky_task(path)


def test_a_task_is_read(tmp_path: Path) -> None:
    draft = convert(tmp_path, TASK)
    fields = dict(draft.fields)
    run = fields.pop("run")
    assert fields == {
        "name": "tune",
        "workdir": "code",
        "resources": {"gpu": "16xH100", "min_nodes": 2, "max_nodes": 2},
        "image": "nvcr.io/nvidia/pytorch:25.01-py3",
        "env": {"EPOCHS": "3"},
        "setup": ["pip install -r requirements.txt"],
    }
    assert isinstance(run, list)
    assert run[2].startswith("export SKYPILOT_NODE_RANK=$RANK")
    assert draft.options == ("--provider", "aws", "--region", "us-east-1")
    assert {int(each.split(":")[1]) for each in draft.left_out} == {7, 8, 12, 13}


@pytest.mark.parametrize(
    ("accelerators", "resources"),
    [
        ("A100", {"gpu": "1xA100"}),
        ("{L4: 4}", {"gpu": "4xL4"}),
        ("A100-80GB:8", {"gpu": "8xA100-SXM4-80GB"}),
        ("[H100:8, H200:8]", {"gpu_models": ["H100", "H200"], "min_gpus": 8, "max_gpus": 8}),
    ],
)
def test_accelerators(tmp_path: Path, accelerators: str, resources: object) -> None:
    text = f"resources: {{accelerators: {accelerators}}}\nrun: python train.py\n"
    assert convert(tmp_path, text).fields["resources"] == resources


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("resources: {accelerators: H100:8}\n", "run"),
        ("resources: {accelerators: H10:8}\nrun: x\n", "resources.accelerators"),
        ("resources: {accelerators: [H100:8, A100:4]}\nrun: x\n", "resources.accelerators"),
        ("resources: {accelerators: tpu-v5e:8:x}\nrun: x\n", "resources.accelerators"),
        ("resources: [1]\nrun: x\n", "resources"),
        ("num_nodes: many\nrun: x\n", "num_nodes"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(SpecFileError) as caught:
        convert(tmp_path, text)
    assert [each.field for each in caught.value.problems] == [place]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TASK, True),
        ("name: x\nrun: python t.py\ndeadline: 3h\n", False),
        ("objective: {}\n", False),
    ],
)
def test_a_task_is_known_by_its_keys(text: str, *, expected: bool) -> None:
    assert is_sky_task(parse_document(text, "x.yaml")) is expected
