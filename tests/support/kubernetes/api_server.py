"""A real API server: etcd, kube-apiserver and kube-scheduler, with RBAC and a token per user.

``build_server.sh`` builds both once, into a cache outside the tree. There is no kubelet and no
controller manager: tests write the status of nodes and pods.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

CACHE = Path(
    os.environ.get("COSTOPT_KUBERNETES_SERVER", "~/.cache/costopt/kubernetes-1.20.2")
).expanduser()
PROGRAMS = ("kube-apiserver", "kube-scheduler")
START_S = 120.0
ADMIN, USER = "admin", "costopt"
OFF = "ServiceAccount,TaintNodesByCondition"
"""Both need a controller manager."""
Object = dict[str, Any]


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


def missing_reason() -> str | None:
    """Why there is no server here, None where there is one."""
    if not all((CACHE / program).is_file() for program in PROGRAMS):
        return f"no kube-apiserver in {CACHE}: `make kubernetes-test-server` builds it, once"
    return None if shutil.which("etcd") else "no etcd: apt-get install etcd-server"


class Connections:
    """A connection to the server for each thread: a new one for each request would take longer
    than the requests."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context
        self._of_thread = threading.local()
        self._all: list[HTTPSConnection] = []

    def ask(
        self, method: str, path: str, body: str | bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer."""
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=30)
            self._of_thread.connection = connection
            self._all.append(connection)
        try:
            return _answer(connection, method, path, body, headers)
        except ConnectionError:  # the server closes what was idle for long
            connection.close()
            return _answer(connection, method, path, body, headers)

    def close(self) -> None:
        """Close them all."""
        for connection in self._all:
            connection.close()


def _answer(
    connection: HTTPSConnection,
    method: str,
    path: str,
    body: str | bytes | None,
    headers: Mapping[str, str],
) -> tuple[int, dict[str, str], bytes]:
    connection.request(method, path, body, dict(headers))
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


class ApiServer:
    """The server at ``url``; requests here are the administrator's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = {user: secrets.token_hex(16) for user in (ADMIN, USER)}
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.connections = Connections(self.port, self.context)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all three, and wait until the server is ready."""
        etcd, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._run("etcd", "etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", etcd,
                  "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
                  "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                  "--unsafe-no-fsync")  # fmt: skip
        groups = {ADMIN: "system:masters", USER: "teams"}
        (self.folder / "tokens.csv").write_text(
            "".join(
                f'{token},{user},{user},"{groups[user]}"\n' for user, token in self.tokens.items()
            )
        )
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self._run("apiserver", CACHE / "kube-apiserver", "--etcd-servers", etcd,
                  "--bind-address", "127.0.0.1", "--secure-port", self.port,
                  "--cert-dir", self.folder / "certs", "--service-cluster-ip-range", "10.96.0.0/16",
                  "--service-account-issuer", "https://kubernetes.default.svc",
                  "--service-account-key-file", key, "--service-account-signing-key-file", key,
                  "--token-auth-file", self.folder / "tokens.csv", "--authorization-mode", "RBAC",
                  "--disable-admission-plugins", OFF, "--anonymous-auth=false")  # fmt: skip
        self._wait_ready()
        config = self.kubeconfig(ADMIN, self.folder / "scheduler.kubeconfig")
        self._run("scheduler", CACHE / "kube-scheduler", "--kubeconfig", config,
                  "--leader-elect=false", "--port=0", "--secure-port", free_port())  # fmt: skip

    def stop(self) -> None:
        """End what was started."""
        self.connections.close()
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def kubeconfig(
        self, user: str, path: Path, url: str | None = None, namespace: str = ""
    ) -> Path:
        """Write the kubeconfig of a user."""
        cluster = {"server": url or self.url, "insecure-skip-tls-verify": True}
        context = {"cluster": "test", "user": user, "namespace": namespace or "default"}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": user, "user": {"token": self.tokens[user]}}],
                    "contexts": [{"name": "test", "context": context}],
                    "current-context": "test",
                }
            )
        )
        return path

    def ask(
        self, method: str, path: str, body: Object | None = None, *, content: str = "json"
    ) -> Object:
        """Return the answer to the administrator. Raise HTTPError."""
        headers = {
            "Authorization": f"Bearer {self.tokens[ADMIN]}",
            "Content-Type": f"application/{content}",
        }
        text = None if body is None else json.dumps(body)
        status, _, said = self.connections.ask(method, f"/{path}", text, headers)
        if status >= 400:
            raise urllib.error.HTTPError(path, status, said.decode(), None, None)  # type: ignore[arg-type]
        found: Object = json.loads(said)
        return found

    def items(self, path: str, query: str = "") -> list[Object]:
        """Return the objects of a list."""
        return list(self.ask("GET", f"{path}?{query}")["items"] or ())

    def create(self, path: str, body: Object) -> Object:
        """Create an object."""
        return self.ask("POST", path, body)

    def patch(self, path: str, change: Mapping[str, Any]) -> Object:
        """Merge a change into an object."""
        return self.ask("PATCH", path, dict(change), content="merge-patch+json")

    def delete(self, path: str, grace_s: int | None = 0) -> None:
        """Delete an object, if it is there."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        with suppress(urllib.error.HTTPError):
            self.ask("DELETE", path, body)

    def _run(self, name: str, *command: object) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            # Ended with the test run, also where that is killed.
            words = ["setpriv", "--pdeathsig", "KILL", *(str(word) for word in command)]
            self._processes.append(subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder))

    def _wait_ready(self) -> None:
        until = time.monotonic() + START_S
        headers = {"Authorization": f"Bearer {self.tokens[ADMIN]}"}
        # The server makes this namespace, where tests have pods of others, after it is ready.
        paths = ("readyz", "api/v1/namespaces/default")
        requests = [urllib.request.Request(f"{self.url}/{path}", headers=headers) for path in paths]
        while True:
            try:
                for request in requests:
                    urllib.request.urlopen(request, timeout=5, context=self.context).close()
                return
            except OSError as error:
                log = self.folder / "apiserver.log"
                if time.monotonic() > until:
                    raise AssertionError(f"{error}\n{log.read_text()[-3000:]}") from error
                time.sleep(0.2)


@contextmanager
def served(folder: Path) -> Iterator[ApiServer]:
    """A server of its own, ended with the test run."""
    server = ApiServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
