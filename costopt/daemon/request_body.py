"""The body of a request: whole, within a size and a time, or a refusal."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from costopt.daemon.refusals import HttpProblemError


async def read_whole(request: Request, max_bytes: int, timeout_s: float) -> bytes:
    """Raise RefusedError where it is too large (413), too slow (408) or cut off (400)."""
    data = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                data += piece
                if len(data) > max_bytes:
                    raise HttpProblemError(
                        413, f"the body is larger than {max_bytes / 2**20:g} MiB"
                    )
    except TimeoutError:
        raise HttpProblemError(408, f"the body did not come within {timeout_s:g} s") from None
    except ClientDisconnect:
        raise HttpProblemError(400, "the body did not come whole") from None
    return bytes(data)
