"""Stdout carries the output of a command alone, whatever a library prints there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.parse_outputs import COMMAND_LINE, PLAN, parse_outputs, stdout_of

pytestmark = [pytest.mark.slow, pytest.mark.process]

# As highspy 1.16 does, once with a system call and once through the buffer of C.
NOISY_SOLVER = """
import ctypes, os
import highspy

class NoisyHighs(highspy.Highs):
    def __init__(self):
        os.write(1, b"Running HiGHS (unbuffered)\\n")
        ctypes.CDLL(None).puts(b"Running HiGHS (buffered by C)")
        super().__init__()

highspy.Highs = NoisyHighs
"""
NOISY_LIBRARY = """
import ctypes, os
import pulp

make_problem = pulp.LpProblem

def make_noisy_problem(*arguments, **options):
    os.write(1, b"a licence\\n")
    os.system("echo the output of a child process")
    ctypes.CDLL(None).puts(b"a progress bar")
    return make_problem(*arguments, **options)

pulp.LpProblem = make_noisy_problem
"""


def test_a_solver_that_prints_leaves_every_output_parsable(tmp_path: Path) -> None:
    parse_outputs(tmp_path, NOISY_SOLVER)


def test_no_library_writes_to_the_stdout_of_a_command(tmp_path: Path) -> None:
    stdout_of(COMMAND_LINE, tmp_path, "init")
    text = stdout_of(NOISY_LIBRARY + COMMAND_LINE, tmp_path, *PLAN, "-o", "json")
    assert json.loads(text)["schema"] == "costopt.plan/1"
