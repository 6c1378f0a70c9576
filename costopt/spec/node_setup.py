"""What job.yaml says of a node before the command runs: image, its login, setup and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from costopt.domain.secret import IMAGE_LOGIN, Secret, SecretSource
from costopt.spec.fields import FileModel, Name, Text

RESERVED_PREFIX = "COSTOPT_"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MACHINE_IMAGE = re.compile(r"ami-[0-9a-f]+|(https://.*/)?projects/[^/]+/global/images/.*")
IMAGE = re.compile(
    r"(?:[a-zA-Z0-9][a-zA-Z0-9.-]*(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
"""[HOST[:PORT]/]PATH[:TAG][@DIGEST] (github.com/distribution/reference)."""


def _image(value: str) -> str:
    if MACHINE_IMAGE.fullmatch(value):
        raise PydanticCustomError(
            "machine_image",
            "{image} is a machine's image: name it in the account file, as image: of the provider; "
            "here, expected a container image, such as docker.io/pytorch/pytorch:2.7.1",
            {"image": value},
        )
    if not IMAGE.fullmatch(value):
        raise PydanticCustomError(
            "image", "expected a container image, such as docker.io/pytorch/pytorch:2.7.1"
        )
    return value


def _variables(value: Mapping[str, SecretSection]) -> Mapping[str, SecretSection]:
    for name in value:
        if not VARIABLE.fullmatch(name) or name.startswith(RESERVED_PREFIX):
            raise PydanticCustomError(
                "variable",
                "expected the name of an environment variable that does not begin with COSTOPT_, "
                "got {name}",
                {"name": repr(name)},
            )
    return value


def _no_value(value: object) -> object:
    """Refuse a bare text without repeating it: it may be the secret itself."""
    if isinstance(value, Mapping):
        unknown = value.keys() - SecretSection.model_fields.keys()
        if not unknown:
            return value
    raise PydanticCustomError(
        "secret", "expected where the value is, such as {host: NAME}, never the value itself"
    )


class SecretSection(FileModel):
    """Where nodes find the value of a secret: its name in at least one place."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [each.value], "properties": {each.value: {"type": "string"}}}
                for each in SecretSource
            ]
        }
    )

    aws: str | None = Field(
        default=None,
        pattern=r"^(arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:)?"
        r"[A-Za-z0-9_/+=.@-]{1,512}$",
        description="name (in the region of the store) or ARN in AWS Secrets Manager, which nodes "
        "of aws read with their role",
    )
    gcp: str | None = Field(
        default=None,
        pattern=r"^(projects/[a-z0-9.:-]+/secrets/)?[A-Za-z0-9_-]{1,255}"
        r"(/versions/[A-Za-z0-9_-]{1,64})?$",
        description="name (in the node's project) or projects/PROJECT/secrets/NAME in Google "
        "Secret Manager, which nodes of gcp read with their service account",
    )
    host: Name | None = Field(
        default=None,
        description="file in the folder of secrets of this host, which simulated nodes read",
    )
    as_file: bool = Field(
        default=False,
        description="the variable holds the path of a file with the value, not the value",
    )

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not any((self.aws, self.gcp, self.host)):
            raise PydanticCustomError("secret", "expected a name: aws, gcp or host")
        return self


_ImageName = Annotated[
    Text,
    AfterValidator(_image),
    Field(
        json_schema_extra={
            "pattern": f"^(?:{IMAGE.pattern})$",
            "not": {"pattern": f"^(?:{MACHINE_IMAGE.pattern})$"},
        }
    ),
]
Image = Annotated[
    _ImageName | None,
    Field(
        description="container image in which podman or docker runs the command; default: none, it "
        "runs in the node's own environment"
    ),
]
ImageLogin = Annotated[
    Annotated[SecretSection, BeforeValidator(_no_value)] | None,
    Field(
        description="where nodes find the login of the image's registry: a secret whose value is "
        "USER:PASSWORD, or the text of a config.json of docker; default: none, or of ECR and "
        "Artifact Registry by the node's role"
    ),
]
Secrets = Annotated[
    dict[str, Annotated[SecretSection, BeforeValidator(_no_value)]],
    AfterValidator(_variables),
    Field(
        json_schema_extra={
            "propertyNames": {
                "pattern": f"^{VARIABLE.pattern}$",
                "not": {"pattern": f"^{RESERVED_PREFIX}"},
            }
        }
    ),
]


def to_secrets(
    sections: Mapping[str, SecretSection], image_login: SecretSection | None
) -> tuple[Secret, ...]:
    """Return the secrets that the section names, in its order, and last the image's login."""
    named = {**sections} if image_login is None else {**sections, IMAGE_LOGIN: image_login}
    return tuple(
        Secret(variable, tuple(_names(section)), section.as_file)
        for variable, section in named.items()
    )


def _names(section: SecretSection) -> Iterable[tuple[SecretSource, str]]:
    for source in SecretSource:
        name = getattr(section, source.value)
        if name is not None:
            yield source, name
