"""What ``costopt setup gcp`` creates in a project, and removes again."""

from costopt_gcp.setup.account import GcpSetup

__all__ = ["GcpSetup"]
