"""Where trainers find their membership, and the key to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from costopt.checkpoint.near.gang_key import GangKey
from costopt.store.durable import replace_nondurable


@dataclass(frozen=True, slots=True)
class MembershipAddress:
    """``place`` is "host:port". Without ``key`` the membership takes anybody who reaches it."""

    place: str
    key: GangKey | None = None

    def write(self, path: Path) -> None:
        """Replace the file, which only this user may read. Raises OSError."""
        replace_nondurable(path, json.dumps(asdict(self)).encode(), private=True)

    @classmethod
    def read(cls, told: str) -> MembershipAddress:
        """From COSTOPT_MEMBERSHIP: "host:port", or "file:///path" of what ``write`` wrote.

        Raises OSError where the file is missing, ValueError where it is nonsense.
        """
        parts = urlsplit(told)
        if parts.scheme != "file":
            return cls(told)
        try:
            fields = json.loads(Path(unquote(parts.path)).read_bytes())
            key = fields["key"]
            return cls(fields["place"], None if key is None else GangKey(**key))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{told} holds no address of a membership: {error}") from error
