"""What is typed and read: the command line, HTTP, metrics, file schemas, words in records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click
import pytest

import costopt_aws.instances
import costopt_gcp.instances
import costopt_kubernetes.labels
import costopt_sim
import costopt_slurm.gang_tags
from costopt.checkpoint.replicas.snapshot import Tier
from costopt.cli.errors import BROKEN_PIPE, INTERRUPTED
from costopt.daemon.http.app import api_document
from costopt.daemon.loop.scheduler import PeriodicTask
from costopt.daemon.pages.routes import page_routes
from costopt.daemon.shared_state import Alert
from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.daemon.watch.metrics import HttpMetrics, MetricsEndpoint
from costopt.daemon.watch.webhooks import Webhook, WebhookFormat, Webhooks
from costopt.domain import errors
from costopt.domain.control import ActionKind, DesiredState, Mode, ProposalState, Scope
from costopt.domain.errors import CostoptError, ProviderError
from costopt.domain.estimate import Basis
from costopt.domain.events.node import NOT_SENT_ERROR
from costopt.domain.fleet import EndCause, LaunchRequest, NodeState
from costopt.domain.job import WorkUnit
from costopt.domain.market import CapacityType, Pool
from costopt.domain.plan import COOLDOWN, PlanStatus, Rejection
from costopt.domain.policy import CONCURRENT_LIMITS, CarbonSignal, ObjectiveTerm, RuleSignal
from costopt.domain.progress import GangState
from costopt.domain.view import Decision
from costopt.engine.admission import SHARE
from costopt.engine.quotas import GuardViolation
from costopt.ledger.summary import JobState
from costopt.protocol.messages import NodeActivity
from costopt.protocol.trainer_files import TrainerState
from costopt.provider.base import CheckStatus
from costopt.provider.tags import NodeTags
from costopt.registry.schema import append_audit_entry
from costopt.spec import account_schema, cluster_schema, job_schema, policy_schema
from costopt.spec.policy_file import bundled_policies
from costopt.strategies import strategy_names
from costopt.strategies.fault_isolation import FAILED
from costopt.strategies.registry import strategy_parameters
from costopt.strategies.shield import NO_PAUSE, SHIELD
from docs.generated.commands import commands, env_prefix
from tests.support import source_literals
from tests.support.daemon_api import served
from tests.support.golden import check, example

T = TypeVar("T", bound=CostoptError)

PROVIDERS = (costopt_aws, costopt_gcp, costopt_kubernetes, costopt_sim, costopt_slurm)
ENUMS: Mapping[str, type[Enum]] = {
    "aim of a policy": ObjectiveTerm,
    "basis of an estimate": Basis,
    "capacity type": CapacityType,
    "carbon signal": CarbonSignal,
    "desired state of a job": DesiredState,
    "end of a node": EndCause,
    "kind of action": ActionKind,
    "mode": Mode,
    "scope of a token": Scope,
    "state of a gang": GangState,
    "state of a job": JobState,
    "state of a node": NodeState,
    "state of a proposal": ProposalState,
    "state of a trainer": TrainerState,
    "state of an agent": NodeActivity,
    "status of a plan": PlanStatus,
    "tier of a replica": Tier,
    "trigger of a rule": RuleSignal,
    "unit of work": WorkUnit,
    "verdict of a check": CheckStatus,
    "webhook form": WebhookFormat,
}


def test_command_line() -> None:
    codes = {error.__name__: error.exit_code for error in _errors(CostoptError)}
    check(
        "command_line",
        {
            "exit codes": {
                **codes, "usage": click.UsageError.exit_code, "interrupted": INTERRUPTED,
                "broken pipe": BROKEN_PIPE,
            },
            "commands": {path: dict(_parameters(path, command)) for path, command in commands()},
        },
    )  # fmt: skip


def _parameters(path: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """Flags, or an argument's place, with environment variable and choices."""
    prefix = env_prefix(path, command)
    for number, each in enumerate(command.params):
        words = "|".join(each.type.choices) if isinstance(each.type, click.Choice) else ""
        if not isinstance(each, click.Option):
            yield f"argument {number + 1}", words
            continue
        variable = each.envvar or f"{prefix}_{each.name}".upper()
        kind = " (flag)" if each.is_flag else " (several)" if each.multiple else ""
        shown = variable if each.allow_from_autoenv and each.expose_value else "no variable"
        flags = ", ".join([*each.opts, *each.secondary_opts])
        yield flags, f"{shown}{kind}" + (f" = {words}" if words else "")


def _errors(of: type[T]) -> list[type[T]]:
    """The classes of the one tree of errors."""
    found = vars(errors).values()
    return [each for each in found if isinstance(each, type) and issubclass(each, of)]


def test_http(tmp_path: Path) -> None:
    with served(tmp_path, fill=False) as daemon:
        document = api_document()
        pages = [f"{'|'.join(sorted(r.methods))} {r.path}" for r in page_routes(daemon.service)]  # type: ignore[attr-defined]
    operations = {
        f"{method.upper()} {path}": _operation(described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    }
    components = document["components"]["schemas"]
    schemas = {name: each for name, each in components.items() if "properties" in each}
    kinds = {
        name: schema["properties"].get("kind", {}).get("const") for name, schema in schemas.items()
    }
    properties = {
        name: sorted(schema["properties"]) for name, schema in schemas.items() if not kinds[name]
    }
    check(
        "http",
        {
            "events": sorted(filter(None, kinds.values())),
            "operations": operations,
            "pages": sorted(pages),
            "schemas": properties,
        },
    )


def _operation(described: Mapping[str, Any]) -> dict[str, Any]:
    parameters = [f"{each['in']} {each['name']}" for each in described.get("parameters", ())]
    found = {"id": described["operationId"], "statuses": " ".join(sorted(described["responses"]))}
    if "x-scope" in described:
        found["scope"] = described["x-scope"]
    return {**found, "parameters": parameters} if parameters else found


@pytest.mark.slow
def test_metrics_and_alerts(tmp_path: Path) -> None:
    with served(tmp_path) as daemon:
        page = MetricsEndpoint(daemon.service, HttpMetrics(), None)
        families = list(page._registry.collect())
    hook = Webhook("name", "https://host", secret="secret")
    bodies: list[bytes] = []

    def send(_url: str, body: bytes, _headers: dict[str, str]) -> int:
        bodies.append(body)
        return 200

    hooks = Webhooks([hook], instance="host", send=send)
    hooks.deliver(hooks.lines[0], lambda _: [example(Alert)])
    check(
        "metrics",
        {
            "metrics": {each.name: f"{each.type}({', '.join(_labels(each))})" for each in families},
            "alerts": list(AlertKind),
            "tasks": source_literals.arguments(PeriodicTask.__name__, 0),
            "webhook": sorted(json.loads(bodies[0])),
        },
    )


def _labels(family: Any) -> tuple[str, ...]:
    return tuple(family._labelnames)


@pytest.mark.slow
def test_words() -> None:
    codes = {*source_literals.arguments(Rejection.__name__, 1), COOLDOWN}
    check(
        "words",
        {
            **{what: [member.value for member in enum] for what, enum in ENUMS.items()},
            "change in the registry": source_literals.arguments(append_audit_entry.__name__, 3),
            "error of a failed launch": sorted(
                [error.code for error in _errors(ProviderError)]
                + [NOT_SENT_ERROR, *source_literals.arguments("LaunchFailed", keyword="error")]
            ),
            "parameters of a strategy": {
                name: list(strategy_parameters(name)) for name in strategy_names()
            },
            "shipped policy": list(bundled_policies()),
            "guard": sorted(
                {*source_literals.arguments(GuardViolation.__name__, 0)}
                | {spec.field for spec in CONCURRENT_LIMITS}
            ),
            "rejection": sorted(
                codes.union(source_literals.codes("costopt/optimize", "costopt/market"))
            ),
            "rule": sorted(
                {*source_literals.arguments(Decision.__name__, keyword="rule")}
                | {COOLDOWN, FAILED, NO_PAUSE, SHARE, SHIELD}
            ),
        },
    )


def test_file_schemas() -> None:
    schemas = {
        "job": job_schema(),
        "policy": policy_schema(),
        "account": account_schema(),
        "cluster": cluster_schema(),
    }
    options = {f"options of {m.__name__}": sorted(m.OPTIONS.of_files()) for m in PROVIDERS}
    files = {name: _schema(document) for name, document in schemas.items()}
    check("file_schemas", {**files, **options})


def _schema(document: Mapping[str, Any]) -> dict[str, Any]:
    whole = _resolved(document, document.get("$defs", {}))
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    return {"digest without prose": digest, "keys": sorted(set(_keys(whole)))}


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """What validates: without titles, descriptions and names of definitions."""
    if isinstance(schema, list):
        return [_resolved(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    prose = {key for key in ("title", "description") if isinstance(schema.get(key), str)}
    return {
        key: _resolved(value, definitions)
        for key, value in schema.items()
        if key not in prose | {"$defs"}
    }


def _keys(schema: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of properties; items of arrays and values of mappings are at their parent's."""
    if isinstance(schema, list):
        for each in schema:
            yield from _keys(each, path)
    elif isinstance(schema, dict):
        for name, each in schema.get("properties", {}).items():
            yield f"{path}{name}"
            yield from _keys(each, f"{path}{name}.")
        for word in ("items", "anyOf", "oneOf", "allOf", "additionalProperties"):
            yield from _keys(schema.get(word), path)


@pytest.mark.slow
def test_names_outside() -> None:
    """Names by which costopt's things are known in clouds, environments and folders."""
    slurm_tags = costopt_slurm.gang_tags.GangTags("text", "text", "text", "text", 1, 1.0, 1.0)
    request = LaunchRequest("text", "text", Pool.parse("a/b/c/d/spot"), 1, "text")
    tags = NodeTags.of_request(request, 1.0)
    check(
        "names",
        {
            "annotations of pods": sorted(costopt_kubernetes.labels.notes(request, 1.0)),
            "labels of pods": sorted(costopt_kubernetes.labels.labels(request)),
            "EC2 tags": sorted(tags.texts(costopt_aws.instances.PREFIX)),
            "Compute Engine metadata": sorted(tags.texts(costopt_gcp.instances.NAMES)),
            "Compute Engine labels": sorted(costopt_gcp.instances.labels("text", "text", "text")),
            "Slurm comment": sorted(json.loads(slurm_tags.comment())),
            "environment": source_literals.names("_?COSTOPT_[A-Z0-9_]+"),
            "files": source_literals.names(
                r"[\w-][\w.-]*\.(json|sqlite|lock|sock|toml|yaml|pt|log|service)"
            ),
            "loggers": source_literals.arguments("getLogger", 0),
            "named after costopt": source_literals.names("@?[Cc]ostopt[-_:/][a-z_-]*"),
            "schemas": source_literals.names(r"costopt\.[a-z.-]+/\d+"),
        },
    )
