"""The values of a job's secrets, as this node reads them: with its role, or from its host's files.

Only the trainer gets them. What this process writes to the store or to a log is redacted.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from pathlib import Path

from costopt.agent.node_role import RoleError, call_aws, call_google, google_project
from costopt.domain.errors import SpecError
from costopt.domain.secret import MIN_LENGTH, SecretSource
from costopt.protocol.messages import SecretName
from costopt.store.host_secrets import read_host_secret


class SecretError(Exception):
    """A secret has no usable value; the message names it, never its value."""


class SecretReader:
    """Reads secrets from the ``source`` that this node may read, ``folder`` for its host's files.

    ``source`` None: the node may read none.
    """

    def __init__(self, source: SecretSource | None, folder: Path | None = None) -> None:
        self._source = source
        self._folder = folder

    @classmethod
    def parse(cls, text: str) -> SecretReader:
        """Return the reader for aws, gcp, none or host:FOLDER. Raise ValueError."""
        kind, _, folder = text.partition(":")
        if kind == "none":
            return cls(None)
        source = SecretSource(kind)
        if (source is SecretSource.HOST) != bool(folder):
            raise ValueError(f"expected aws, gcp, host:FOLDER or none, got {text!r}")
        return cls(source, Path(folder) if folder else None)

    @property
    def source(self) -> SecretSource | None:
        """Return where the node reads values, None for nowhere."""
        return self._source

    def read(self, secrets: Iterable[SecretName]) -> dict[str, str]:
        """Return the values by variable, of those that this node can read. Raise SecretError."""
        rows = [(variable, source, name) for variable, source, name, _ in secrets]
        values = {
            variable: self._value(variable, name)
            for variable, source, name in rows
            if source == self._source
        }
        for variable, _, _ in rows:
            if variable not in values:
                where = "no place" if self._source is None else f"{self._source.value} alone"
                raise SecretError(
                    f"secret {variable} names nothing that this node may read: it reads {where}"
                )
        return values

    def _value(self, variable: str, name: str) -> str:
        try:
            data = self._bytes(name)
            value = data.decode()
        except (RoleError, SpecError) as error:
            raise SecretError(f"secret {variable}: {error}") from None
        except UnicodeDecodeError:
            raise SecretError(f"secret {variable}: {name} is not text in UTF-8") from None
        if "\0" in value or len(value) < MIN_LENGTH:
            raise SecretError(
                f"secret {variable}: {name} has fewer than {MIN_LENGTH} characters, or a null "
                "character: it could not be passed on and redacted"
            )
        return value

    def _bytes(self, name: str) -> bytes:
        if self._source is SecretSource.AWS:
            return _aws_value(name)
        if self._source is SecretSource.GCP:
            return _google_value(name)
        assert self._folder is not None
        tenant, _, file = name.partition("/")
        return read_host_secret(self._folder, tenant, file).rstrip(b"\r\n")


def _aws_value(name: str) -> bytes:
    """https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html"""
    region = name.split(":")[3] if name.startswith("arn:") else os.environ.get("AWS_REGION", "")
    response = call_aws(
        "secretsmanager", region, "secretsmanager.GetSecretValue", {"SecretId": name}
    )
    if response.get("SecretString") is not None:
        return str(response["SecretString"]).encode()
    return base64.b64decode(str(response["SecretBinary"]))


def _google_value(name: str) -> bytes:
    """https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access"""
    if not name.startswith("projects/"):
        name = f"projects/{google_project()}/secrets/{name}"
    if "/versions/" not in name:
        name += "/versions/latest"
    response = call_google("secretmanager", f"/v1/{name}:access")
    return base64.b64decode(str(response["payload"]["data"]))
