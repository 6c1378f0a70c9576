"""The faults that ``make mutants`` puts into the product, and which tests it runs against them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.mutants.__main__ import Trials
from tests.support.mutants.blocks import Blocks
from tests.support.mutants.mutation import draw, find_mutants
from tests.support.mutants.reach import make_map
from tests.support.mutants.report import Report, Row, compare

ROOT = Path(__file__).parents[2]
AGES = '''"""Ages."""

ADULT_YEARS = 18


def is_adult(years):
    """Return whether someone is an adult."""
    if years < 0:
        raise ValueError(years)
    return years >= ADULT_YEARS


def greet(years):
    return "Dear Sir or Madam" if is_adult(years) else "Hi"


def forget():
    greet(1)
'''
TESTS = """
import subprocess
import sys

from costopt.ages import greet, is_adult


def test_of_an_adult():
    assert is_adult(18)


def test_that_asserts_little():
    assert is_adult(-0) in (True, False)


def test_in_another_process():
    command = "from costopt.ages import greet; print(greet(20))"
    assert b"Madam" in subprocess.run([sys.executable, "-c", command], capture_output=True).stdout
"""


def changes(source: str) -> list[tuple[str, str]]:
    return [(each.old, each.new) for each in find_mutants("costopt/x.py", source.encode())]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b < 3", [("b < 3", "(b <= 3)"), ("3", "4")]),
        ("if b and not c: pass", [
            ("b and not c", "not (b and (not c))"), ("b and not c", "(b or not c)"),
            ("not c", "(c)"),
        ]),
        ("a = min(b) + c", [("min(b) + c", "(min(b) - c)"), ("min(b)", "(max(b))")]),
        ("def f(x: int = 1) -> bool:\n    return x", [("return x", "return None"), ("1", "2")]),
        ("é.close(); f(b=True)", [("é.close()", "pass"), ("f(b=True)", "pass"), ("True", "False")]),
    ],
)  # fmt: skip
def test_each_fault_of_a_line(source: str, expected: list[tuple[str, str]]) -> None:
    assert sorted(changes(source)) == sorted(expected)


@pytest.mark.parametrize(
    "source",
    [
        '"""Text of 3 lines."""',
        "x: Literal[1]",
        "if TYPE_CHECKING:\n    a = 1",
        "__all__ = ['a', *b(1)]",
        "log.warning('%d', 1)",
        "x = f'{1 + a:>4}'",
        "assert x > 0",
        "@dataclass(frozen=True)\nclass A(B, final=True):\n    x: int",
    ],
)
def test_what_no_test_could_notice_has_no_fault(source: str) -> None:
    assert changes(source) == []


def product(root: Path, ages: str = AGES) -> Path:
    """Return a checkout with a small product and tests of it."""
    for name, text in {
        "costopt/__init__.py": '"""The product."""\n',
        "costopt/ages.py": ages,
        "providers/costopt_sim/__init__.py": '"""A provider."""\n',
        "tests/test_ages.py": TESTS,
        "pytest.ini": "[pytest]\naddopts = -p no:schemathesis\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    shutil.copytree(
        ROOT / "tests" / "support" / "mutants", root / "tests" / "support" / "mutants",
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def test_applying_a_fault_changes_one_place(tmp_path: Path) -> None:
    root = product(tmp_path)
    for fault in draw(root, seed=0, count=100):
        (root / fault.path).write_text(AGES, "utf-8")
        fault.apply(root)
        before, after = AGES.splitlines(), (root / fault.path).read_text("utf-8").splitlines()
        changed = [
            n for n, pair in enumerate(zip(before, after, strict=True), 1) if len({*pair}) > 1
        ]
        assert changed == [fault.line]
        assert fault.new in after[fault.line - 1]


def test_the_choice_follows_from_seed_and_lines(tmp_path: Path) -> None:
    first = draw(product(tmp_path / "first"), seed=1, count=3)
    moved = draw(product(tmp_path / "moved", f"import os\n\n{AGES}"), seed=1, count=3)
    assert [each.key for each in first] == [each.key for each in moved]
    assert [each.line + 2 for each in first] == [each.line for each in moved]
    other_seeds = [draw(tmp_path / "first", seed, count=3) for seed in range(5)]
    assert any(each != first for each in other_seeds)


def test_blocks_are_what_runs_as_a_whole() -> None:
    blocks = Blocks()
    blocks.instrument("x.py", AGES.encode())
    assert [(each.lines, each.is_import, each.is_branch) for each in blocks.found] == [
        ((3, 6, 13, 17), True, False),
        ((8,), False, False),
        ((9,), False, True),
        ((), False, True),
        ((10,), False, False),
        ((14,), False, False),
        ((18,), False, False),
    ]


@pytest.mark.slow
def test_which_faults_the_tests_notice(tmp_path: Path) -> None:
    root, folder = product(tmp_path / "checkout"), tmp_path / "map"
    assert make_map(root, folder, ["-q", "-p", "no:cacheprovider", "tests"]) == 0

    def run(root: Path) -> Report:
        trials = Trials(folder, root, at_a_time=2)
        faults = [
            each
            for each in find_mutants("costopt/ages.py", AGES.encode())
            if each.new
            in ("(years > ADULT_YEARS)", "19", "(years <= 0)", "pass", "not (is_adult(years))")
        ]
        return Report(0, list(trials.run(faults)), trials.reach.shares())

    before = run(root)
    found = {row.new: (row.status, row.reached_by) for row in before.mutants}
    assert found == {
        "19": ("killed", 3),
        "(years <= 0)": ("killed", 3),
        "(years > ADULT_YEARS)": ("killed", 3),
        "not (is_adult(years))": ("killed", 1),
        "pass": ("unreached", 0),
    }
    assert before.shares["costopt.ages"] == (7 / 9, 0.5)

    cut = product(tmp_path / "cut")
    text = TESTS.replace("test_of_an_adult", "test_renamed").replace("test_in_another", "no_test")
    (cut / "tests" / "test_ages.py").write_text(text, "utf-8")
    after = run(cut)
    assert [row.new for row in after.mutants if row.status == "living"] == [
        "19", "(years > ADULT_YEARS)"
    ]  # fmt: skip
    assert (
        sum("before: killed by tests/test_ages.py" in line for line in compare(before, after)) == 3
    )


def test_reports_can_be_read_again(tmp_path: Path) -> None:
    row = Row("k", "costopt.x", "costopt/x.py:1", "a", "b", 3, 2, "living", "")
    report = Report(7, [row], {"costopt.x": (0.5, None), "all": (0.5, None)})
    report.write(tmp_path / "report.json")
    text = "\n".join(compare(Report.read(tmp_path / "report.json"), report))
    assert "1 of 1 mutants are in both reports" in text
    assert "50.0 %" in text
