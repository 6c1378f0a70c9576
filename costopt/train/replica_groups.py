"""Copies of a sharded model that train together: each on several processes, its shard group.

A process meets those of the other copies that hold the same shards. What a lost copy interrupts on
one process of a shard group is an error on all of them, so that all hold the state of one step.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from costopt.domain.errors import CostoptError
from costopt.protocol.membership import GangFormedMessage
from costopt.train.elastic_group import ElasticGroup
from costopt.train.group import PeerLostError, RankGroup, StepVote
from costopt.train.membership_client import MembershipClient, UnitPlace
from costopt.train.sharded_ranks import ShardRanks
from costopt.train.sharded_state import ModelMesh

Join = Callable[[Callable[[str], str], UnitPlace], MembershipClient]


def merge_votes(unit: ShardRanks, vote: StepVote) -> StepVote:
    """Return the vote of a copy: it leaves when one of its processes is asked to."""
    stops, saves, parts, weights = zip(*unit.gather_numbers(vote.numbers()), strict=True)
    return StepVote(any(stops), saves[0] > 0, any(parts), vote.weights, weights)


class FixedReplicas(RankGroup):
    """The copies in one torch.distributed world; ``unit`` are the processes of this one."""

    def __init__(self, unit: ShardRanks, mesh: ModelMesh) -> None:
        """Collective over the world. Raise CostoptError if the copies do not make it up."""
        super().__init__()
        self.unit = unit
        copies = list(dict.fromkeys(ShardRanks().gather(mesh.ranks)))
        if sorted(rank for ranks in copies for rank in ranks) != list(range(self.size)):
            raise CostoptError(
                f"the model is sharded over {len(mesh.ranks)} of {self.size} processes, of which "
                "the others do not make whole copies",
                hint="give every process a part of exactly one copy",
            )
        if not dist.is_initialized():
            return  # this process is alone
        own = self.rank
        for position in range(unit.size):
            members = [ranks[position] for ranks in copies]
            links: Any = dist.new_group(members)
            if own in members:
                self._links, self.size, self.rank = links, len(members), members.index(own)

    def share_vote(self, vote: StepVote) -> StepVote:
        """Return the vote of all processes of this copy."""
        return merge_votes(self.unit, vote)


class ElasticReplicas(ElasticGroup):
    """Copies that come and go through a membership, each with a torch.distributed world of its own.

    ``unit`` are the processes of this one.
    """

    def __init__(self, unit: ShardRanks, join: Join) -> None:
        self.unit = unit
        self._is_agreeing = False
        place = UnitPlace(unit.share(uuid.uuid4().hex), unit.rank, unit.size)
        super().__init__(lambda store_at: join(store_at, place), place)

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Raise PeerLostError on all processes of this copy if the block does so on one."""
        if self._is_agreeing:
            yield
            return
        error = None
        self._is_agreeing = True
        try:
            yield
        except PeerLostError as raised:
            error = raised
        finally:
            self._is_agreeing = False
        found = self.unit.gather_numbers([float(error is None), float(self.generation or 0)])
        if error is not None:
            raise error
        if not all(held for held, _ in found):
            raise PeerLostError("another process of this shard group lost a peer")
        if len({generation for _, generation in found}) > 1:
            raise PeerLostError("processes of this shard group are in different gangs")

    def form(self, *, failed: bool) -> GangFormedMessage:
        """Form the next gang, all processes of this copy the same one."""
        with self.agreeing():
            return super().form(failed=failed)

    def broadcast(self, value: Any, source: int = 0) -> Any:
        """Return the source's value, or raise PeerLostError on all processes of this copy."""
        with self.agreeing():
            return super().broadcast(value, source)

    def share_vote(self, vote: StepVote) -> StepVote:
        """Return the vote of all processes of this copy."""
        return merge_votes(self.unit, vote)

    def fence(self) -> None:
        """As for any group, where the processes of this copy agree on what it raises."""
        if self._is_agreeing:
            super().fence()


Replicas = FixedReplicas | ElasticReplicas
