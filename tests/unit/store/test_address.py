"""Addresses of object stores, and what is said where one cannot be used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.domain.errors import StoreError
from costopt.store import open_store
from costopt.store.address import StoreAddress, validate_endpoint
from costopt.store.folder import FileStore
from tests.support.object_stores import served_s3


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("runs/a", StoreAddress("file", "", "runs/a")),
        ("/runs/a b", StoreAddress("file", "", "/runs/a b")),
        ("file:///runs/a%20b", StoreAddress("file", "", "/runs/a b")),
        ("file://localhost/runs", StoreAddress("file", "", "/runs")),
        ("s3://bucket", StoreAddress("s3", "bucket", "")),
        ("s3://bucket/", StoreAddress("s3", "bucket", "")),
        ("gs://bucket/a/b/", StoreAddress("gs", "bucket", "a/b")),
        (
            "s3://bucket/a?endpoint=https://minio.example:9000&region=eu-west-1",
            StoreAddress("s3", "bucket", "a", "https://minio.example:9000", "eu-west-1"),
        ),
    ],
)
def test_an_address_says_where(uri: str, expected: StoreAddress) -> None:
    assert StoreAddress.parse(uri) == expected


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "empty"),
        ("ftp://host/x", "a known kind"),
        ("s3:///x", "names no bucket"),
        ("s3://key:secret@bucket/x", "must not hold credentials"),
        ("s3://bucket/x?regoin=eu-west-1", "unknown options: regoin"),
        ("gs://bucket/x?region=eu-west-1", "unknown options: region"),
        ("s3://bucket/a//b", "is not a key"),
        ("s3://bucket/../b", "is not a key"),
        ("file://server/x", "not a local folder"),
        ("s3://bucket/x?endpoint=http://minio.example:9000", "plain HTTP"),
        ("s3://bucket/x?endpoint=minio:9000", "plain HTTP"),
    ],
)
def test_what_is_not_an_address_is_refused(uri: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        open_store(uri)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:9000", "http://[::1]:9000", "http://localhost:9000/"]
)
def test_plain_http_is_for_this_machine(endpoint: str) -> None:
    assert validate_endpoint(endpoint) == endpoint.rstrip("/")


def test_a_path_opens_a_folder(tmp_path: Path) -> None:
    for uri in (str(tmp_path), tmp_path.as_uri()):
        store = open_store(uri)
        assert isinstance(store, FileStore)
        assert store.root == tmp_path


@pytest.mark.parametrize(("uri", "extra"), [("s3://b/x", "aws"), ("gs://b/x", "gcp")])
def test_without_obstore_the_extra_is_named(uri: str, extra: str) -> None:
    """In a process of its own: another test has imported the modules that need it."""
    code = f"""
import sys
sys.modules["obstore"] = None
from costopt.domain.errors import MissingExtraError
from costopt.store import open_store
try:
    open_store("{uri}")
except MissingExtraError as error:
    print(error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"costopt-spot[{extra}]" in done.stdout, done.stderr


def test_a_folder_needs_no_cloud_library() -> None:
    code = (
        "import sys; from costopt.store import open_store; open_store('x'); "
        "print(sorted({'obstore', 'boto3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_no_credentials_are_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setattr("costopt.store.backends.RETRIES", {"max_retries": 0})
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"s3://bucket .*no credentials") as caught:
        open_store("s3://bucket/x").get("key")
    assert "role" in (caught.value.hint or "")


def test_a_profile_gives_keys_and_region(
    profiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "config"
    config.write_text("[profile far]\nregion = eu-west-3\n")
    keys = tmp_path / "credentials"
    keys.write_text("[far]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("AWS_PROFILE", "far")
    monkeypatch.setenv("AWS_ENDPOINT_URL", profiled)
    store = open_store("s3://profiled/x")
    store.put("key", b"1")
    assert store.keys("") == ["key"]
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert "eu-west-3" in store_of("s3://profiled/x")
    assert "eu-west-1" in store_of("s3://profiled/x?region=eu-west-1")


@pytest.fixture
def profiled() -> Iterator[str]:
    """The URL of an S3 with a bucket."""
    with served_s3("profiled") as (url, _):
        yield url


def store_of(uri: str) -> str:
    """Where a remote store says that it is."""
    return str(vars(open_store(uri))["_where"])


def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StoreError, match="nobody"):
        open_store("s3://bucket/x")


@pytest.mark.parametrize(
    ("place", "other", "holds"),
    [
        ("s3://b/red", "s3://b/red", True),
        ("s3://b/red/", "s3://b/red/llm", True),
        ("s3://b", "s3://b/red", True),
        ("s3://b/red", "S3://b/%72ed/llm?endpoint=https://elsewhere.example", True),
        ("s3://b/red", "s3://b/red-team/llm", False),
        ("s3://b/red/llm", "s3://b/red", False),
        ("s3://b/red", "gs://b/red", False),
        ("s3://b/red", "s3://b/blue", False),
        ("s3://b/red", "s3://c/red", False),
    ],
)
def test_a_place_holds_what_lies_below_it(place: str, other: str, holds: bool) -> None:
    assert StoreAddress.parse(place).holds(StoreAddress.parse(other)) is holds
