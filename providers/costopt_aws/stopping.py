"""Giving nodes back."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.errors import BadRequestError, ProviderError, ProviderUnavailableError
from costopt.domain.fleet import Node
from costopt.provider.cache import fan_out
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.node_book import GRACE, KnownNodes
from costopt_aws.notices import InterruptionQueue

ALREADY_GONE_CODES = frozenset({"InvalidInstanceID.Malformed", "InvalidInstanceID.NotFound"})


class InstanceTerminator:
    """TerminateInstances. That a node is gone is said by the lists, not here."""

    def __init__(
        self,
        clients: Clients,
        regions: tuple[str, ...],
        book: KnownNodes,
        notices: InterruptionQueue,
    ) -> None:
        self._clients = clients
        self._regions = regions
        self._book = book
        self._notices = notices

    def terminate(self, node_id: str, now: datetime) -> None:
        """Release a node; silent where it is missing or has ended. Raises ProviderError.

        A spot node that EC2 is about to take in its first hour is left to it, for then it costs
        nothing; one that still lives two minutes after its strike is terminated.
        """
        node = self._book.node(node_id)
        if node is None:
            self._terminate_anywhere(node_id)
        elif node.state.is_alive and not self._notices.is_unbilled_interruption(node, now):
            self._terminate_known(node, now)

    def _terminate_known(self, node: Node, now: datetime) -> None:
        there = self._terminate(node.pool.region, node.node_id)
        if not there and now - node.launched_at <= GRACE:
            raise ProviderUnavailableError(
                f"{node.pool.region}: {node.node_id} is so new that EC2 does not find it yet"
            )

    def _terminate_anywhere(self, node_id: str) -> None:
        answers = fan_out(self._regions, lambda region: self._terminate(region, node_id))
        failed = [told for told in answers.values() if isinstance(told, ProviderError)]
        if failed and True not in answers.values():
            raise failed[0]

    def _terminate(self, region: str, node_id: str) -> bool:
        """Whether the region knows the instance."""
        try:
            with map_errors("ec2:TerminateInstances", f"{region}: {node_id}"):
                self._clients.reading("ec2", region).terminate_instances(InstanceIds=[node_id])
        except BadRequestError as error:
            if code_of(error) not in ALREADY_GONE_CODES:
                raise
            return False
        return True
