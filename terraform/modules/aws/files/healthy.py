"""Exits with 0 where the daemon's loop goes on."""

import os
import sys

from costopt.client.client import DaemonClient, parse_address
from costopt.domain.errors import CostoptError

try:
    sys.exit(not DaemonClient(parse_address(os.environ["COSTOPT_SERVER"])).get("health")["alive"])
except CostoptError as error:
    sys.exit(str(error))
