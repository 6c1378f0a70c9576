"""slurmrestd: the same answers as Slurm's commands on a real cluster, and other versions' JSON.

``slurmrestd.json`` holds what slurmrestd of three versions answered, cut down to what is read:
recorded by Rackslab for the tests of Slurm-web (MIT; tests/assets/slurmrestd of its repository).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderUnavailableError
from costopt.domain.market import CapacityType, Offer
from costopt.engine.loop import WallClock
from costopt.provider.base import CheckStatus
from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm import SlurmOptions, SlurmProvider, connect
from costopt_slurm.queries import SlurmQueries
from costopt_slurm.rest_client import RestClient
from costopt_slurm.rest_queries import SlurmRest, job_properties
from tests.support.slurm.cluster import SlurmCluster, slurm_cluster
from tests.support.slurm.fixtures import skip_without_slurm
from tests.support.slurm.rest import (
    rest_on_socket,
    rest_over_http,
    skip_without_rest,
    token_settings,
    write_token,
)

SAMPLES: Mapping[str, Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("slurmrestd.json").read_text(encoding="utf-8")
)
SBATCH = (
    "--job-name=costopt-a", '--comment={"a":1}', "--partition=batch", "--nodes=2", "--mem=0",
    "--ntasks-per-node=1", "--exclusive", "--gres=gpu:h100:8", "--time=60", "--signal=TERM@120",
    "--no-requeue", "--dependency=singleton", "--open-mode=append", "--chdir=/",
    "--output=/dev/null", "--constraint=fast&big",
)  # fmt: skip


class Recorded(RestClient):
    """Answers as slurmrestd of this version did."""

    def __init__(self, version: str, user: str) -> None:
        super().__init__("unix:/recorded", user)
        self._answers = SAMPLES[version]

    def _exchange(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        served = self._answers["meta"]["plugin"]["data_parser"].rpartition("/")[2]
        component, api, name = path.strip("/").split("/")[:3]
        if api != served:
            return 404, b"Unable find requested URL."
        found = self._answers["accounts"] if component == "slurmdb" else self._answers.get(name, [])
        key = "jobs" if component == "slurmdb" else name
        return 200, json.dumps({"meta": self._answers["meta"], "errors": [], key: found}).encode()


@pytest.mark.parametrize(
    ("version", "api", "user"),
    [("23.02", 39, "cgross"), ("24.05", 41, "ksoto"), ("25.11", 44, "vhartman")],
)
def test_recorded_answers(version: str, api: int, user: str) -> None:
    client = Recorded(version, user)
    rest = SlurmRest(client)
    settings = rest.settings()
    assert client.api == api
    assert settings.version.startswith(version)
    assert settings.accounting
    job = rest.jobs()[0]
    assert (job.state, job.preempted_at, job.exit_code) == ("RUNNING", None, 0)
    assert job.started_at is not None
    assert job.ends_at is not None
    assert (job.ends_at - job.started_at).total_seconds() == job.time_limit_s
    (partition,) = rest.partitions().values()
    assert (partition.is_up, partition.preempt_mode) == (True, None)
    assert partition.max_time_s in (600, 7200)
    assert partition.default_time_s is None
    states = {node.state: node for node in rest.nodes()}
    assert set(states) <= {"idle", "idle+DRAIN", "idle+COMPLETING"}
    assert [state for state, node in states.items() if node.is_idle] in (["idle"], [])
    accounted = rest.ended_jobs([1])
    assert {each.state for each in accounted} <= {"COMPLETED", "FAILED"}
    assert all(each.exit_code == (each.state == "FAILED") for each in accounted)


def test_what_versions_print_of_one_thing() -> None:
    rests = {
        version: SlurmRest(Recorded(version, SAMPLES[version]["jobs"][1]["user_name"]))
        for version in SAMPLES
    }
    waiting = {version: rest.jobs()[-1] for version, rest in rests.items()}
    assert waiting["23.02"].hosts == waiting["24.05"].hosts == ()
    assert waiting["23.02"].ends_at is None
    assert {job.state for job in waiting.values()} <= {"PENDING", "FAILED"}
    (study,), (training,) = rests["23.02"].reservations(), rests["24.05"].reservations()
    assert study.starts_at == datetime.fromtimestamp(1728633600, UTC)
    assert len(study.hosts) == 10
    assert training.ends_at == datetime.fromtimestamp(1748336953, UTC)
    (gpus,) = (n for n in rests["25.11"].nodes() if n.state == "idle")
    assert (gpus.gres, gpus.partition) == ("gpu:h100:4", "gpu")


def test_whether_a_partition_is_preempted_has_to_be_said_since_23_02() -> None:
    def offers(**terms: object) -> list[Offer]:
        options = SlurmOptions.parse(
            {
                "cluster": "campus",
                "node_types": {"h100x4": {"gpu": "H100", "gpus": 4, "vcpus": 8, "memory_gib": 31}},
                "partitions": {"gpu": {"usd_per_gpu_hour": 0, **terms}},
                "folder": "/shared",
            }
        )
        provider = SlurmProvider(WallClock(), options, SlurmRest(Recorded("25.11", "me")))
        return list(provider.offers(datetime.now(UTC)))

    with pytest.raises(BadRequestError) as error:
        offers()
    assert "preemptible" in str(error.value.hint)
    (offer,) = offers(preemptible=True)
    assert (offer.pool.capacity_type, offer.nodes_available) == (CapacityType.SPOT, 1)
    (offer,) = offers(preemptible=False, firm=True)
    assert offer.pool.capacity_type is CapacityType.ON_DEMAND


def test_a_form_that_is_not_known_is_refused() -> None:
    client = Recorded("25.11", "me")
    client._answers = {**SAMPLES["25.11"], "nodes": [{"name": "n1"}]}
    with pytest.raises(ProviderUnavailableError) as error:
        SlurmRest(client).nodes()
    assert error.value.code == "unreadable"


def test_options_of_sbatch_by_version() -> None:
    """The keys of the newer form are those that the schemas of 23.02 to 25.11 publish."""
    old, new = job_properties(SBATCH, 38), job_properties(SBATCH, 44)
    assert old["constraints"] == new["constraints"] == "fast&big"
    assert old["nodes"] == new["nodes"] == "2"
    assert (old["time_limit"], new["time_limit"]["number"]) == ("60", 60)
    assert (old["no_requeue"], new["requeue"]) == (True, False)
    assert set(new).isdisjoint({"exclusive", "no_requeue", "gres", "signal"})
    whole = {"--exclusive", "--mem=0"}
    part = ("--nodelist=n3", "--cpus-per-task=2", "--mem=8000M")
    sliced = job_properties([*(o for o in SBATCH if o not in whole), *part], 44)
    assert (sliced["required_nodes"], sliced["cpus_per_task"]) == (["n3"], 2)
    assert sliced["memory_per_node"]["number"] == 8000
    assert "shared" not in sliced
    assert (new["kill_warning_signal"], new["kill_warning_delay"]["number"]) == ("TERM", 120)
    assert new["tres_per_node"] == "gres/gpu:h100:8"
    assert job_properties(SBATCH, 39)["tres_per_node"] == "gres:gpu:h100:8"


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    skip_without_slurm()
    skip_without_rest()
    with slurm_cluster(settings=(*token_settings(tmp_path), "MessageTimeout=2")) as made:
        yield made


def test_it_answers_as_the_commands_do(cluster: SlurmCluster) -> None:
    """On a socket, as one user, in both versions of the API that Slurm 22.05 and 21.08 share."""
    cluster.run(
        "scontrol", "create", "reservation", "reservationname=maint", "starttime=now+60minutes",
        "duration=120", "nodes=n4", "flags=maint,ignore_jobs", "users=root",
    )  # fmt: skip
    cluster.run("scontrol", "update", "nodename=n3", "state=drain", "reason=fans")
    commands = SlurmQueries(CommandRunner(slurm_conf=str(cluster.conf)))
    part = ("--time=5", "--gres=gpu:2", "--nodelist=n4", "--cpus-per-task=2", "--mem=8000M")
    cluster.sbatch("sleep 60", "-p", "batch", *part)
    with rest_on_socket(cluster) as client:
        rest = SlurmRest(client)
        job_id = rest.submit("#!/bin/bash\nsleep 60\n", [o for o in SBATCH if "fast" not in o])
        cluster.await_state(job_id, "RUNNING", seconds=10)
        rest.set_comment(job_id, '{"b":"x y"}')
        for client._api in (38, 37):
            (job,) = rest.jobs()
            shown = cluster.job(job_id)
            assert (job.comment, job.hosts) == ('{"b":"x y"}', ("n1", "n2"))
            assert (shown["Requeue"], shown["OverSubscribe"], job.time_limit_s) == ("0", "NO", 3600)
            assert rest.partitions() == {
                name: replace(each, preempt_mode="disabled" if each.preempt_mode == "OFF" else
                              "requeue") for name, each in commands.partitions().items()
            }  # fmt: skip
            assert rest.reservations() == commands.reservations()
            free = {name: load.free_gpus(8) for name, load in commands.loads("batch").items()}
            assert {name: load.free_gpus(8) for name, load in rest.loads("batch").items()} == free
            assert (free["n3"], free["n4"]) == (0, 6)
            assert {(n.host, n.partition, n.gres, n.features, n.is_idle) for n in rest.nodes()} == {
                (n.host, n.partition, n.gres, n.features, n.is_idle) for n in commands.nodes()
            }
        assert rest.settings().version == commands.settings().version
        assert not rest.settings().accounting
        rest.cancel(str(job_id))
        cluster.await_state(job_id, "CANCELLED")
        rest.cancel(str(job_id))
        rest.cancel("999")
        with pytest.raises(BadRequestError, match="Invalid partition"):
            rest.submit("#!/bin/bash\n", [re.sub("=batch", "=missing", o) for o in SBATCH])


def test_tokens_and_servers_that_fail(cluster: SlurmCluster, tmp_path: Path) -> None:
    token = write_token(cluster, "root", tmp_path / "token")
    with rest_over_http(cluster) as address:
        options = {
            "cluster": "campus",
            "node_types": {"h100": {"gpu": "H100", "gpus": 8, "vcpus": 8, "memory_gib": 31}},
            "partitions": {"spot": {"usd_per_gpu_hour": 0}},
            "folder": "/shared",
            "rest": address,
            "rest_user": "root",
            "token_file": str(token),
            "timeout_s": 15,
        }
        found = {c.name: c.verdict for c in connect(WallClock(), options).checks("me", None)}
        assert found["Slurm"] is found["partition spot h100"] is CheckStatus.OK
        assert found["nodes"] is CheckStatus.MISSING
        token.write_text("SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.e30.x")
        found = {c.name: c.verdict for c in connect(WallClock(), options).checks("me", None)}
        assert found == {"slurmctld": CheckStatus.BROKEN}
        with pytest.raises(ProviderUnavailableError, match="config") as error:
            RestClient(address, "root", str(token)).get("nodes")
        assert "token" in str(error.value.hint)
        token.write_text("")
        with pytest.raises(ForbiddenError):
            RestClient(address, "root", str(token)).get("nodes")
        write_token(cluster, "root", token)
        client = RestClient(address, "root", str(token))
        client.get("nodes")
        cluster.kill("slurmctld")
        with pytest.raises(ProviderUnavailableError):
            client.get("nodes")
    with pytest.raises(ProviderUnavailableError, match="refused"):
        client.get("nodes")


def test_a_server_of_something_else() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(BadRequestError, match="no version of Slurm's API"):
            RestClient(f"http://127.0.0.1:{server.server_port}", "me").get("nodes")
        server.shutdown()
