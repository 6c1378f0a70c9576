"""What an account file may say of this provider."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from costopt.provider.options import LaunchOptions, Listed, Text


class SkeletonOptions(LaunchOptions):
    """``machines`` and ``payloads`` come from costopt, the rest from the account file."""

    regions: Annotated[Listed[Text], Field(min_length=1)] = Field(
        description="a list of regions to rent in, such as [north-1]"
    )
