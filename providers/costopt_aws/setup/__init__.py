"""What ``costopt setup aws`` creates in an account, and removes again."""

from costopt_aws.setup.account import AwsSetup

__all__ = ["AwsSetup"]
