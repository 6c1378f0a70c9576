"""The options of ``connect``, validated."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, InstanceOf, SkipValidation

from costopt.domain.history import MarketHistory
from costopt.domain.ports import InstanceCatalog
from costopt.domain.runtime import Runtime
from costopt.domain.transfers import TransferPrices
from costopt.provider.options import OptionModel, with_method


class SimMode(StrEnum):
    """What a simulated node is."""

    VIRTUAL = "virtual"
    PROCESS = "process"


class SimOptions(OptionModel):
    """The options of both modes."""

    market: InstanceOf[MarketHistory] = Field(
        description="a MarketHistory, as costopt.market.history_file.read_history returns it"
    )
    machines: Annotated[
        SkipValidation[InstanceCatalog],
        with_method("instance_type", "an object with instance_type(pool)"),
    ] = Field(description="the catalogue")
    mode: Annotated[SimMode, Field(strict=False)] = Field(
        default=SimMode.VIRTUAL, description="virtual or process"
    )
    notice_s: float | None = Field(
        default=None,
        ge=0,
        description="seconds from an interruption's notice to its end; else what the provider "
        "of each pool gives",
    )
    transfers: Annotated[
        SkipValidation[TransferPrices | None], with_method("__call__", "a function")
    ] = Field(default=None, description="the catalogue's transfer; virtual gangs then take time")


Folder = Annotated[Path, Field(strict=False)]


class ProcessOptions(SimOptions):
    """Those of process mode besides."""

    state_dir: Folder = Field(description="a folder for what is known of each node")
    store: Folder = Field(description="the folder where nodes and controller exchange messages")
    runtime: Annotated[SkipValidation[Runtime], with_method("form_gang", "a Runtime")] = Field(
        description="the Runtime over that store"
    )
    launcher: Literal["torchrun", "direct"] = Field(
        default="torchrun", description="torchrun or direct"
    )
    secrets: Folder | None = Field(
        default=None, description="a folder of secrets that nodes may read"
    )
    processes: int = Field(default=1, ge=1, description="trainer processes per node")
