"""A backtest can be resumed: nothing is run twice, and nothing damaged or outdated is believed."""

from __future__ import annotations

import json
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType

import pytest

from costopt.backtesting import trial as module
from costopt.backtesting.backtest import backtest
from costopt.backtesting.results_file import open_results_file
from costopt.backtesting.trial import BacktestConfig, Score, Trial, TrialKeys, Window, code_digest
from costopt.domain.account import Account, Quota
from costopt.domain.errors import StoreError
from tests.support.cant_be_late import NoHazard, market
from tests.support.engine_fixtures import Machines, Powers, rules, task
from tests.support.errors import has_code
from tests.support.market_fixtures import after

SCORES = {
    "a": Score(usd=1.5, low_usd=1.5, kwh=2.0, finish_s=3600.0, on_time=True, interruptions=2),
    "b": Score(usd=None),
    "c": Score(usd=0.1 + 0.2, on_time=False, lost_s=0.0),
}


def _write(path: Path) -> bytes:
    with open_results_file(path) as file:
        for key, score in SCORES.items():
            file.add(key, score)
    return path.read_bytes()


def test_scores_come_back_as_they_were(tmp_path: Path) -> None:
    _write(tmp_path / "r")
    with open_results_file(tmp_path / "r") as file:
        assert file.known == SCORES
        assert file.dropped == 0


@pytest.mark.slow
def test_cut_off_anywhere_the_whole_lines_are_kept_and_the_file_goes_on(tmp_path: Path) -> None:
    data = _write(tmp_path / "r")
    for length in range(len(data)):
        path = tmp_path / "cut"
        path.write_bytes(data[:length])
        whole = max(0, data[:length].count(b"\n") - 1)
        with open_results_file(path) as file:
            assert list(file.known) == list(SCORES)[:whole]
            file.add("z", SCORES["a"])
        with open_results_file(path) as file:
            assert list(file.known) == [*list(SCORES)[:whole], "z"]
            assert file.dropped == 0


def test_an_altered_line_is_dropped(tmp_path: Path) -> None:
    """Every digit of every score and key, changed for another."""
    path = tmp_path / "r"
    whole = _write(path)
    altered = 0
    for place in range(whole.index(b"\n"), len(whole)):
        if not chr(whole[place]).isdigit():
            continue
        data = bytearray(whole)
        data[place] = ord("7") if whole[place] != ord("7") else ord("8")
        path.write_bytes(bytes(data))
        with open_results_file(path) as file:
            assert file.dropped + len(file.known) == len(SCORES)
            assert all(SCORES[key] == score for key, score in file.known.items())
            altered += file.dropped
    assert altered > 20


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: train\n")
    with pytest.raises(StoreError, check=has_code("not_results")), open_results_file(path):
        pass
    assert path.read_text() == "name: train\n"


def test_one_backtest_at_a_time_writes_to_a_file(tmp_path: Path) -> None:
    with (
        open_results_file(tmp_path / "r"),
        pytest.raises(StoreError, check=has_code("in_use")),
        open_results_file(tmp_path / "r"),
    ):
        pass


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, check=has_code("unwritable")),
        open_results_file(tmp_path / "no/r"),
    ):
        pass


def test_scores_under_other_settings_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    settings: dict[str, str | float | bool] = {"--notice": 120.0, "the job": "a"}
    with open_results_file(path, settings) as file:
        file.add("a", SCORES["a"])
    others: dict[str, str | float | bool] = {"--notice": 60.0, "the job": "b"}
    for name, other in others.items():
        with (
            pytest.raises(StoreError, check=has_code("other_settings")) as caught,
            open_results_file(path, {**settings, name: other}),
        ):
            pass
        assert name in caught.value.message
    with open_results_file(path, {**settings, "the market sample": "c"}) as file:
        assert file.known == {"a": SCORES["a"]}


class Counting:
    """Runs trials and remembers which."""

    def __init__(self, give_up_after: int = 10**9) -> None:
        self.ran: list[Trial] = []
        self.give_up_after = give_up_after

    def __call__(
        self, config: BacktestConfig, trials: Sequence[Trial]
    ) -> Iterator[tuple[Trial, Score]]:
        for trial in trials:
            if len(self.ran) == self.give_up_after:
                raise KeyboardInterrupt
            self.ran.append(trial)
            yield trial, Score(usd=float(len(self.ran)))


RECORD = market([1] * 400, 600.0)


CONFIG = BacktestConfig({RECORD.name: RECORD}, Machines(), Powers, NoHazard)


TRIALS = [
    Trial(Window(RECORD.name, replace(task(), start_at=after(0), startup_s=60.0 * n)), policy)
    for n in range(3)
    for policy in (rules("on_demand"), rules("greedy_spot"))
]


def test_what_was_interrupted_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    path, keys = tmp_path / "r", TrialKeys(CONFIG, "edition")
    first, second = Counting(give_up_after=4), Counting()
    with open_results_file(path) as file, pytest.raises(KeyboardInterrupt):
        list(backtest(CONFIG, TRIALS, first, file, keys))
    with open_results_file(path) as file:
        scores = list(backtest(CONFIG, TRIALS, second, file, keys))
    assert first.ran == TRIALS[:4]
    assert second.ran == TRIALS[4:]
    assert [trial for trial, _ in scores] == TRIALS
    assert len(path.read_text().splitlines()) == 1 + len(TRIALS)


def test_a_key_changes_with_all_that_decides_a_score() -> None:
    trial = TRIALS[0]
    other_market = BacktestConfig(
        {RECORD.name: market([1] * 399, 600.0)}, Machines(), CONFIG.powers, NoHazard
    )
    keys = {
        TrialKeys(CONFIG, "edition").of(trial),
        TrialKeys(CONFIG, "another").of(trial),
        TrialKeys(other_market, "edition").of(trial),
        TrialKeys(replace(CONFIG, notice_s=1.0), "edition").of(trial),
        TrialKeys(replace(CONFIG, tick_s=60.0), "edition").of(trial),
        TrialKeys(replace(CONFIG, account=Account((Quota("q", max_nodes=1),))), "edition").of(
            trial
        ),
        *(TrialKeys(CONFIG, "edition").of(each) for each in TRIALS[1:]),
    }
    assert len(keys) == 6 + len(TRIALS) - 1
    assert TrialKeys(CONFIG, "edition").of(trial) == TrialKeys(CONFIG, "edition").of(TRIALS[0])


def test_each_line_is_json(tmp_path: Path) -> None:
    for line in _write(tmp_path / "r").splitlines():
        json.loads(line)


def test_it_changes_with_code_and_data_that_a_replay_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_package"
    for folder in ("engine", "cli", "render", "engine/__pycache__"):
        (package / folder).mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "engine" / "tick.py").write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "PACKAGES", ("some_package", "one_that_is_not_installed"))
    first = code_digest()
    (package / "cli" / "main.py").write_text("1")
    (package / "render" / "table.py").write_text("1")
    (package / "engine" / "__pycache__" / "tick.pyc").write_text("1")
    assert code_digest() == first
    (package / "engine" / "tick.py").write_text("2")
    second = code_digest()
    assert second != first
    (package / "prices.csv").write_text("1")
    assert code_digest() not in (first, second)


def test_it_covers_the_engine_and_the_simulator() -> None:
    names = {folder.name for folder in module._folders()}
    assert names == {"costopt", "costopt_sim"}
    assert code_digest() == code_digest()


def test_folders_that_no_replay_runs_through_exist() -> None:
    (package,) = (folder for folder in module._folders() if folder.name == "costopt")
    names = module.EXCLUDED_PACKAGES - {"__pycache__"}
    assert {name for name in names if not (package / name).is_dir()} == set()


def test_a_strategy_of_a_cell_is_not_taken_for_another() -> None:
    """A cell of a notebook has a name and source lines, but no file, and may use other cells."""
    name = "/tmp/ipykernel_1/2.py"
    source = "def make():\n    return None\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    code = compile(source, name, "exec").co_consts[0]
    make = FunctionType(code, {})
    try:
        assert module._source_digest(make) != module._source_digest(make)
    finally:
        del linecache.cache[name]
    assert module._source_digest(code_digest) == module._source_digest(code_digest)
