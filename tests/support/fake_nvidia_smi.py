"""A stand-in for nvidia-smi that keeps limits in a file and speaks the real tool's messages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SCRIPT = """\
#!{python} -SE
import json, os, sys
state_file = {state!r}
state = json.load(open(state_file))
words = sys.argv[1:]
state["calls"].append(words)
if state["lost"]:
    print("Unable to determine the device handle for GPU0: 00000000:01:00.0: GPU is lost.  "
          "Reboot the system to recover this GPU")
    sys.exit(15)
gpus = [words[words.index("-i") + 1]] if "-i" in words else sorted(state["limits"])
said, code = [], 0
for gpu in gpus:
    bus = f"00000000:0{{gpu}}:00.0"
    if "--query-gpu=index,power.limit" in words:
        limit = state["limits"][gpu]
        said.append(f"{{gpu}}, " + ("[N/A]" if limit is None else f"{{limit:.2f}}"))
    elif words[0].startswith("--query-gpu=index,utilization.gpu,"):
        busy, errors, pending, _ = state["health"]
        said.append(f"{{gpu}}, {{busy}}, {{errors}}, {{pending}}")
    elif words[0].startswith("--query-remapped-rows=gpu_bus_id,"):
        said.append(f"{{bus}}, " + ", ".join(state["health"][2:]))
    elif "--query-gpu=index,power.min_limit" in words:
        said.append(f"{{gpu}}, " + ("[N/A]" if state["limits"][gpu] is None else
                    f"{{state['range'][0]:.2f}}"))
    elif "-pm" in words:
        said.append(f"Enabled persistence mode for GPU {{bus}}.")
    elif state["limits"][gpu] is None or state["stuck"]:
        said.append(f"Changing power management limit is not supported for GPU: {{bus}}.")
        said.append("Treating as warning and moving on.")
    elif not state["root"]:
        said.append(f"Failed to set power management limit for GPU {{bus}}: "
                    "Insufficient Permissions")
        code = 4
    else:
        watts = float(words[words.index("-pl") + 1])
        least, most = state["range"]
        if not least <= watts <= most:
            said.append(f"Provided power limit {{watts:.2f}} W is not a valid power limit which "
                        f"should be between {{least:.2f}} W and {{most:.2f}} W for GPU {{bus}}")
            code = 2
        else:
            was = state["limits"][gpu]
            said.append(f"Power limit for GPU {{bus}} was set to {{watts:.2f}} W from "
                        f"{{was:.2f}} W.")
            state["limits"][gpu] = watts
    if code:
        break
if code:
    said.append("Terminating early due to previous errors.")
elif not any(word.startswith("--query") for word in words):
    said.append("All done.")
    fresh = f"{{state_file}}.{{os.getpid()}}"
    json.dump(state, open(fresh, "w"))
    os.replace(fresh, state_file)
print("\\n".join(said))
sys.exit(code)
"""


class FakeNvidiaSmi:
    """Two GPUs of 400 W each unless told; ``folder`` is to be put on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = folder / "state.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.become({"0": 400.0, "1": 400.0})
        tool = folder / "nvidia-smi"
        tool.write_text(SCRIPT.format(python=sys.executable, state=str(self._state)))
        tool.chmod(0o755)

    def become(
        self,
        limits: dict[str, float | None],
        *,
        root: bool = True,
        stuck: bool = False,
        range_w: tuple[float, float] = (100.0, 400.0),
    ) -> None:
        """GPUs with these limits; without ``root`` none can be set, ``stuck`` ones stay."""
        state = {"limits": limits, "root": root, "stuck": stuck, "calls": [], "lost": False}
        state |= {"health": ["0", "0", "No", "No"], "range": range_w}
        self._state.write_text(json.dumps(state))

    def read_health(
        self,
        busy: str = "0",
        errors: str = "0",
        pending: str = "No",
        failed: str = "No",
        *,
        lost: bool = False,
    ) -> None:
        """What each GPU reports: per cent busy, uncorrected errors, rows to be remapped, or not."""
        state = json.loads(self._state.read_text())
        state |= {"health": [busy, errors, pending, failed], "lost": lost}
        fresh = self._state.with_suffix(".fresh")
        fresh.write_text(json.dumps(state))
        fresh.replace(self._state)

    @property
    def limits_w(self) -> list[float | None]:
        """The limit of each GPU."""
        return list(json.loads(self._state.read_text())["limits"].values())

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call that changed something."""
        return [list(words) for words in json.loads(self._state.read_text())["calls"]]
