"""Hands the daemon the jobs that lie in the bucket, once each; a job it knows is left as it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import boto3

bucket, prefix, folder = os.environ["COSTOPT_DEPLOYED"].split("/", 2)
s3 = boto3.client("s3")
keys = [
    found["Key"]
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    for found in page.get("Contents", ())
]
failed = 0
for key in sorted(key for key in keys if key.endswith("/job.json") and key.count("/") == 2):
    name = key.split("/")[1]
    if subprocess.run(["costopt", "show", name], capture_output=True).returncode == 0:
        continue
    place = Path("/", folder, name)
    within = f"{prefix}/{name}/files/"
    for each in (each for each in keys if each.startswith(within)):
        path = place / each.removeprefix(within)
        path.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, each, str(path))
    place.mkdir(parents=True, exist_ok=True)
    said = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    job = place / "job.yaml"
    job.write_text(said["document"])
    policy = said["policy"]
    if "\n" in policy or ":" in policy:
        policy = str(place / "policy.yaml")
        Path(policy).write_text(said["policy"])
    command = ["costopt", "submit", str(job), "--policy", policy, "--workdir", str(place)]
    command += ["--priority", str(said["priority"])]
    failed += subprocess.run(command).returncode != 0
sys.exit(1 if failed else 0)
