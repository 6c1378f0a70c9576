"""The gang sizes worth comparing: every small one, and a ladder of the large ones.

One node more or less changes the speed of a gang of hundreds by less than the error of that speed.
So sizes grow by 1 up to ``EVERY_SIZE`` and then in ``STEPS_PER_DOUBLING`` equal steps between
powers of two (20, 24, 28, 32, 40, …), which bounds the configurations of a job by the logarithm of
its largest gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

EVERY_SIZE = 16
STEPS_PER_DOUBLING = 4


def ladder(allowed: range, also: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the sizes of ``allowed`` to compare, ascending.

    Besides the ladder these are the ends of ``allowed``, and the sizes of ``also``, or the next
    below that it contains. Where ``allowed`` has steps, the ladder counts in them.
    """
    if not allowed or allowed[-1] // allowed.step <= EVERY_SIZE:
        return tuple(allowed)
    step = allowed.step
    sizes = {allowed[0], allowed[-1]}
    sizes.update(n * step for n in _rungs(allowed[-1] // step) if n * step in allowed)
    sizes.update(size - size % step for size in also if size - size % step in allowed)
    return tuple(sorted(sizes))


def _rungs(largest: int) -> Iterator[int]:
    yield from range(1, EVERY_SIZE + 1)
    power = EVERY_SIZE
    while power < largest:
        step = power // STEPS_PER_DOUBLING
        yield from range(power + step, 2 * power + 1, step)
        power *= 2
