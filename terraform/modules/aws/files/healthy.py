"""Exits with 0 where the daemon's loop goes on."""

import os
import sys

from costopt.client.address import parse_address
from costopt.client.client import Client
from costopt.domain.errors import CostoptError

try:
    sys.exit(not Client(parse_address(os.environ["COSTOPT_SERVER"])).get("health")["alive"])
except CostoptError as error:
    sys.exit(str(error))
