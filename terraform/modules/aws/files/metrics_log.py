"""Writes the daemon's metrics and alerts as lines of JSON, for the filters of its log group."""

import json
import os
import sys
import time

from costopt.client.client import DaemonClient, parse_address
from costopt.domain.errors import CostoptError

EVERY_S = 60.0
client = DaemonClient(parse_address(os.environ["COSTOPT_SERVER"]))
seen = None
while True:
    try:
        health = client.get("health")
        alerts = client.get("alerts", after=seen or 0)["alerts"]
        fleet = client.get("fleet")
    except CostoptError as error:
        print(json.dumps({"costopt_unreachable": 1, "why": str(error)}), flush=True)
    else:
        line = {
            "costopt_tick_age_s": health["tick_age_s"],
            "costopt_ready": int(health["ready"]),
            "costopt_orphans": len(fleet["orphans"]),
            "costopt_nodes": len(fleet["nodes"]),
            "costopt_usd_per_hour": fleet["usd_per_hour"],
        }
        print(json.dumps({key: value for key, value in line.items() if value is not None}))
        for alert in alerts:
            print(json.dumps({"costopt_alert": alert["kind"], "message": alert["message"]}))
        sys.stdout.flush()
        seen = max([seen or 0, *(alert["seq"] for alert in alerts)])
    if "--once" in sys.argv:
        break
    time.sleep(EVERY_S)
