"""Values of secrets: read with a node's role from moto and from a server of Google's wire form."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from costopt.agent import node_role
from costopt.agent.containers import ContainerError, write_login
from costopt.agent.secret_values import SecretError, SecretReader
from costopt.domain.secret import SecretSource
from tests.support.aws.cloud import Cloud
from tests.support.fake_metadata import FakeMetadata

REGION = "us-east-1"
VALUE = "correct-horse-battery"
ROLE = "/latest/meta-data/iam/security-credentials/"
KEYS = {"AccessKeyId": "testing", "SecretAccessKey": "testing", "Token": "testing"}


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMetadata]:
    monkeypatch.setattr(node_role, "RETRY_DELAY_S", 0.01)
    server = FakeMetadata()
    server.values |= {ROLE: "costopt-node", f"{ROLE}costopt-node": json.dumps(KEYS)}
    server.values["service-accounts/default/token"] = json.dumps({"access_token": "ya29.t"})
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)
    monkeypatch.setenv("GCE_METADATA_HOST", server.url)
    yield server
    server.stop()


@pytest.fixture
def on_ec2(cloud: Cloud, metadata: FakeMetadata, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setenv("AWS_REGION", REGION)
    return cloud


def test_a_node_of_aws_reads_by_name_and_by_arn(on_ec2: Cloud) -> None:
    client = on_ec2.client("secretsmanager")
    client.create_secret(Name="prod/wandb", SecretString=VALUE)
    arn = client.create_secret(Name="prod/raw", SecretBinary=VALUE.encode())["ARN"]
    rows = [
        ("A", "aws", "prod/wandb", False),
        ("A", "gcp", "other", False),
        ("B", "aws", arn, True),
    ]
    assert SecretReader(SecretSource.AWS).read(rows) == {"A": VALUE, "B": VALUE}


def test_what_is_missing_short_or_elsewhere_is_named_without_a_value(on_ec2: Cloud) -> None:
    on_ec2.client("secretsmanager").create_secret(Name="short", SecretString="abc1234")
    reader = SecretReader(SecretSource.AWS)
    for name, part in (("absent", "ResourceNotFoundException"), ("short", "fewer than 8")):
        with pytest.raises(SecretError, match=part) as caught:
            reader.read([("A", "aws", name, False)])
        assert "secret A" in str(caught.value)
        assert "abc1234" not in str(caught.value)
    with pytest.raises(SecretError, match="secret A"):
        reader.read([("A", "gcp", "absent", False)])
    with pytest.raises(SecretError, match="secret A"):
        SecretReader(None).read([("A", "aws", "absent", False)])


def test_a_node_without_a_role_says_so(on_ec2: Cloud, metadata: FakeMetadata) -> None:
    del metadata.values[ROLE]
    with pytest.raises(SecretError, match="has the node a role"):
        SecretReader(SecretSource.AWS).read([("A", "aws", "prod/wandb", False)])


class _SecretManager(BaseHTTPRequestHandler):
    """projects.secrets.versions.access (cloud.google.com/secret-manager/docs/reference/rest)."""

    failures = 0

    def do_GET(self) -> None:
        known = "/v1/projects/acme/secrets/hf/versions/latest:access"
        if self.headers["Authorization"] != "Bearer ya29.t":
            self._reply(401, {"error": {"status": "UNAUTHENTICATED", "message": "no token"}})
        elif _SecretManager.failures:
            _SecretManager.failures -= 1
            self._reply(503, {"error": {"status": "UNAVAILABLE", "message": "later"}})
        elif self.path == known:
            data = base64.b64encode(VALUE.encode()).decode()
            self._reply(200, {"name": known[4:-7], "payload": {"data": data, "dataCrc32c": "1"}})
        else:
            message = "Permission 'secretmanager.versions.access' denied"
            self._reply(403, {"error": {"status": "PERMISSION_DENIED", "message": message}})

    def _reply(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def on_gce(metadata: FakeMetadata, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _SecretManager)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", address)
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("on_gce")
def test_a_node_of_google_reads_the_latest_version() -> None:
    _SecretManager.failures = 1
    reader = SecretReader(SecretSource.GCP)
    assert reader.read([("A", "gcp", "projects/acme/secrets/hf", False)]) == {"A": VALUE}
    with pytest.raises(SecretError, match="PERMISSION_DENIED"):
        reader.read([("A", "gcp", "projects/acme/secrets/other", False)])


def test_the_host_s_files_are_a_tenant_s_own_and_no_one_else_s(tmp_path: Path) -> None:
    path = tmp_path / "acme" / "token"
    path.parent.mkdir()
    path.write_text(f"{VALUE}\n")
    path.chmod(0o600)
    reader = SecretReader.parse(f"host:{tmp_path}")
    assert reader.read([("A", "host", "acme/token", False)]) == {"A": VALUE}
    path.chmod(0o640)
    for name, part in (("acme/token", "chmod|other users"), ("other/token", "cannot be read")):
        with pytest.raises(SecretError, match=part):
            reader.read([("A", "host", name, False)])


@pytest.mark.parametrize(
    ("image", "registries"),
    [
        ("ghcr.io/acme/train:1", ["ghcr.io"]),
        ("registry.example:5000/train@sha256:" + 64 * "0", ["registry.example:5000"]),
        ("localhost/train", ["localhost"]),
        ("train:1", ["docker.io", "https://index.docker.io/v1/"]),
        ("acme/train:1", ["docker.io", "https://index.docker.io/v1/"]),
        ("docker.io/acme/train:1", ["docker.io", "https://index.docker.io/v1/"]),
    ],
)
def test_a_login_that_is_given_is_for_the_images_registry(
    image: str, registries: list[str], tmp_path: Path
) -> None:
    folder = write_login(image, None, tmp_path / "login", f"me:{VALUE}:more")
    assert folder is not None
    auths = json.loads((folder / "config.json").read_text())["auths"]
    assert sorted(auths) == registries
    for login in auths.values():
        assert base64.b64decode(login["auth"]).decode() == f"me:{VALUE}:more"


def test_a_config_of_docker_is_given_as_it_is(tmp_path: Path) -> None:
    config = json.dumps({"auths": {"ghcr.io": {"auth": "bWU6eA=="}}})
    folder = write_login("train:1", None, tmp_path / "login", config)
    assert folder is not None
    assert (folder / "config.json").read_text() == config


@pytest.mark.parametrize(
    "given", [VALUE, ":password1", "username:", '{"auths": 3}', "{no json", "{}"]
)
def test_another_login_is_refused_without_its_value(given: str, tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="image_login") as refused:
        write_login("train:1", None, tmp_path / "login", given)
    assert VALUE not in str(refused.value)


def test_registries_of_the_node_s_cloud_get_a_login_in_a_private_file(
    on_ec2: Cloud, tmp_path: Path
) -> None:
    image = f"123456789012.dkr.ecr.{REGION}.amazonaws.com/train:1"
    folder = write_login(image, SecretSource.AWS, tmp_path / "ecr")
    assert folder is not None
    document = json.loads((folder / "config.json").read_text())
    (login,) = document["auths"].values()
    assert base64.b64decode(login["auth"]).startswith(b"AWS:")
    assert (folder / "config.json").stat().st_mode & 0o777 == 0o600
    google = "europe-docker.pkg.dev/acme/images/train:1"
    folder = write_login(google, SecretSource.GCP, tmp_path / "google")
    assert folder is not None
    text = (folder / "config.json").read_text()
    assert base64.b64encode(b"oauth2accesstoken:ya29.t").decode() in text
    assert write_login(google, SecretSource.AWS, tmp_path / "none") is None
    assert write_login("train:1", SecretSource.GCP, tmp_path / "none") is None
