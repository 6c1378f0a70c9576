"""What costopt is called where packages are installed from, and how to install it."""

from __future__ import annotations

DISTRIBUTION = "costopt-spot"
"""On package indexes; "costopt" there is another project. What is imported is ``costopt``."""
FOREIGN = "costopt"


def install_hint(extra: str) -> str:
    """The command that installs costopt with an extra, such as "aws"."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
