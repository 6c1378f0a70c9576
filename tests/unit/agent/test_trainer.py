"""What an agent says of a command that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from costopt.agent.trainer import Trainer

RULE = "=" * 60
TORCHRUN = (
    "E1121 15:25:16.748000 22280 torch/distributed/elastic/multiprocessing/api.py:1002] failed\n"
    "Traceback (most recent call last):\n    raise ChildFailedError(\n"
    f"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n{RULE}\n"
    "  traceback : To enable traceback see: the elastic errors page\n"
)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("epoch 1\nValueError: no data\n", "ValueError: no data"),
        (f"epoch 1\nleaving early\n{RULE}\n", "leaving early"),
        (f"{RULE}\n", ""),
        (f"KeyError: 'lr'\n{TORCHRUN}", "KeyError: 'lr'"),
        (f"giving up\n{TORCHRUN}", "giving up"),
        (TORCHRUN, ""),
        ("", ""),
    ],
)
def test_the_complaint_is_a_line_that_says_something(tmp_path: Path, log: str, said: str) -> None:
    trainer = Trainer.__new__(Trainer)
    trainer._logs = []
    trainer.log_path = tmp_path / "trainer.log"
    trainer.log_path.write_text(log)
    assert trainer.error() == said
