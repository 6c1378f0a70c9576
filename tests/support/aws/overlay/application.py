"""The WSGI application: faults first, then the families of answers, then moto."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from werkzeug.test import EnvironBuilder, run_wsgi_app
from werkzeug.wrappers import Response

from tests.support.aws.overlay.call import Answer, Call, Reply
from tests.support.aws.overlay.faults import DroppedError, Faults
from tests.support.aws.overlay.refusal import refusal
from tests.support.object_stores import moto_application


class Family(Protocol):
    """Answers that belong together, with the state behind them."""

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """What is answered, by (service, action): ("ec2", "RunInstances").

        A plain page, which needs no signature, is ("", "/its/path"): it and all paths below it.
        """
        ...

    def reset(self) -> None:
        """Forget what the last test did."""
        ...


class Overlay:
    """Families of answers in front of moto."""

    def __init__(self) -> None:
        self.faults = Faults()
        self._families: list[Family] = []
        self._answers: dict[tuple[str, str], Answer] = {}
        self._moto = moto_application()

    def add(self, family: Family) -> None:
        """Let ``family`` answer from now on; the last to be added wins."""
        self._families.append(family)
        self._answers |= family.answers()

    def reset(self) -> None:
        """As new, moto included."""
        self.faults.reset()
        for family in self._families:
            family.reset()
        reset = EnvironBuilder(path="/moto-api/reset", method="POST").get_environ()
        self.forward(Call.read(reset))

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        call = Call.read(environ)
        try:
            reply = self.answer(call)
        except DroppedError:
            _hang_up(environ)
            raise
        except Exception as error:  # noqa: BLE001
            reply = refusal(call, "InternalFailure", f"{type(error).__name__}: {error}", 500)
        # A length that was given is sent as it is, though the body may end before.
        body = iter((reply.body,)) if "Content-Length" in reply.headers else reply.body
        response = Response(body, reply.status, headers=dict(reply.headers))
        return response(environ, start_response)

    def answer(self, call: Call) -> Reply:
        """The reply to ``call``; raises DroppedError where there is none."""
        fault = self.faults.of(call)
        return self._answer(call) if fault is None else fault(call, self._answer)

    def forward(self, call: Call) -> Reply:
        """What moto answers."""
        chunks, status, headers = run_wsgi_app(self._moto, call.as_environ())
        body = b"".join(chunks)
        kept = {k: v for k, v in headers.items() if k.lower() != "content-length"}
        return Reply(int(status.partition(" ")[0]), body, kept)

    def _answer(self, call: Call) -> Reply:
        answer = self._answers.get((call.service, call.action)) or self._page(call.path)
        return self.forward(call) if answer is None else answer(call, self.forward)

    def _page(self, path: str) -> Answer | None:
        pages = (
            answer
            for (service, page), answer in self._answers.items()
            if not service and (path == page or path.startswith(page.rstrip("/") + "/"))
        )
        return next(pages, None)


def _hang_up(environ: Mapping[str, Any]) -> None:
    connection: socket.socket = environ["werkzeug.socket"]
    connection.shutdown(socket.SHUT_RDWR)
