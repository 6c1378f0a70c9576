"""Errors in the wire format of the service that is asked."""

from __future__ import annotations

from xml.sax.saxutils import escape

from tests.support.aws.overlay.call import Call, Reply

QUERY_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?><ErrorResponse><Error><Type>Sender</Type>'
    "<Code>{code}</Code><Message>{message}</Message></Error><RequestId>0</RequestId></ErrorResponse>"
)
EC2_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>{code}</Code>'
    "<Message>{message}</Message></Error></Errors><RequestID>0</RequestID></Response>"
)
S3_ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code>'
    "<Message>{message}</Message><RequestId>0</RequestId></Error>"
)


def refusal(call: Call, code: str, message: str, status: int = 400) -> Reply:
    """An error as the service that ``call`` asks would send it."""
    if "HTTP_X_AMZ_TARGET" in call.environ:
        return Reply.json({"__type": code, "message": message}, status)
    template = {"ec2": EC2_ERROR, "s3": S3_ERROR}.get(call.service, QUERY_ERROR)
    return Reply.xml(template.format(code=escape(code), message=escape(message)), status)
