"""``python -m benchmarks [NAME…]``: run the named benchmarks, or all, and print their figures."""

from __future__ import annotations

import importlib
import sys

NAMES = ("cli", "replay", "strategies", "energy", "optimize")


def main(names: list[str]) -> int:
    """Print name, value and unit of every figure."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names or NAMES:
        print(f"\n{name}")
        for label, value, unit in importlib.import_module(f"benchmarks.{name}").run():
            print(f"  {label:<72} {value:>10.3f} {unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
