"""What other versions of Slurm print for the same cluster, typed up in the form that users show.

Columns are the same everywhere, as they are asked for by name; only what scontrol shows differs.
"""

from __future__ import annotations

import pytest

from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm.queries import SlurmQueries
from costopt_slurm.records import PartitionState

PARTITIONS = {
    "20.11": "PartitionName=spot AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
    "Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=60 "
    "Hidden=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED "
    "Nodes=gpu[01-02],n3 PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO "
    "OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=24 TotalNodes=3 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
    "23.11": "PartitionName=spot AllowGroups=ALL AllowAccounts=ALL DenyQos=slow AllocNodes=ALL "
    "Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=60 "
    "Hidden=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED "
    "MaxCPUsPerSocket=UNLIMITED Nodes=gpu[01-02],n3 PriorityJobFactor=1 PriorityTier=1 "
    "RootOnly=NO ReqResv=NO OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP "
    "TotalCPUs=24 TotalNodes=3 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerCPU=8000 "
    "MaxMemPerNode=UNLIMITED TRES=cpu=24,mem=96000M,node=3,billing=24,gres/gpu=24 "
    "TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=1 ResumeTimeout=GLOBAL SuspendTimeout=GLOBAL "
    "SuspendTime=GLOBAL PowerDownOnIdle=NO",
    "24.05": "PartitionName=spot AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL "
    "Default=YES QoS=N/A DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO "
    "GraceTime=60 Hidden=NO MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 LLN=NO "
    "MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED NodeSets=gpus,rest "
    "Nodes=gpu[01-02],n3 PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO "
    "OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=24 TotalNodes=3 "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerCPU=8000 MaxMemPerNode=UNLIMITED "
    "TRES=cpu=24,mem=96000M,node=3,billing=24",
}
CONFIG = """\
Configuration data as of 1795642371
AccountingStorageExternalHost = (null)
AccountingStorageType   = {accounts}
ClusterName             = campus
MinJobAge               = {age}
PreemptType             = {preempts}
ProctrackType           = proctrack/cgroup
SLURM_VERSION           = {version}
SuspendTime             = INFINITE

Cgroup Support Configuration:
CgroupMountpoint        = /sys/fs/cgroup

Slurmctld(primary) at ctl01 is UP
"""


class Printed(CommandRunner):
    """Prints this, whatever is asked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def run(self, *command: str, stdin: str = "") -> str:
        return self._text


@pytest.mark.parametrize("version", PARTITIONS)
def test_partitions(version: str) -> None:
    found = SlurmQueries(Printed(PARTITIONS[version] + "\n")).partitions()
    spot = PartitionState("spot", True, "REQUEUE", 60.0, 172_800.0, None)
    assert found == {"spot": spot}


@pytest.mark.parametrize(
    ("version", "accounts", "age", "preempts"),
    [
        ("20.11.6", "accounting_storage/none", "300 sec", "preempt/none"),
        ("23.02.7", "accounting_storage/slurmdbd", "300 sec", "preempt/partition_prio"),
        ("25.11.4", "accounting_storage/slurmdbd", "300 sec", "preempt/qos"),
        ("25.11.4", "(null)", "300 sec", "(null)"),
    ],
)
def test_settings(version: str, accounts: str, age: str, preempts: str) -> None:
    text = CONFIG.format(version=version, accounts=accounts, age=age, preempts=preempts)
    found = SlurmQueries(Printed(text)).settings()
    assert (found.version, found.name, found.min_job_age_s) == (version, "campus", 300.0)
    assert found.accounting is accounts.endswith("slurmdbd")
    assert found.is_preempting is (preempts not in ("preempt/none", "(null)"))
