"""Where a bucket is, and what is kept in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costopt.domain.errors import BadRequestError
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors

ANY_REGION = "us-east-1"
"""S3 tells from here where any bucket of the account is."""
LEGACY_LOCATIONS = {None: ANY_REGION, "": ANY_REGION, "EU": "eu-west-1"}
"""https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLocation.html"""


def bucket_region(clients: Clients, bucket: str) -> str:
    """The region of a bucket. Raises BadRequestError where there is none, ForbiddenError."""
    with map_errors("s3:GetBucketLocation", f"bucket {bucket}"):
        answer = clients.reading("s3", ANY_REGION).get_bucket_location(Bucket=bucket)
    told = answer.get("LocationConstraint")
    return str(LEGACY_LOCATIONS.get(told, told))


def expires_old_versions(clients: Clients, region: str, bucket: str, prefix: str) -> bool:
    """Whether a lifecycle rule ends the replaced versions of all that is below a prefix.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLifecycleConfiguration.html.
    Raises ForbiddenError.
    """
    try:
        with map_errors("s3:GetLifecycleConfiguration", f"bucket {bucket}"):
            s3 = clients.reading("s3", region)
            rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket).get("Rules", [])
    except BadRequestError as error:
        if code_of(error) != "NoSuchLifecycleConfiguration":
            raise
        return False
    return any(_ends_versions(rule, prefix) for rule in rules)


def _ends_versions(rule: Mapping[str, Any], prefix: str) -> bool:
    """A rule for objects of some tag or size is not one for all of them."""
    only: Mapping[str, str] = rule.get("Filter") or {"Prefix": rule.get("Prefix", "")}
    return (
        rule.get("Status") == "Enabled"
        and "NoncurrentVersionExpiration" in rule
        and set(only) <= {"Prefix"}
        and prefix.startswith(only.get("Prefix", ""))
    )
