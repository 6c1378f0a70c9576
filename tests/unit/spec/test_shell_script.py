"""A shell script becomes a job file; what the file does not express is listed by its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from costopt.spec.job_draft import JobDraft
from costopt.spec.shell_script import convert_shell
from costopt.spec.yaml_document import SpecFileError

SCRIPT = """\
#!/bin/bash
# Tunes the model.
set -euo pipefail
cd "$(dirname "$0")"
source ~/venv/bin/activate
export WANDB_PROJECT=tuning TOKENIZERS_PARALLELISM=false
BATCH=8
pip install -r requirements.txt && pip install -U flash-attn
wget https://example.com/data.tgz
python prepare.py
torchrun --standalone --nproc-per-node=8 \\
    train.py --batch $BATCH --lr "1e-4" 2>&1 | tee log.txt
echo done
"""


def convert(folder: Path, text: str) -> JobDraft:
    path = folder / "train.sh"
    path.write_text(text)
    return convert_shell(path)


def test_a_script_is_read(tmp_path: Path) -> None:
    draft = convert(tmp_path, SCRIPT)
    assert draft.fields == {
        "name": "train",
        "run": [
            "bash",
            "-c",
            "torchrun --standalone --nproc-per-node=8 train.py --batch $BATCH --lr "
            '"1e-4" 2>&1 | tee log.txt',
        ],
        "setup": [
            "python -m pip install -r requirements.txt",
            "python -m pip install -U flash-attn",
        ],
        "env": {"WANDB_PROJECT": "tuning", "TOKENIZERS_PARALLELISM": "false", "BATCH": "8"},
    }
    assert [each.split(": ")[0] for each in draft.left_out] == [
        "train.sh:5", "train.sh:9", "train.sh:10"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "run", "workdir"),
    [
        ("torchrun train.py", "torchrun train.py", None),
        ("python3 train.py --a 1", "python3 train.py --a 1", None),
        ("accelerate launch train.py", "accelerate launch train.py", None),
        ("cd src && python -m train", "python -m train", "src"),
        (
            "CUDA_VISIBLE_DEVICES=0 python train.py",
            ["bash", "-c", "CUDA_VISIBLE_DEVICES=0 python train.py"],
            None,
        ),
        ("cd src\ncd deep\npython t.py", "python t.py", "src/deep"),
        (
            "nohup torchrun train.py > log.txt &\npython train.py",
            "python train.py",
            None,
        ),
    ],
)
def test_the_last_command_that_trains_is_the_jobs(
    tmp_path: Path, line: str, run: object, workdir: str | None
) -> None:
    draft = convert(tmp_path, f"#!/bin/sh\n{line}\n")
    assert draft.fields["run"] == run
    assert draft.fields.get("workdir") == workdir


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("echo hello\n", "train.sh: "),
        ("for lr in 1e-3 1e-4; do\n  python train.py --lr $lr\ndone\n", "train.sh:2:1: "),
        ("if true; then python train.py; fi\n", "train.sh:1:1: "),
        ("train() {\n  torchrun train.py\n}\ntrain\n", "train.sh:2:1: "),
    ],
)
def test_what_does_not_say_the_command_is_refused(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(SpecFileError) as caught:
        convert(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / where))
    assert "--command" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('python train.py --data "$DATA" $1\n', {1}),
        ("export HOST=$(hostname)\npython t.py\n", {1}),
        ("cd /data\npython t.py\n", {1}),
        ("if [ -d x ]; then\n  rm -r x\nfi\npython t.py\n", {1}),
        ("echo 'unclosed\npython t.py\n", {1}),
        ("module load cuda\nconda activate env\npython t.py\n", {1, 2}),
    ],
)
def test_lines_that_are_not_expressed_are_listed(
    tmp_path: Path, text: str, lines: set[int]
) -> None:
    left_out = convert(tmp_path, text).left_out
    assert {int(each.split(":")[1]) for each in left_out} == lines
