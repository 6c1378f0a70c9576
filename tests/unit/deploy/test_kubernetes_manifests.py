"""The daemon's manifests: valid by the newest schemas, restricted, with no right too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from kubernetes_validate import SchemaNotFoundError, validate

from costopt.cli.main import cli
from costopt.spec import load_account
from costopt_kubernetes.doctor import CLUSTER_WIDE, NAMESPACED, Right
from tests.support.node_folder import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
NEWEST = "1.37"
FOREIGN = {"ScaledObject"}
"""Kinds of custom resources, which have no schema here."""


def objects() -> list[dict[str, Any]]:
    return [
        item
        for path in sorted(FOLDER.glob("*.yaml"))
        for item in yaml.safe_load_all(path.read_text("utf-8"))
    ]


def one(kind: str) -> dict[str, Any]:
    return next(item for item in objects() if item["kind"] == kind)


@pytest.mark.parametrize("item", objects(), ids=lambda item: f"{item['kind']}")
def test_every_object_is_valid(item: dict[str, Any]) -> None:
    if item["kind"] in FOREIGN:
        with pytest.raises(SchemaNotFoundError):
            validate(item, NEWEST, strict=True)
    else:
        validate(item, NEWEST, strict=True)


def _triples(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(("kind", "rights"), [("Role", NAMESPACED), ("ClusterRole", CLUSTER_WIDE)])
def test_the_daemon_has_the_rights_that_the_doctor_asks_for_and_no_others(
    kind: str, rights: tuple[Right, ...]
) -> None:
    assert _triples(one(kind)["rules"]) == _triples([right.rule for right in rights])


def test_the_restricted_standard_admits_the_daemon() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    spec = one("Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_account_file_and_the_arguments_are_costopts(tmp_path: Path) -> None:
    path = tmp_path / "account.yaml"
    path.write_text(one("ConfigMap")["data"]["account.yaml"])
    assert set(load_account(path).providers) == {"kubernetes"}
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    command, *options = container["args"]
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    found.make_context(
        command, [str(path) if word.endswith("account.yaml") else word for word in options]
    )
