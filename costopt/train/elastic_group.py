"""A process group that forms again in the same process when a peer is lost, leaves or joins."""

from __future__ import annotations

import ctypes
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed  # completes the initialization of its C part
from torch import Tensor

from costopt.protocol.membership import GangFormedMessage, TrainerProgress
from costopt.train.group import PeerLostError, RankGroup
from costopt.train.membership_client import MembershipClient, UnitPlace

c10d: Any = torch._C._distributed_c10d
"""The C part of torch.distributed; its type stubs are incomplete."""
RENDEZVOUS_TIMEOUT_S = 5.0
COLLECTIVE_TIMEOUT_S = 600.0
POLL_S = 0.02
POLL_INTERVAL_S = 0.0005
ALONE = UnitPlace("", 0, 1)


class ElasticGroup(RankGroup):
    """A group without members until ``form``. A collective that cannot end raises PeerLostError.

    Each process hosts a c10d store at the address from which it reached the membership, and a gang
    meets at that of its rank 0 under its generation, so that remains of older gangs are never read.
    It uses gloo on CPUs and NCCL if CUDA is available: the communicator is aborted when the gang is
    over, which was written from PyTorch's interface and has not been tried on GPUs.
    """

    def __init__(
        self, join: Callable[[Callable[[str], str]], MembershipClient], unit: UnitPlace = ALONE
    ) -> None:
        """``join`` returns the member, given the function that opens this process' store.

        Of a sharded model, ranks and sizes count ``unit``s, and a process meets those at its own
        position.
        """
        self._place = unit
        self._stores: dict[str, Any] = {}
        self.member = join(self._store_at)
        self.generation = 0
        self.size, self.rank = 1, 0
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._links: Any = None
        self._pending: list[Any] = []
        self._kept: list[tuple[Any, list[Any]]] = []

    def form(self, *, failed: bool) -> GangFormedMessage:
        """Wait for the next gang and connect to it.

        Raise PeerLostError if a peer is lost meanwhile (form again), StoreError if no membership
        answers.
        """
        formed = self.member.next_gang(failed=failed)
        old, self._links = self._links, None
        self.generation = formed.generation
        self.size = len(formed.members) // self._place.size
        self.rank = formed.members.index(self.member.name) // self._place.size
        self._keep(old)
        if self.size > 1:
            try:
                self._links = self._connect(formed)
            except RuntimeError as error:
                raise PeerLostError(f"the gang did not meet: {error}") from error
        if formed.source is None:
            return formed
        return replace(formed, source=formed.source // self._place.size)

    def publish_state(self, step: int | None) -> None:
        """Report that this process holds the state after ``step`` steps in the present gang."""
        self.member.standing = TrainerProgress(self.generation or 0, step)

    def fence(self) -> None:
        """Raise PeerLostError if this process was suspended so long that the gang may be over, or
        is alone in one that is: no collective would detect it.
        """
        if self.size == 1:
            self._check()
        elif self.member.was_suspended(self.generation or 0):
            raise PeerLostError("this process was suspended")

    def is_join_pending(self) -> bool:
        """Whether a process waits to join."""
        return self.member.others_wait()

    def settle(self, *works: Any) -> None:
        """Wait for the works that were begun, or until the gang is over."""
        self._pending = list(works)
        for work in works:
            self._wait(work)
        self._pending = []

    def leave(self) -> None:
        """Part from the other members, which know it."""
        self.member.leave()
        self._keep(self._links)
        self._links = None

    def _wait(self, work: Any) -> None:
        if self.device.type == "cuda":
            while not work.is_completed():
                self._check()
                time.sleep(POLL_INTERVAL_S)
            work.wait()
            return
        while True:
            try:
                work.wait(timedelta(seconds=POLL_S))
            except RuntimeError as error:
                if "Operation timed out" not in str(error):
                    raise PeerLostError(str(error).splitlines()[0]) from error
                self._check()
            else:
                return

    def _check(self) -> None:
        why = self.member.gang_over_reason(self.generation or 0)
        if why is not None:
            raise PeerLostError(why)

    def _store_at(self, host: str) -> str:
        """Open a store at that address of this machine and at no other; return "host:port"."""
        if host not in self._stores:
            listener = socket.create_server((host, 0))
            self._stores[host] = c10d.TCPStore(
                host,
                listener.getsockname()[1],
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
        return f"{host}:{self._stores[host].port}"

    def _connect(self, formed: GangFormedMessage) -> Any:
        host, _, port = formed.store.rpartition(":")
        meet = timedelta(seconds=RENDEZVOUS_TIMEOUT_S)
        store = c10d.TCPStore(host, int(port), is_master=False, timeout=meet)
        meeting = f"generation-{formed.generation}-{self._place.position}"
        place = c10d.PrefixStore(meeting, store)
        if self.device.type == "cuda":
            return c10d.ProcessGroupNCCL(
                place, self.rank, self.size, c10d.ProcessGroupNCCL.Options()
            )
        options = c10d.ProcessGroupGloo._Options()
        options._timeout = meet
        options._devices = [c10d.ProcessGroupGloo.create_device(hostname=self.member.host)]
        return c10d.ProcessGroupGloo(place, self.rank, self.size, options)

    def _keep(self, links: Any) -> None:
        """Do not destroy connections while a collective blocks on them: that would wait until it
        times out, with the interpreter's lock held. They are freed once no collective blocks.
        """
        if links is not None and self.device.type == "cuda":
            links.abort()
        elif links is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(links))
            self._kept.append((links, self._pending))
        self._pending = []
        done = [each for each in self._kept if all(work.is_completed() for work in each[1])]
        self._kept = [each for each in self._kept if each not in done]
        for gone, _ in done:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(gone))

    def add(self, tensor: Tensor) -> None:
        """Sum over the ranks, in place, in the backend's order."""
        if self.size > 1:
            self.settle(self._links.allreduce([tensor], _long(c10d.AllreduceOptions())))

    def exchange(
        self, received: Tensor, sent: Tensor, received_sizes: list[int], sent_sizes: list[int]
    ) -> Any:
        """Begin to send each rank its part of ``sent`` (1-d), and to receive one from each."""
        options = _long(c10d.AllToAllOptions())
        return self._links.alltoall_base(received, sent, received_sizes, sent_sizes, options)

    def collect(self, parts: list[Tensor], own: Tensor) -> Any:
        """Begin to gather a tensor of every rank into ``parts``."""
        return self._links.allgather([parts], [own], _long(c10d.AllgatherOptions()))

    def concatenate(self, whole: Tensor, own: Tensor) -> None:
        """Gather the ranks' parts, all of one length, into ``whole``."""
        options = _long(c10d.AllgatherOptions())
        self.settle(self._links._allgather_base(whole, own, options))

    def send(self, tensor: Tensor, source: int) -> None:
        """Overwrite ``tensor`` with that of ``source``."""
        if self.size > 1:
            options = _long(c10d.BroadcastOptions())
            options.rootRank, options.rootTensor = source, 0
            self.settle(self._links.broadcast([tensor], options))


def _long(options: Any) -> Any:
    """Forming is bounded tightly; a collective waits for slow peers, and ends with the gang."""
    options.timeout = timedelta(seconds=COLLECTIVE_TIMEOUT_S)
    return options
