"""Commands that an operator has a node run, to look into it, and what they printed.

jobs/<job>/nodes/<node>/exec.json      ExecRequest    controller → agent, the newest
jobs/<job>/exec/<node>/<id>.json       CommandResult  agent → controller

The agent runs one at a time. A command that replaces another one before the agent has read it is
run alone. Methods raise StoreError.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from costopt.domain.errors import SpecError
from costopt.domain.object_store import ObjectStore
from costopt.domain.text import encodable_text
from costopt.protocol.codec import decode_message, encode_message, parse_fields

MAX_OUTPUT_BYTES = 64 << 10
"""The last of what a command printed."""
MAX_COMMAND_BYTES = 64 << 10
MAX_RESULT_BYTES = 1 << 20
MAX_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A command without a shell, killed after ``timeout_s``. ``id`` is new for each."""

    id: str
    command: tuple[str, ...]
    timeout_s: float

    @classmethod
    def new(cls, command: Sequence[str], timeout_s: float) -> ExecRequest:
        """Return a request with an id of its own."""
        return cls(secrets.token_hex(8), tuple(command), timeout_s)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """``exit_code`` is None where the command did not start or was killed; ``message`` says why.

    ``output`` holds both streams, without what was printed before it if ``truncated``.
    """

    id: str
    exit_code: int | None
    output: str
    truncated: bool = False
    message: str = ""


def choose_node(
    job: str, living: Sequence[str], gang: Sequence[str], node_id: str | None = None
) -> str:
    """Return the living node that is meant: this one, by default rank 0 of the newest gang if it
    lives, else the first that does. Raise SpecError where there is none."""
    first = next((each for each in (*gang, *living) if each in living), None)
    chosen = first if node_id is None else node_id
    if chosen is None or chosen not in living:
        which = "no node" if node_id is None else f"no node {node_id!r}"
        raise SpecError(
            f"job {job!r} has {which} that lives",
            hint="keep_failed: in the job file keeps a node whose command failed",
            code="no_node",
        )
    return chosen


class CommandBox:
    """The commands of one job's nodes."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self._store = store
        self._prefix = f"jobs/{job}"

    def post(self, node_id: str, command: ExecRequest) -> None:
        """Have the node run this next."""
        self._store.put(f"{self._prefix}/nodes/{node_id}/exec.json", encode_message(command))

    def newest(self, node_id: str) -> ExecRequest | None:
        """Return the newest command of a node, None if there was none that can be read."""
        key = f"{self._prefix}/nodes/{node_id}/exec.json"
        found = decode_message(ExecRequest, self._fields(key, MAX_COMMAND_BYTES))
        is_usable = found is not None and found.command and 0 < found.timeout_s <= MAX_TIMEOUT_S
        return found if is_usable else None

    def post_result(self, node_id: str, result: CommandResult) -> None:
        """Report how a command ended."""
        self._store.put(self._result_key(node_id, result.id), encode_message(result))

    def result(self, node_id: str, command_id: str) -> CommandResult | None:
        """Return how a command ended, None before it has."""
        fields = self._fields(self._result_key(node_id, command_id), MAX_RESULT_BYTES)
        return decode_message(CommandResult, fields)

    def _result_key(self, node_id: str, command_id: str) -> str:
        return f"{self._prefix}/exec/{node_id}/{command_id}.json"

    def _fields(self, key: str, max_bytes: int) -> dict[str, object] | None:
        return parse_fields(self._store.get(key, max_bytes), encodable_text)
