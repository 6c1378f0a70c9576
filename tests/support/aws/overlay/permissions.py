"""What IAM answers when it is asked what a principal may do; a dry run of any EC2 call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.support.aws.overlay.call import Answer, Call, Forward, Reply
from tests.support.aws.overlay.refusal import refusal
from tests.support.terraform.iam_policy import Policy, allows

NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"
PAGE = 10
DRY = ("RunInstances", "CreateLaunchTemplate", "CreatePlacementGroup")


class Simulated:
    """``denied`` are actions that nothing allows; ``policies``, where given, decide on the rest."""

    def __init__(self) -> None:
        self.denied: set[str] = set()
        self.policies: list[Policy] | None = None
        self.may_simulate = True
        self.principals: list[str] = []

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """SimulatePrincipalPolicy."""
        return {("iam", "SimulatePrincipalPolicy"): self.simulate}

    def reset(self) -> None:
        """Everything is allowed."""
        self.__init__()  # type: ignore[misc]

    def dry_run(self, call: Call, forward: Forward) -> Reply:
        """EC2's answer to a dry run; other calls are handed on."""
        if call.params.get("DryRun", "").lower() != "true":
            return forward(call)
        if f"ec2:{call.action}" in self.denied:
            return refusal(call, "UnauthorizedOperation", "You are not authorized.", 403)
        message = "Request would have succeeded, but DryRun flag is set."
        return refusal(call, "DryRunOperation", message, 412)

    def simulate(self, call: Call, forward: Forward) -> Reply:
        """A page of decisions."""
        if not self.may_simulate:
            message = "User is not authorized to perform: iam:SimulatePrincipalPolicy"
            return refusal(call, "AccessDenied", message, 403)
        self.principals.append(call.params["PolicySourceArn"])
        resources = call.numbered("ResourceArns.member") or ["*"]
        context = dict(_contexts(call))
        asked = [(a, r) for a in call.numbered("ActionNames.member") for r in resources]
        first = int(call.params.get("Marker") or 0)
        members = "".join(
            f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{resource}"
            f"</EvalResourceName><EvalDecision>{self._decision(action, resource, context)}"
            "</EvalDecision></member>"
            for action, resource in asked[first : first + PAGE]
        )
        rest = first + PAGE < len(asked)
        marker = f"<IsTruncated>true</IsTruncated><Marker>{first + PAGE}</Marker>"
        return Reply.xml(
            f'<SimulatePrincipalPolicyResponse xmlns="{NAMESPACE}"><SimulatePrincipalPolicyResult>'
            f"{marker if rest else '<IsTruncated>false</IsTruncated>'}"
            f"<EvaluationResults>{members}</EvaluationResults>"
            "</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
        )

    def _decision(self, action: str, resource: str, context: Mapping[str, str]) -> str:
        may = self.policies is None or allows(self.policies, action, resource, context)
        return "allowed" if may and action not in self.denied else "implicitDeny"


def _contexts(call: Call) -> Iterator[tuple[str, str]]:
    number = 1
    while name := call.params.get(f"ContextEntries.member.{number}.ContextKeyName"):
        yield name, call.params[f"ContextEntries.member.{number}.ContextKeyValues.member.1"]
        number += 1
