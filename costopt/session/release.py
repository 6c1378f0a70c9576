"""Gives back every node of a job, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Iterable

from costopt.domain.errors import CostoptError
from costopt.domain.market import Pool
from costopt.ledger.job_record import JobRecord
from costopt.provider.base import Provider


def release_all_nodes(
    providers: Iterable[Provider], owner: str, job: str, record: JobRecord
) -> tuple[str, ...]:
    """What could not be given back or looked at, in a sentence each; empty where all went well.

    Besides the nodes that providers list, those that live by the ledger are asked to go: a list
    may fail or be behind.
    """
    troubles: list[str] = []
    for provider in providers:
        living = {
            node_id: event.pool
            for node_id, event in record.live.items()
            if Pool.parse(event.pool).provider in provider.names
        }
        try:
            for node in provider.nodes(owner):
                if node.job == job and node.state.is_alive:
                    living[node.node_id] = str(node.pool)
                else:
                    living.pop(node.node_id, None)
        except Exception as error:  # noqa: BLE001 - whatever fails holds no node
            names = "+".join(sorted(provider.names))
            troubles.append(f"the nodes of {names} cannot be listed: {_reason(error)}")
        for node_id, pool in living.items():
            try:
                provider.terminate(node_id)
            except Exception as error:  # noqa: BLE001
                troubles.append(f"node {node_id} in {pool} may still run: {_reason(error)}")
    return tuple(troubles)


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, CostoptError) else f"{type(error).__name__}: {error}"
