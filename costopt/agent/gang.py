"""The nodes that train together, and what they run: written by the controller, read by agents."""

from __future__ import annotations

from dataclasses import dataclass, field

from costopt.checkpoint.near.gang_key import GangKey


@dataclass(frozen=True, slots=True)
class Gang:
    """One generation of a job's gang. ``members`` are node ids by rank.

    The generation is a fencing token: reports of another generation are not believed.
    ``checkpoint_interval_s`` and ``hazard_per_hour`` (interruptions of the gang) are in the job's
    time, which runs ``speed`` times faster than the wall; ``formed_at`` is wall time in POSIX
    seconds. ``hazard_per_hour`` None means: keep the interval as it is. ``power_cap_w`` is the
    limit of each GPU, None for none; it may change within a generation. ``data_uri`` is where the
    job's data lie, None where it does not say. The trainers of an ``elastic`` gang form anew by
    themselves when a member comes or goes. ``secret`` is new in each generation: by it the members
    know each other where they exchange snapshots, which they do not without, and where they form
    gangs by themselves. ``zones`` are the
    members' zones by rank, empty where nobody said. ``former`` are nodes of the gang before this
    one that may still be saving what this one is to begin from, where none of them is a member.
    """

    job: str
    generation: int
    members: tuple[str, ...]
    command: tuple[str, ...]
    workdir: str
    formed_at: float
    env: tuple[tuple[str, str], ...] = ()
    total_units: float | None = None
    checkpoint_uri: str | None = None
    checkpoint_interval_s: float | None = None
    hazard_per_hour: float | None = None
    noticed_share: float = 0.0
    speed: float = 1.0
    power_cap_w: float | None = None
    data_uri: str | None = None
    elastic: bool = False
    zones: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)

    @property
    def key(self) -> GangKey | None:
        """What this generation's members know each other by; None without a secret."""
        return GangKey(self.job, self.generation, self.secret) if self.secret else None

    def rank(self, node_id: str) -> int | None:
        """The node's rank, or None where it is not a member."""
        return self.members.index(node_id) if node_id in self.members else None

    def zone(self, node_id: str) -> str:
        """The node's zone, "" where it is unknown."""
        rank = self.rank(node_id)
        return self.zones[rank] if rank is not None and rank < len(self.zones) else ""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the gang of one generation meets. Rank 0's agent chooses it: only the node itself
    knows its address and a free port."""

    generation: int
    host: str
    port: int
