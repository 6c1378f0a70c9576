"""Whether a Google Cloud project is fit to run jobs, found out before anything is launched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from costopt.domain.check import Check, Verdict
from costopt.domain.errors import ProviderError
from costopt.domain.market import CapacityType
from costopt_gcp.clients import Clients
from costopt_gcp.images import Images
from costopt_gcp.options import GcpOptions
from costopt_gcp.quotas import AccountQuotas
from costopt_gcp.regions import Regions
from costopt_gcp.roles import daemon_role, node_role
from costopt_gcp.startup import bucket_of


class Doctor:
    """One finding after another, from what everything needs to what only nodes need."""

    def __init__(self, clients: Clients, options: GcpOptions) -> None:
        self._clients = clients
        self._options = options
        self._regions = Regions(clients)
        self._quotas = AccountQuotas(clients, self._regions)
        self._images = Images(clients, options.nodes.image)

    def policies(self, owner: str, store: str | None) -> Mapping[str, object]:  # noqa: ARG002
        """By role: the custom role of the controller, and that of nodes."""
        return {
            "daemon": daemon_role(),
            "node": node_role(None if store is None else bucket_of(store)),
        }

    def checks(self, owner: str, store: str | None, now: datetime) -> Iterator[Check]:  # noqa: ARG002
        """Without credentials nothing else is asked."""
        try:
            detail = f"{self._clients.identity()} in {self._clients.project}"
        except ProviderError as error:
            yield _broken("credentials", error)
            return
        yield Check("credentials", Verdict.OK, detail)
        for region in self._options.regions:
            check = self._region(region, now)
            yield check
            if check.verdict is Verdict.OK:
                yield self._quota(region, now)
        yield self._image(now)
        yield self._account()
        yield self._store(store)

    def _region(self, region: str, now: datetime) -> Check:
        name = f"region {region}"
        try:
            zones = self._regions.facts(region, now).zones
        except ProviderError as error:
            return _broken(name, error)
        return Check(name, Verdict.OK, f"zones {', '.join(zones)}")

    def _quota(self, region: str, now: datetime) -> Check:
        name = f"quota {region}"
        try:
            quotas = self._quotas.of(region, now)
        except ProviderError as error:
            return _broken(name, error)
        spot = [q for q in quotas if q.capacity_type is not CapacityType.ON_DEMAND and q.max_gpus]
        if not spot:
            return Check(
                name,
                Verdict.BROKEN,
                "no GPU of any model may run on spot",
                "ask for more: https://console.cloud.google.com/iam-admin/quotas",
            )
        said = ", ".join(f"{q.gpu_model} {q.max_gpus}" for q in spot)
        return Check(name, Verdict.OK, f"spot GPUs: {said}")

    def _image(self, now: datetime) -> Check:
        try:
            return Check("image", Verdict.OK, self._images.image(now).path)
        except ProviderError as error:
            return _broken("image", error)

    def _account(self) -> Check:
        email = self._options.nodes.service_account
        if email is None:
            return Check(
                "node account",
                Verdict.MISSING,
                "no service account is named for nodes",
                "make one from the role that `costopt doctor gcp --iam-policy` prints, and name it "
                "in the provider's option service_account",
            )
        return Check("node account", Verdict.OK, email)

    def _store(self, store: str | None) -> Check:
        if store is None:
            add = "add store: gs://bucket/prefix to the account file"
            return Check("store", Verdict.MISSING, "the account names none", add)
        try:
            return Check("store", Verdict.OK, f"bucket {bucket_of(store)}, not asked for")
        except ProviderError as error:
            return _broken("store", error)


def _broken(name: str, error: ProviderError) -> Check:
    return Check(name, Verdict.BROKEN, error.message, error.hint)
