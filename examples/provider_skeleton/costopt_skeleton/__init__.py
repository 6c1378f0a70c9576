"""A provider adapter to copy: the smallest that passes costopt's contract suite.

``connect`` is the entry point ``skeleton``.
"""

from __future__ import annotations

from costopt.domain.ports import Clock
from costopt.provider.base import ProviderOptions
from costopt_skeleton.cloud import Cloud
from costopt_skeleton.options import SkeletonOptions
from costopt_skeleton.provider import SkeletonProvider

__all__ = ["OPTIONS", "SkeletonOptions", "SkeletonProvider", "connect"]

OPTIONS = SkeletonOptions
"""What ``costopt validate`` checks the options of an account file with."""


def connect(clock: Clock, options: ProviderOptions) -> SkeletonProvider:
    """Return the provider over the regions of ``options``. Raises BadRequestError.

    Makes no request to the cloud: that is for the first call that needs one.
    """
    parsed = SkeletonOptions.parse(options)
    return SkeletonProvider(clock, parsed, Cloud(clock, parsed.regions))
