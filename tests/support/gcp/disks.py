"""Disks and instance templates: what can be left behind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tests.support.gcp.filters import kept
from tests.support.gcp.responses import Call, Reply, missing


class StoredThings:
    """By zone and name; templates are global."""

    def __init__(self) -> None:
        self.disks: dict[tuple[str, str], dict[str, Any]] = {}
        self.templates: dict[str, dict[str, Any]] = {}

    def reset(self) -> None:
        """As new."""
        self.disks.clear()
        self.templates.clear()

    def leave_disk(self, zone: str, name: str, labels: Mapping[str, str], at: datetime) -> None:
        """A disk that no instance uses."""
        created = at.isoformat(timespec="milliseconds")
        self.disks[zone, name] = {"name": name, "labels": labels, "creationTimestamp": created}

    def leave_template(self, name: str, labels: Mapping[str, str], at: datetime) -> None:
        """An instance template."""
        created = at.isoformat(timespec="milliseconds")
        properties = {"labels": labels}
        self.templates[name] = {
            "name": name,
            "properties": properties,
            "creationTimestamp": created,
        }

    def disk_scopes(self, call: Call) -> Mapping[str, Any]:
        """disks.aggregatedList."""
        reported: dict[str, Any] = {}
        for (zone, _), disk in self.disks.items():
            if kept([disk], call.query.get("filter", "")):
                reported.setdefault(f"zones/{zone}", {"disks": []})["disks"].append(disk)
        return reported

    def listed_templates(self, call: Call) -> list[Mapping[str, Any]]:
        """instanceTemplates.list."""
        return kept(self.templates.values(), call.query.get("filter", ""))

    def delete_disk(self, call: Call) -> Reply:
        """disks.delete."""
        key = call.names["zone"], call.names["disk"]
        if self.disks.pop(key, None) is None:
            raise missing("disks", key[1])
        return Reply({"name": "deleting", "status": "RUNNING"})

    def delete_template(self, call: Call) -> Reply:
        """instanceTemplates.delete."""
        if self.templates.pop(call.names["template"], None) is None:
            raise missing("instanceTemplates", call.names["template"])
        return Reply({"name": "deleting", "status": "RUNNING"})
