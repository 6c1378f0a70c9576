"""What IAM answers when it is asked what a principal may do; a dry run of any EC2 call."""

from __future__ import annotations

from collections.abc import Mapping

from tests.aws.overlay.call import Answer, Call, Forward, Reply
from tests.aws.overlay.refusal import refusal

NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"
PAGE = 10
DRY = ("RunInstances", "CreateLaunchTemplate", "CreatePlacementGroup")


class Simulated:
    """``denied`` are actions that nothing allows."""

    def __init__(self) -> None:
        self.denied: set[str] = set()
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
        asked, values = [], 1
        while (action := call.params.get(f"ActionNames.member.{values}")) is not None:
            asked.append(action)
            values += 1
        first = int(call.params.get("Marker") or 0)
        members = "".join(
            f"<member><EvalActionName>{action}</EvalActionName><EvalDecision>"
            f"{'implicitDeny' if action in self.denied else 'allowed'}</EvalDecision></member>"
            for action in asked[first : first + PAGE]
        )
        rest = first + PAGE < len(asked)
        marker = f"<IsTruncated>true</IsTruncated><Marker>{first + PAGE}</Marker>"
        return Reply.xml(
            f'<SimulatePrincipalPolicyResponse xmlns="{NAMESPACE}"><SimulatePrincipalPolicyResult>'
            f"{marker if rest else '<IsTruncated>false</IsTruncated>'}"
            f"<EvaluationResults>{members}</EvaluationResults>"
            "</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
        )
