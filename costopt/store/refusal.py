"""What a bucket's refusal means, and what a user can do about it."""

from __future__ import annotations

import re
from pathlib import Path

from costopt.domain.errors import StoreError
from costopt.domain.excerpt import excerpt

ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
ERROR_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
STATUS = re.compile(r"status code: (\d{3})")
ABOUT_CREDENTIALS = re.compile(
    r"Token|AccessKey|Signature|Credential|AuthFailure|UnrecognizedClient"
)
"""In the codes of S3, of STS behind a role, and of other services that speak S3."""
EXPECTED_REGION = re.compile(r"expecting '([a-z0-9-]+)'")

CREDENTIALS_HINT = (
    "renew the credentials: see `aws sts get-caller-identity` or `gcloud auth list`; on a machine, "
    "give it a role"
)
PERMISSION_HINT = (
    "allow reading, writing, deleting and listing under this prefix; "
    "`costopt doctor aws --iam-policy`, or gcp, prints what is needed"
)
REGION_HINT = "set AWS_REGION, or add ?region=… to the address, to the region of the bucket"
REMEDIES = {
    "NoSuchBucket": "create the bucket, or correct the address",
    "AccessDenied": PERMISSION_HINT,
    "AllAccessDisabled": PERMISSION_HINT,
    "ExpiredToken": CREDENTIALS_HINT,
    "InvalidToken": CREDENTIALS_HINT,
    "InvalidAccessKeyId": CREDENTIALS_HINT,
    "SignatureDoesNotMatch": CREDENTIALS_HINT,
    "RequestTimeTooSkewed": "set the clock of this machine",
    "SlowDown": "the store is overloaded: it is asked again by itself",
    "ServiceUnavailable": "the store is overloaded: it is asked again by itself",
    "PermanentRedirect": REGION_HINT,
    "AuthorizationHeaderMalformed": REGION_HINT,
    "IllegalLocationConstraintException": REGION_HINT,
}
ERROR_SIGNATURES = (
    ("incorrectly configured region", "the bucket is in another region", REGION_HINT),
    ("PermissionDenied", "no permission", PERMISSION_HINT),
    ("Unauthenticated", "no valid credentials", CREDENTIALS_HINT),
    *(
        (sign, "no credentials were found", CREDENTIALS_HINT)
        for sign in ("credential", "/latest/api/token", "/latest/meta-data", "computeMetadata")
    ),
)
REASONS = {"401": "no valid credentials", "403": "no permission"}
"""Of answers without a code, by HTTP status."""
ANSWERED_HINT = "check the address, and any proxy on the way: the endpoint answers, and refuses"
FAILED_HINT = "try again later: the store, or a proxy on the way, has failed"
UNREACHABLE_HINT = "see that the endpoint can be reached from this machine"


def store_error(verb: str, key: str, where: str, error: BaseException) -> StoreError:
    """``error`` of obstore about ``key`` of the bucket ``where`` as an error that says what to do.

    obstore gives no status or code, only a text that holds the server's reply.
    """
    reason, hint = _meaning(str(error))
    return StoreError(f"cannot {verb} {key!r} in {where}: {reason}", hint=hint)


def object_too_large_error(key: str, where: str, size_bytes: int, most_bytes: int) -> StoreError:
    """Something was written that nobody of us writes, and is not read."""
    return StoreError(
        f"{key!r} in {where} has {size_bytes:,} bytes or more: at most {most_bytes:,} are read",
        hint="see what the job's command writes there, and remove it",
        code="too_large",
    )


def file_size_bytes(path: Path) -> int:
    """The size in bytes of a file that is to be put. Raises StoreError where it cannot be read."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}", hint="see that the file is there"
        ) from error


def _meaning(text: str) -> tuple[str, str]:
    code = ERROR_CODE.search(text)
    if code is not None:
        message = ERROR_MESSAGE.search(text)
        said = f"{code[1]}: {message[1].rstrip('.')}" if message else code[1]
        region = EXPECTED_REGION.search(text)
        if region is not None:
            return said, f"the bucket is in {region[1]}: {REGION_HINT}"
        return said, REMEDIES.get(code[1]) or _hint_of_code(code[1], text)
    for sign, reason, hint in ERROR_SIGNATURES:
        if sign in text:
            return reason, hint
    status = STATUS.search(text)
    told = excerpt(text.partition("\n\nDebug source")[0])
    return REASONS.get(status[1], told) if status else told, _hint_of_status(text)


def _hint_of_code(code: str, text: str) -> str:
    """What to do about a code that has no entry of its own."""
    return CREDENTIALS_HINT if ABOUT_CREDENTIALS.search(code) else _hint_of_status(text)


def _hint_of_status(text: str) -> str:
    """What to do by the HTTP status of the answer, if there was one."""
    status = STATUS.search(text)
    if status is None:
        return UNREACHABLE_HINT
    by_status = {"401": CREDENTIALS_HINT, "403": PERMISSION_HINT}
    return by_status.get(status[1], FAILED_HINT if status[1] >= "500" else ANSWERED_HINT)
