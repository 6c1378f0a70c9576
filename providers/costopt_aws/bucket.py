"""Where a bucket is."""

from __future__ import annotations

from costopt_aws.clients import Clients
from costopt_aws.errors import asking

ANY_REGION = "us-east-1"
"""S3 tells from here where any bucket of the account is."""
OLD_NAMES = {None: ANY_REGION, "": ANY_REGION, "EU": "eu-west-1"}
"""https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLocation.html"""


def bucket_region(clients: Clients, bucket: str) -> str:
    """The region of a bucket. Raises BadRequestError where there is none, ForbiddenError."""
    with asking("s3:GetBucketLocation", f"bucket {bucket}"):
        answer = clients.reading("s3", ANY_REGION).get_bucket_location(Bucket=bucket)
    told = answer.get("LocationConstraint")
    return str(OLD_NAMES.get(told, told))
