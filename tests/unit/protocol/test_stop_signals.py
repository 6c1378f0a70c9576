"""A stop signal is handled also where the main thread holds the lock that its action needs."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from costopt.protocol.stop_signals import handle_stop_signals, install_handler

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60.0
ALLOWED_CALL = "os.write"
HANDLED_BY_CALLER = {"handler", "known"}
"""What ``install_handler`` installs and restores."""

IN_A_LOCK = """
import os, signal
from threading import Event
from costopt.protocol.stop_signals import handle_stop_signals
ended = Event()
with handle_stop_signals(lambda _: ended.set()):
    with ended._cond:  # as Event.wait does each time it wakes up
        os.kill(os.getpid(), signal.SIGTERM)
    print("ended" if ended.wait(60) else "not set")
"""


def test_a_signal_inside_the_lock_that_its_action_takes_ends_the_wait() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_LOCK],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_the_action_gets_each_signals_number_and_the_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    received: list[int] = []
    second = Event()

    def act(number: int) -> None:
        received.append(number)
        if len(received) == 2:
            second.set()

    with handle_stop_signals(act):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
        assert second.wait(TIMEOUT_S)
    assert sorted(received) == [signal.SIGHUP, signal.SIGTERM]
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)] == before


def test_what_the_parent_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with install_handler(lambda *_: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def installed_handlers() -> Iterator[tuple[Path, ast.Module, ast.expr]]:
    """Yield each handler that the product or an example installs, with its file."""
    for folder in ("costopt", "providers", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "signal" not in text:
                continue
            installs = {"signal.signal", "signal"} if "from signal " in text else {"signal.signal"}
            tree = ast.parse(text)
            for call in ast.walk(tree):
                if not isinstance(call, ast.Call):
                    continue
                name = ast.unparse(call.func)
                if name in installs:
                    yield path, tree, call.args[1]
                elif name == "install_handler":
                    yield path, tree, call.args[0]
                elif name.endswith("add_signal_handler"):
                    yield path, tree, call.args[1]


def refusal_reason(tree: ast.Module, handler: ast.expr) -> str | None:
    """Return why the handler could hang its process, None if it cannot."""
    text = ast.unparse(handler)
    name = text.rpartition(".")[2]
    if name in ("SIG_IGN", "SIG_DFL") or name in HANDLED_BY_CALLER:
        return None
    bodies = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    if not bodies:
        return f"{text} is not a function of this file"
    for node in (child for body in bodies for child in ast.walk(body)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) != ALLOWED_CALL:
            return f"{text} calls {ast.unparse(node.func)}"
        if isinstance(node, ast.With | ast.Import | ast.ImportFrom):
            return f"{text} holds {type(node).__name__}"
    return None


def test_every_handler_only_sets_attributes_or_writes_to_a_pipe() -> None:
    handlers = list(installed_handlers())
    assert len(handlers) >= 6
    found = {
        f"{path.relative_to(ROOT)}:{handler.lineno}": why
        for path, tree, handler in handlers
        if (why := refusal_reason(tree, handler)) is not None
    }
    assert not found


@pytest.mark.parametrize(
    "handler",
    [
        "lambda *_: ended.set()",
        "stop",
        "unknown",
    ],
)
def test_a_handler_that_calls_something_is_found(handler: str) -> None:
    tree = ast.parse("def stop(number, frame):\n    ended.set()\n")
    assert refusal_reason(tree, ast.parse(handler, mode="eval").body) is not None
