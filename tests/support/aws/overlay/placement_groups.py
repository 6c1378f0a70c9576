"""Placement groups, which moto does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply
from tests.support.aws.overlay.refusal import refusal
from tests.support.aws.overlay.spot_market import NAMESPACE


@dataclass(frozen=True)
class Group:
    """One group with its tags."""

    name: str
    strategy: str
    tags: Mapping[str, str]


class PlacementGroups:
    """By region and name."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str], Group] = {}

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """Create, describe, delete."""
        return {
            ("ec2", "CreatePlacementGroup"): self.create,
            ("ec2", "DescribePlacementGroups"): self.describe,
            ("ec2", "DeletePlacementGroup"): self.delete,
        }

    def reset(self) -> None:
        """None."""
        self.groups.clear()

    def create(self, call: Call, forward: Forward) -> Reply:
        """Refused where the name is taken."""
        name = call.params["GroupName"]
        if (call.region, name) in self.groups:
            message = f"The Placement Group '{name}' already exists."
            return refusal(call, "InvalidPlacementGroup.Duplicate", message)
        self.groups[call.region, name] = Group(name, call.params["Strategy"], _tags(call))
        return _answer("CreatePlacementGroup", "<return>true</return>")

    def describe(self, call: Call, forward: Forward) -> Reply:
        """Those of the region with the tags that are asked for."""
        wanted = {
            name.removeprefix("tag:"): call.params[f"Filter.{number}.Value.1"]
            for number, name in enumerate(_filters(call), start=1)
        }
        items = "".join(
            f"<item><groupName>{escape(group.name)}</groupName><state>available</state>"
            f"<strategy>{group.strategy}</strategy><tagSet>{_tag_set(group)}</tagSet></item>"
            for (region, _), group in self.groups.items()
            if region == call.region and all(group.tags.get(k) == v for k, v in wanted.items())
        )
        return _answer("DescribePlacementGroups", f"<placementGroupSet>{items}</placementGroupSet>")

    def delete(self, call: Call, forward: Forward) -> Reply:
        """Refused where there is none."""
        if self.groups.pop((call.region, call.params["GroupName"]), None) is None:
            message = f"The Placement Group '{call.params['GroupName']}' is unknown."
            return refusal(call, "InvalidPlacementGroup.Unknown", message)
        return _answer("DeletePlacementGroup", "<return>true</return>")


def _filters(call: Call) -> list[str]:
    names: list[str] = []
    while (name := call.params.get(f"Filter.{len(names) + 1}.Name")) is not None:
        names.append(name)
    return names


def _tags(call: Call) -> dict[str, str]:
    tags: dict[str, str] = {}
    while (key := call.params.get(f"TagSpecification.1.Tag.{len(tags) + 1}.Key")) is not None:
        tags[key] = call.params[f"TagSpecification.1.Tag.{len(tags) + 1}.Value"]
    return tags


def _tag_set(group: Group) -> str:
    return "".join(
        f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
        for key, value in group.tags.items()
    )


def _answer(action: str, content: str) -> Reply:
    return Reply.xml(
        f'<{action}Response xmlns="{NAMESPACE}"><requestId>0</requestId>'
        f"{content}</{action}Response>"
    )
