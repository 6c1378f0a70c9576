"""Maps the errors of boto3 to ProviderErrors: what failed, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from costopt.domain.errors import (
    BadRequestError,
    CostoptError,
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    ThrottledError,
)
from costopt.domain.text import excerpt

NO_CAPACITY = frozenset(
    {
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
    }
)
QUOTA = frozenset(
    {
        "AddressLimitExceeded",
        "FleetLimitExceeded",
        "InstanceLimitExceeded",
        "MaxFleetCountExceeded",
        "MaxIOPSLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded",
        "PlacementGroupLimitExceeded",
        "ServiceQuotaExceededException",
        "SpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
    }
)
THROTTLED = frozenset(
    {
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
    }
)
EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
)
REFUSED_KEYS = frozenset(
    {
        "AuthFailure",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "UnrecognizedClientException",
    }
)
OPT_IN = frozenset({"OptInRequired", "SubscriptionRequiredException"})
FORBIDDEN = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",
        "AuthorizationErrorException",
        "Forbidden",
        "403",
        "UnauthorizedOperation",
        "NotAuthorized",
    }
)
UNKNOWN_OUTCOME = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "InternalServiceException",
        "RequestTimeout",
        "ServiceException",
        "ServiceFailure",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Unavailable",
        "500",
        "502",
        "503",
        "504",
    }
)
HINTS = {
    "InsufficientFreeAddressesInSubnet": "give costopt a larger subnet in this zone",
    "InvalidAMIID.Malformed": "an image id looks like ami-0123456789abcdef0",
    "InvalidAMIID.NotFound": "images belong to a region: name one per region, or an SSM parameter",
    "InvalidAMIID.Unavailable": "the image was deregistered or is not shared with this account",
    "Unsupported": "the zone does not offer this type; `costopt market` lists the zones that do",
}
SUBJECTS = {
    "iamInstanceProfile": "`costopt setup aws` creates the nodes' role; one of your own is named "
    "in the provider's option instance_profile",
    "InvalidGroup": "name a security group of this region in the provider's option security_groups",
    "InvalidKeyPair": "import the key pair into this region, or leave out the option key_name",
    "InvalidSubnet": "name a subnet of this zone in the provider's option subnets",
}
"""Hints, by a word in the code or in the message."""

_ACTION = re.compile(r"not authorized to perform:?\s+([A-Za-z0-9-]+:[A-Za-z0-9*]+)")


@contextmanager
def map_errors(action: str, about: str) -> Iterator[None]:
    """Raise each error within as a ProviderError: of the call, and of reading its answer.

    ``action`` is the IAM action that the call needs ("ec2:RunInstances"), ``about`` the pool,
    region or resource that it concerns. An answer that cannot be read leaves the outcome unknown
    (ProviderUnavailableError), so fields of an answer are read inside this context.
    """
    from botocore.exceptions import ClientError

    try:
        yield
    except CostoptError:
        raise
    except ClientError as error:
        raise from_client_error(error, action, about) from error
    except Exception as error:
        raise from_botocore_error(error, action, about) from error


def code_of(error: ProviderError) -> str:
    """Return the error code that AWS answered with, "" if it did not answer."""
    response = getattr(error.__cause__, "response", {})
    return str(response.get("Error", {}).get("Code", ""))


def from_client_error(error: Exception, action: str, about: str) -> ProviderError:
    """Return the error that AWS answered with (a botocore ClientError)."""
    response = getattr(error, "response", {})
    error_fields = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return from_code(
        str(error_fields.get("Code", "")),
        str(error_fields.get("Message", "")),
        action,
        about,
        status=status,
    )


def from_code(
    code: str, message: str, action: str, about: str, *, status: int = 0
) -> ProviderError:
    """Return the error for a code and message of an answer or of a fleet's list of errors."""
    if not code:
        answered = f"HTTP {status}" if status else "an error"
        return ProviderUnavailableError(
            f"{about}: {action} was answered with {answered} and no error code of AWS"
        )
    said = f"{about}: {code}: {excerpt(message)}" if message else f"{about}: {code}"
    plain = code.removeprefix("Server.").removeprefix("Client.")
    if plain in NO_CAPACITY:
        return NoCapacityError(said, hint=HINTS.get(plain))
    if plain in QUOTA:
        return QuotaExceededError(
            said,
            hint="ask for more in the Service Quotas console of the region, or allow other "
            "instance families or regions",
        )
    if plain in THROTTLED:
        return ThrottledError(said, hint="AWS limits calls per account and region; try later")
    forbidden = _forbidden(plain, message, said, action, about)
    if forbidden is not None:
        return forbidden
    if plain in UNKNOWN_OUTCOME or status >= 500:
        return ProviderUnavailableError(said)
    return BadRequestError(said, hint=HINTS.get(plain) or _subject_hint(said))


def from_botocore_error(error: Exception, action: str, about: str) -> ProviderError:
    """Return the error for a failure before or after AWS answered: botocore's, or any other."""
    from botocore import exceptions as sdk

    if isinstance(error, (sdk.NoCredentialsError, sdk.PartialCredentialsError)):
        return ForbiddenError(
            f"{about}: {action} needs AWS credentials, and none were found",
            hint="set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the "
            "machine an instance profile",
        )
    if isinstance(error, sdk.ProfileNotFound):
        return BadRequestError(
            f"{error}", hint="`aws configure list-profiles` lists those there are"
        )
    if isinstance(error, (sdk.CredentialRetrievalError, sdk.SSOError, sdk.TokenRetrievalError)):
        return ForbiddenError(
            f"{about}: AWS credentials cannot be renewed: {error}",
            hint="log in again (`aws sso login`), or check the role that they come from",
        )
    if isinstance(error, (sdk.NoRegionError, sdk.InvalidRegionError, sdk.ParamValidationError)):
        return BadRequestError(f"{about}: {action}: {error}")
    if isinstance(error, (sdk.BotoCoreError, sdk.HTTPClientError)):
        return ProviderUnavailableError(f"{about}: {action} was not answered: {error}")
    return ProviderUnavailableError(
        f"{about}: the answer to {action} cannot be read: {type(error).__name__}: "
        f"{excerpt(str(error))}"
    )


def _subject_hint(said: str) -> str | None:
    return next((hint for subject, hint in SUBJECTS.items() if subject in said), None)


def _forbidden(
    code: str, message: str, said: str, action: str, about: str
) -> ForbiddenError | None:
    if code in EXPIRED:
        return ForbiddenError(
            f"{about}: the AWS credentials have expired ({code})",
            hint="log in again; what runs is kept, and checkpoints go on with the nodes' own role",
        )
    if code in REFUSED_KEYS:
        return ForbiddenError(
            f"{said}",
            hint="the keys are wrong, or they come from a region that does not know of this one: "
            "an opt-in region must be enabled (`aws account enable-region --region-name NAME`)",
        )
    if code in OPT_IN:
        return ForbiddenError(
            said, hint="enable the region for this account: `aws account enable-region`"
        )
    if code in FORBIDDEN:
        named = _ACTION.search(message)
        missing = named.group(1) if named else action
        return ForbiddenError(
            f"{about}: the AWS credentials may not {missing} ({code})",
            hint=f"allow {missing} in their policy; `costopt doctor aws --iam-policy` prints all "
            "that costopt needs",
        )
    return None
