"""Which permission is missing, where EC2 tells it only in code."""

from __future__ import annotations

import json
import re

from costopt.domain.errors import ForbiddenError, ProviderError
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

_ENCODED = re.compile(r"Encoded authorization failure message: ([A-Za-z0-9_-]+)")


def with_missing_action(error: ForbiddenError, clients: Clients, region: str) -> ForbiddenError:
    """``error`` as it is, or with the action and resource that EC2 encoded into its message.

    Decoding needs sts:DecodeAuthorizationMessage; without it the error stays as it is.
    """
    response = getattr(error.__cause__, "response", {})
    encoded = _ENCODED.search(str(response.get("Error", {}).get("Message", "")))
    if encoded is None:
        return error
    try:
        with map_errors("sts:DecodeAuthorizationMessage", region):
            answer = clients.reading("sts", region).decode_authorization_message(
                EncodedMessage=encoded[1]
            )
        context = json.loads(answer["DecodedMessage"])["context"]
        action, resource = str(context["action"]), str(context["resource"])
    except (ProviderError, KeyError, TypeError, ValueError):
        return error
    return ForbiddenError(
        f"{error.message.partition(':')[0]}: the AWS credentials may not {action} on {resource}",
        hint=f"allow {action} in their policy; `costopt doctor aws --iam-policy` prints all that "
        "costopt needs",
    )
