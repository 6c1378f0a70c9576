"""Writers that want the same name, task or HEAD at the same time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from costopt.domain.object_store import ObjectStore
from costopt.protocol.tasks import TaskBoard, TaskClaim

RACES = int(os.environ.get("COSTOPT_RACES", "100"))
WRITERS = 3


def check_races(store: ObjectStore) -> None:
    """Names are taken, tasks claimed and HEAD replaced by exactly one of the writers that try."""
    board = TaskBoard(store, "array")
    _race(lambda n, w: store.put_if_absent(f"names/{n}", str(w).encode()), RACES // 4)
    _race(lambda n, w: board.claim(n, 1, TaskClaim(f"n{w}", 1, float(n))), RACES // 4)
    assert store.replace("HEAD", b"first", None)
    have_read = Barrier(WRITERS)

    def replace(number: int, writer: int) -> bool:
        tagged = store.get_tagged("HEAD")
        assert tagged is not None
        have_read.wait()
        return store.replace("HEAD", f"{number} {writer}".encode(), tagged.tag)

    _race(replace, RACES)


def _race(write: Callable[[int, int], bool], races: int) -> None:
    """In each race the writers begin together, and one wins."""
    begin = Barrier(WRITERS)

    def wins_of(writer: int) -> list[int]:
        won = []
        for number in range(races):
            begin.wait()
            if write(number, writer):
                won.append(number)
        return won

    with ThreadPoolExecutor(WRITERS) as pool:
        wins = Counter(number for won in pool.map(wins_of, range(WRITERS)) for number in won)
    assert wins == Counter(dict.fromkeys(range(races), 1))
