"""How the nodes of one gang know each other: by a secret that each generation gets anew."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def new_nonce() -> str:
    """Never the same twice, so that no answer can be played again."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class GangKey:
    """``secret`` comes with the gang's letter, and is good for its generation only."""

    job: str
    generation: int
    secret: str = field(repr=False)

    def mac(self, nonce: str, fields: Mapping[str, Any]) -> str:
        """HMAC-SHA256 (RFC 2104) over the other side's nonce and the letter."""
        text = json.dumps([nonce, fields], sort_keys=True).encode()
        return hmac.new(self.secret.encode(), text, hashlib.sha256).hexdigest()

    def sign(self, nonce: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The letter with its MAC."""
        return {**fields, "mac": self.mac(nonce, fields)}

    def verify(self, nonce: str, letter: dict[str, Any]) -> dict[str, Any]:
        """The inverse; raises ValueError where it was not signed with this key."""
        fields = {name: value for name, value in letter.items() if name != "mac"}
        if not hmac.compare_digest(self.mac(nonce, fields), str(letter.get("mac", ""))):
            raise ValueError("the letter is not signed with the gang's secret")
        return fields
