"""Which identity a node of Compute Engine comes up with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.errors import BadRequestError
from costopt.domain.runtime import Payload, StoredFile
from costopt_gcp.bootstrap import GcpBootstrap, NodeOptions
from tests.support.gcp.account import NewAccount

FILE = StoredFile("payloads/job/0/x", "0", 1)
PAYLOAD = Payload("job", "gs://runs/a", FILE, FILE, ())
SHARED, OWN = (f"{name}@project-1.iam.gserviceaccount.com" for name in ("nodes", "job"))


def account_of(project: NewAccount, job: str, **options: object) -> str | None:
    payloads = {"job": PAYLOAD, "later": replace(PAYLOAD, job="later")}
    nodes = NodeOptions.parse({"payloads": payloads, **options})
    request = replace(project.request(), job=job)
    return GcpBootstrap(project.clients(), nodes, 30).setup(request).service_account


def test_a_job_may_have_an_account_of_its_own(project: NewAccount) -> None:
    options = {"service_account": SHARED, "job_service_accounts": {"job": OWN}}
    assert account_of(project, "job", **options) == OWN
    assert account_of(project, "later", **options) == SHARED
    assert account_of(project, "job", job_service_accounts={"job": OWN}) == OWN


def test_without_an_account_no_node_is_started(project: NewAccount) -> None:
    with pytest.raises(BadRequestError, match="no service account is named"):
        account_of(project, "later", job_service_accounts={"job": OWN})


@pytest.mark.parametrize("wrong", ["job", {"job": "me"}])
def test_what_is_not_an_account_is_refused(project: NewAccount, wrong: object) -> None:
    with pytest.raises(BadRequestError, match="job_service_accounts"):
        account_of(project, "job", job_service_accounts=wrong)
