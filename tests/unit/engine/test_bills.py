"""Bills of ended nodes: asked for until there is one, written down once, counted in the spend."""

from __future__ import annotations

from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.events import NodeBilled
from costopt.domain.fleet import Node, NodeBill
from costopt.provider.base import Capability
from tests.support.engine_fixtures import SPOT_A, FaultyCloud, Scene, always, task


class Billing(FaultyCloud):
    """A cloud that charges a dollar per hour, and fails or does not know at first."""

    asked: list[str]
    answers: list[NodeBill | ProviderUnavailableError | None]

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.BILLS})

    def bill(self, node: Node) -> NodeBill | None:
        self.asked.append(node.node_id)
        answer = (
            self.answers.pop(0)
            if self.answers
            else NodeBill(((node.launched_at, 1.0),), 0.0, "a dollar per hour")
        )
        if isinstance(answer, ProviderUnavailableError):
            raise answer
        return answer


def scene(*answers: NodeBill | ProviderUnavailableError | None) -> tuple[Scene, Billing]:
    made = Scene(always(SPOT_A, 4, 3.0), jobs=[task(work_s=3600.0)])
    cloud = made.cloud
    cloud.__class__ = Billing
    assert isinstance(cloud, Billing)
    cloud.asked, cloud.answers = [], list(answers)
    made.restart()
    return made, cloud


def test_the_bill_replaces_the_estimate() -> None:
    made, cloud = scene()
    made.finish()
    (billed,) = made.events(NodeBilled)
    (interval,) = made.engine.journal.accounts["job"].intervals(made.clock.now())
    assert interval.ended_at is not None
    run_s = (interval.ended_at - interval.launched_at).total_seconds()
    assert interval.usd_micros == int(run_s / 3600 * 1_000_000)
    assert made.summary().usd_micros == interval.usd_micros
    assert billed.source == "a dollar per hour"
    assert len(cloud.asked) == 1


def test_a_bill_that_is_not_there_yet_is_asked_for_again_after_a_while() -> None:
    made, cloud = scene(ProviderUnavailableError("later"), None)
    made.finish()
    assert made.events(NodeBilled) == []
    made.go(540)
    assert len(cloud.asked) == 1
    made.go(1200)
    assert len(cloud.asked) == 3
    assert len(made.events(NodeBilled)) == 1
    made.go(1200)
    assert len(cloud.asked) == 3


def test_a_restarted_controller_asks_for_what_it_lacks_and_no_more() -> None:
    made, cloud = scene(None)
    made.finish()
    made.restart().tick()
    assert len(made.events(NodeBilled)) == 1
    made.restart().tick()
    assert len(cloud.asked) == 2
