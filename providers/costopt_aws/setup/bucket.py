"""The bucket where nodes and controller exchange code, messages and checkpoints.

Private, encrypted with S3's own keys, versioned, with replaced versions and unfinished uploads
deleted after days. S3 makes a bucket and tags it in two calls, between which a process may die:
before the first, the nodes' role is tagged with the bucket's name, so that the next process knows
the bucket without tags as its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from costopt.domain.errors import BadRequestError, ForbiddenError
from costopt.provider.setup import ResourceState, covers
from costopt_aws.bootstrap import ANY_REGION, LEGACY_LOCATIONS
from costopt_aws.errors import code_of, map_errors
from costopt_aws.instances import PREFIX, parse_tags
from costopt_aws.setup.resource import AwsAccount, AwsStep
from costopt_aws.setup.roles import RoleStep

CLAIM = f"{PREFIX}bucket"
LISTING = {
    "list_object_versions": "ListBucketVersions",
    "list_multipart_uploads": "ListBucketMultipartUploads",
}
"""IAM's names of these calls."""
KEEP_OLD_VERSIONS_DAYS = 7
ABORT_UPLOADS_DAYS = 2
"""Both as in terraform/modules/aws/store.tf."""


@dataclass(frozen=True, slots=True)
class BucketSetting:
    """``value`` goes to put_NAME as ``argument``, and is what get_NAME returns."""

    name: str
    argument: str
    value: Mapping[str, Any]

    def found_in(self, answer: Mapping[str, Any]) -> bool:
        """Return whether this is what the bucket has."""
        found = answer.get(self.argument, answer)
        if isinstance(found, str):
            found = json.loads(found)
        return covers(found, self.value)


class BucketStep(AwsStep):
    """``role`` is that of nodes, on which the bucket is claimed before it is made."""

    kind = "bucket"
    service = "s3"

    def __init__(self, account: AwsAccount, name: str, region: str, role: RoleStep) -> None:
        super().__init__(account, name, region, region)
        self._role = role

    def state(self) -> ResourceState:
        location = self._location()
        if location is None:
            return ResourceState.MISSING
        self._region = self.place = location
        tags = self._tags()
        if not tags and (self._role.tags() or {}).get(CLAIM) == self.name:
            return ResourceState.INCOMPLETE
        return self._state(tags, not any(self._missing_settings()))

    def create(self) -> None:
        if self._location() is None:
            self._role.tag(CLAIM, self.name)
            self._make()
        self._call(
            "put_bucket_tagging", Bucket=self.name, Tagging={"TagSet": self._account.tag_list()}
        )
        for setting in self._missing_settings():
            text = setting.argument == "Policy"
            value = json.dumps(setting.value) if text else setting.value
            self._call(f"put_{setting.name}", Bucket=self.name, **{setting.argument: value})

    def remove(self) -> None:
        for page in self._pages("list_object_versions"):
            listed = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            objects = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in listed]
            if objects:
                self._call(
                    "delete_objects", Bucket=self.name, Delete={"Objects": objects, "Quiet": True}
                )
        for page in self._pages("list_multipart_uploads"):
            for each in page.get("Uploads", ()):
                upload = {"Key": each["Key"], "UploadId": each["UploadId"]}
                self._delete("abort_multipart_upload", Bucket=self.name, **upload)
        self._delete("delete_bucket", Bucket=self.name)

    def contents(self) -> str:
        found = self._call("list_objects_v2", Bucket=self.name)
        more = " or more" if found["IsTruncated"] else ""
        return f"{found['KeyCount']}{more} objects" if found["KeyCount"] else ""

    def _location(self) -> str | None:
        """Return the region, None where there is no such bucket. Raise where it is another's."""
        try:
            found = self._ask_location()
        except ForbiddenError as error:
            raise ForbiddenError(
                f"bucket {self.name}: it belongs to another account, or the credentials may not "
                "s3:GetBucketLocation",
                hint="bucket names are shared by all accounts: choose another with "
                "--store s3://NAME/costopt",
            ) from error
        if found is None:
            return None
        location = found.get("LocationConstraint")
        return str(LEGACY_LOCATIONS.get(location, location))

    def _ask_location(self) -> Mapping[str, Any] | None:
        before, self._region = self._region, ANY_REGION
        try:
            found: Mapping[str, Any] | None = self._find(
                "get_bucket_location",
                Bucket=self.name,
                ExpectedBucketOwner=self._account.account_id,
            )
        finally:
            self._region = before
        return found

    def _make(self) -> None:
        place = (
            {}
            if self._region == ANY_REGION
            else {"CreateBucketConfiguration": {"LocationConstraint": self._region}}
        )
        try:
            self._create("create_bucket", Bucket=self.name, **place)
        except BadRequestError as error:
            if code_of(error) != "BucketAlreadyExists":
                raise
            raise BadRequestError(
                f"bucket {self.name}: the name is taken by another account",
                hint="choose another with --store s3://NAME/costopt",
            ) from error

    def _tags(self) -> dict[str, str]:
        found = self._setting("get_bucket_tagging")
        return parse_tags(found.get("TagSet", ()))

    def _missing_settings(self) -> Iterator[BucketSetting]:
        for setting in self._settings():
            if not setting.found_in(self._setting(f"get_{setting.name}")):
                yield setting

    def _setting(self, method: str) -> Mapping[str, Any]:
        """Return a setting of the bucket, {} where it has none."""
        try:
            found: Mapping[str, Any] = self._call(method, Bucket=self.name)
        except BadRequestError as error:
            if not code_of(error).startswith(("NoSuch", "ServerSideEncryptionConfigurationNot")):
                raise
            return {}
        return found

    def _settings(self) -> tuple[BucketSetting, ...]:
        arn = f"arn:{self._account.partition}:s3:::{self.name}"
        return (
            BucketSetting(
                "public_access_block",
                "PublicAccessBlockConfiguration",
                {
                    "BlockPublicAcls": True,
                    "IgnorePublicAcls": True,
                    "BlockPublicPolicy": True,
                    "RestrictPublicBuckets": True,
                },
            ),
            BucketSetting(
                "bucket_encryption",
                "ServerSideEncryptionConfiguration",
                {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]},
            ),
            BucketSetting("bucket_versioning", "VersioningConfiguration", {"Status": "Enabled"}),
            BucketSetting(
                "bucket_lifecycle_configuration",
                "LifecycleConfiguration",
                {
                    "Rules": [
                        {
                            "ID": "old-versions",
                            "Status": "Enabled",
                            "Filter": {"Prefix": ""},
                            "NoncurrentVersionExpiration": {
                                "NoncurrentDays": KEEP_OLD_VERSIONS_DAYS
                            },
                            "Expiration": {"ExpiredObjectDeleteMarker": True},
                        },
                        {
                            "ID": "unfinished-uploads",
                            "Status": "Enabled",
                            "Filter": {"Prefix": ""},
                            "AbortIncompleteMultipartUpload": {
                                "DaysAfterInitiation": ABORT_UPLOADS_DAYS
                            },
                        },
                    ]
                },
            ),
            BucketSetting(
                "bucket_policy",
                "Policy",
                {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Sid": "TlsOnly",
                            "Effect": "Deny",
                            "Principal": "*",
                            "Action": "s3:*",
                            "Resource": [arn, f"{arn}/*"],
                            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                        }
                    ],
                },
            ),
        )

    def _pages(self, method: str) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of a listing; none where there is no bucket."""
        if self._location() is None:
            return
        with map_errors(f"s3:{LISTING[method]}", f"bucket {self.name}"):
            yield from self._client().get_paginator(method).paginate(Bucket=self.name)
