"""What an account file may say of this provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, InstanceOf, SkipValidation

from costopt.domain.ports import InstanceCatalog
from costopt.domain.runtime import Payload
from costopt.provider.options import Listed, OptionModel, Text


class SkeletonOptions(OptionModel):
    """``machines`` and ``payloads`` come from costopt, the rest from the account file."""

    injected: ClassVar[frozenset[str]] = frozenset({"machines", "payloads"})

    machines: SkipValidation[InstanceCatalog | None] = Field(
        default=None, description="the catalogue"
    )
    payloads: InstanceOf[Mapping[str, Payload]] = Field(
        default_factory=dict, description="what nodes download at their first boot, by job"
    )
    regions: Annotated[Listed[Text], Field(min_length=1)] = Field(
        description="a list of regions to rent in, such as [north-1]"
    )
