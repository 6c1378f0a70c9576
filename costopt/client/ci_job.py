"""The CI job that a command runs in: its pull request, its summary page and its outputs.

GitHub Actions and GitLab CI describe a job in environment variables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costopt.client.review_comments import CommentThread, GitHubThread, GitLabThread
from costopt.domain.errors import SpecError

GITHUB, GITLAB = "github", "gitlab"
GITHUB_API = "https://api.github.com"


@dataclass(frozen=True, slots=True)
class CiJob:
    """``thread`` is None, and ``why_not`` says why, where the job cannot comment."""

    thread: CommentThread | None
    why_not: str = ""
    summary_file: Path | None = None
    output_file: Path | None = None

    def write_summary(self, text: str) -> bool:
        """Append to the page of the job's run; return whether there is one."""
        if self.summary_file is None:
            return False
        _append(self.summary_file, text)
        return True

    def write_outputs(self, values: Mapping[str, str]) -> None:
        """Set the step's outputs. Values are single lines of ours: names and texts from a change
        could set others."""
        if self.output_file is not None:
            _append(self.output_file, "".join(f"{key}={value}\n" for key, value in values.items()))


def read_ci_job(kind: str, environment: Mapping[str, str]) -> CiJob:
    """Return the job of GitHub Actions or GitLab CI that the environment describes.

    Raise SpecError if it describes none.
    """
    return _github(environment) if kind == GITHUB else _gitlab(environment)


def _github(environment: Mapping[str, str]) -> CiJob:
    repository = _required(environment, "GITHUB_REPOSITORY", "GitHub Actions")
    number, token = _pull_request(environment), environment.get("GITHUB_TOKEN", "")
    files = [_path(environment.get(name)) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")]
    if number is None:
        return CiJob(None, "this run is not of a pull request", *files)
    if not token:
        return CiJob(None, "GITHUB_TOKEN is not set", *files)
    api_url = environment.get("GITHUB_API_URL") or GITHUB_API
    return CiJob(GitHubThread(api_url, repository, number, token), "", *files)


def _gitlab(environment: Mapping[str, str]) -> CiJob:
    api_url = _required(environment, "CI_API_V4_URL", "GitLab CI")
    project = _required(environment, "CI_PROJECT_ID", "GitLab CI")
    number, token = environment.get("CI_MERGE_REQUEST_IID"), environment.get("GITLAB_TOKEN")
    if not number:
        return CiJob(None, "this pipeline is not of a merge request")
    if not token:
        return CiJob(None, "GITLAB_TOKEN is not set: it needs the scope api")
    return CiJob(GitLabThread(api_url, project, int(number), token))


def _required(environment: Mapping[str, str], name: str, where: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SpecError(
            f"{name} is not set: this is not a job of {where}",
            hint="leave out --post; --output md prints the comment",
            code="no_ci_job",
            subject=name,
        )
    return value


def _pull_request(environment: Mapping[str, str]) -> int | None:
    """Return the number of the pull request of the event, None for another event."""
    event_file = environment.get("GITHUB_EVENT_PATH", "")
    if not event_file:
        return None
    try:
        event = json.loads(Path(event_file).read_text("utf-8"))
        return int(event["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
