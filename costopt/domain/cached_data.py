"""Data that each node needs on its disk before training, such as base weights, and how long a node
takes to fetch them."""

from __future__ import annotations

from dataclasses import dataclass

GIGABITS_PER_GIB = 2**30 * 8 / 1e9

PARALLEL_FETCHES = 16
"""Objects that a node fetches at once."""

FETCH_GBPS = PARALLEL_FETCHES * 0.085 * 8
"""What a node reads from an object store, in gigabits per second, if its network allows it: Amazon
S3 delivers 85 to 90 MB/s to each request, "about 15 concurrent requests" for 10 Gbit/s.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-design-patterns.html
"""


@dataclass(frozen=True, slots=True)
class CachedData:
    """Data at ``uri`` that every node has at ``to`` before its trainer starts.

    ``to`` is an absolute path on the node, or a name in the node's folder for such data.
    ``region`` is "provider/region" of the store, None where it is unknown; ``sha256`` is that of
    the data's index. Nodes whose image holds the data, ``in_image``, take no time. ``gbps`` is the
    measured speed at which one node fetches, None: ``FETCH_GBPS`` or its network's, if less.
    """

    uri: str
    to: str
    size_gib: float
    region: str | None = None
    sha256: str | None = None
    in_image: bool = False
    gbps: float | None = None

    def fetch_s(self, network_gbps: float | None) -> float:
        """Return the seconds that a node with this network takes, None: an unknown one."""
        gbps = self.gbps or min(FETCH_GBPS, network_gbps or FETCH_GBPS)
        return 0.0 if self.in_image else self.size_gib * GIGABITS_PER_GIB / gbps
