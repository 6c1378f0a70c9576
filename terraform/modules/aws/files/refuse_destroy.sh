#!/bin/sh
# refuse_destroy.sh OWNER REGION…: fails while instances of this owner live in one of the regions.
set -eu
owner=$1
shift
if ! command -v aws >/dev/null 2>&1; then
  echo "cannot look for nodes of $owner: the AWS CLI is not installed; install it, or apply with" \
    "refuse_destroy_with_nodes = false after you looked yourself" >&2
  exit 1
fi
for region in "$@"; do
  nodes=$(aws ec2 describe-instances --region "$region" --output text \
    --filters "Name=tag:costopt:owner,Values=$owner" \
    Name=instance-state-name,Values=pending,running,stopping,stopped \
    --query 'Reservations[].Instances[].InstanceId')
  if [ -n "$nodes" ] && [ "$nodes" != None ]; then
    echo "nodes of $owner live in $region:" $nodes >&2
    echo "cancel their jobs (costopt cancel JOB) and wait until they are gone, or end them with" \
      "costopt reconcile --apply" >&2
    exit 1
  fi
done
