"""A real Slurm cluster on this machine that bursts into a simulated cloud; run from a checkout.

Each step is printed: a job is submitted, its nodes are bought, it runs, and they are released.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.slurm.burst import burst_cloud

PATIENCE_S = 180.0


def main() -> int:
    """Run the demo; 0 if the job has run and every node is released."""
    with tempfile.TemporaryDirectory(prefix="costopt-burst-") as folder:
        print("# Slurm with partition burst (c1 to c4 in the cloud), and a daemon", flush=True)
        with burst_cloud(Path(folder)) as cloud, cloud.daemon():
            script = "srun sh -c 'echo \"task on $SLURMD_NODENAME\"'; sleep 3"
            options = ("-p", "burst", "-N2", "-t", "2", "--deadline=now+2hours")
            print(f"$ sbatch {' '.join(options)} job.sh", flush=True)
            begun, shown = time.monotonic(), ""
            job = cloud.slurm.sbatch(script, *options)
            while time.monotonic() - begun < PATIENCE_S:
                nodes = cloud.slurm.run("sinfo", "-hp", "burst", "-o", "%N %T")
                said = f"job {cloud.slurm.state(job)}; " + "; ".join(nodes.splitlines())
                if said != shown:
                    print(f"{time.monotonic() - begun:5.1f} s  {said}", flush=True)
                    shown = said
                if cloud.pools() and cloud.all_released() and "%" not in nodes:
                    break
                time.sleep(0.2)
            print((cloud.slurm.folder / "jobs" / f"{job}.out").read_text(), end="")
            print(f"# what Slurm's programs printed\n{cloud.log()}", end="")
            (served,) = (each["job"] for each in cloud.jobs())
            for command in (("status",), ("status", served)):
                print(f"$ costopt {' '.join(command)}\n{cloud.costopt(*command).stdout}")
            return int(cloud.slurm.state(job) != "COMPLETED" or not cloud.all_released())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FileNotFoundError as error:
        sys.exit(f"not installed: {error.filename} (Debian: apt install slurmctld slurmd munge)")
    except subprocess.TimeoutExpired as error:
        sys.exit(f"no answer from {error.cmd}")
