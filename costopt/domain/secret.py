"""Secrets of a job: the names under which nodes find the values, never the values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MIN_LENGTH = 8
"""Characters of a value: a shorter one cannot be redacted without hiding other text."""
MAX_BYTES = 64 << 10
"""The most that AWS Secrets Manager and Google Secret Manager hold."""


IMAGE_LOGIN = "COSTOPT_IMAGE_LOGIN"
"""In place of a variable: the login of the image's registry, which the command does not get."""


class SecretSource(StrEnum):
    """Where a node reads a value: a cloud's service, with its own role, or a file of this host."""

    AWS = "aws"
    GCP = "gcp"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret by the environment variable that the trainer gets, and its names by source.

    The variable holds the value or, with ``as_file``, the path of a file of mode 0600 with it.
    """

    variable: str
    names: tuple[tuple[SecretSource, str], ...]
    as_file: bool = False

    @property
    def label(self) -> str:
        """Return what a message calls it."""
        return "image_login" if self.variable == IMAGE_LOGIN else f"secret {self.variable}"

    def name_in(self, source: SecretSource) -> str | None:
        """Return the secret's name in ``source``, None if the job file gives none."""
        return dict(self.names).get(source)
