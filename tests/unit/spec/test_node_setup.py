"""Job files that say what a node needs before the command: image, setup and secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from costopt.domain.secret import IMAGE_LOGIN, Secret, SecretSource
from tests.unit.spec.test_job import SMALLEST, load, refusal

VALUE = "correct-horse-battery"


def test_all_that_a_node_needs(tmp_path: Path) -> None:
    text = SMALLEST + (
        "image: ghcr.io/acme/train:2.1\n"
        "setup: [pip install -r requirements.txt]\n"
        "secrets:\n"
        "  WANDB_API_KEY: {aws: prod/wandb, gcp: projects/acme/secrets/wandb}\n"
        "  DEPLOY_KEY: {host: deploy-key, as_file: true}\n"
    )
    job = load(tmp_path, text)
    assert (job.image, job.setup) == (
        "ghcr.io/acme/train:2.1",
        ("pip install -r requirements.txt",),
    )
    names = ((SecretSource.AWS, "prod/wandb"), (SecretSource.GCP, "projects/acme/secrets/wandb"))
    file = Secret("DEPLOY_KEY", ((SecretSource.HOST, "deploy-key"),), as_file=True)
    assert job.secrets == (Secret("WANDB_API_KEY", names), file)


def test_the_login_of_an_images_registry_is_not_a_variable_of_the_command(tmp_path: Path) -> None:
    text = "image: ghcr.io/acme/train:2.1\nimage_login: {aws: prod/ghcr, host: ghcr}\n"
    (login,) = load(tmp_path, SMALLEST + text).secrets
    assert login.variable == IMAGE_LOGIN
    assert login.label == "image_login"
    assert login.names == ((SecretSource.AWS, "prod/ghcr"), (SecretSource.HOST, "ghcr"))


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("image: Not An Image", "image"),
        ("image: ami-0123456789abcdef0", "image"),
        ("image: acme/train:é", "image"),
        ("image: projects/acme/global/images/deep", "image"),
        ("image: --privileged", "image"),
        ("image_login: {host: ghcr}", "image_login"),
        ("image: train:1\nimage_login: {}", "image_login"),
        (f"image: train:1\nimage_login: {VALUE}", "image_login"),
        ("image: train:1\nimage_login: {host: a, as_file: true}", "image_login.as_file"),
        ("setup: [3]", "setup[0]"),
        (f"secrets: {{TOKEN: {VALUE}}}", "secrets.TOKEN"),
        (f"secrets: {{TOKEN: {{value: {VALUE}}}}}", "secrets.TOKEN"),
        ("secrets: {TOKEN: {}}", "secrets.TOKEN"),
        ("secrets: {TOKEN: {host: ../../etc/shadow}}", "secrets.TOKEN.host"),
        ("secrets: {TOKEN: {gcp: a/b/c}}", "secrets.TOKEN.gcp"),
        ("secrets: {not-a-name: {host: token}}", "secrets"),
        ("secrets: {COSTOPT_JOB: {host: token}}", "secrets"),
        ("env: {TOKEN: x}\nsecrets: {TOKEN: {host: token}}", "secrets.TOKEN"),
    ],
)
def test_what_cannot_be_is_refused_without_repeating_a_value(
    tmp_path: Path, line: str, field: str
) -> None:
    (problem,) = refusal(tmp_path, f"{SMALLEST}{line}\n")
    assert problem.field == field
    assert VALUE not in problem.message
