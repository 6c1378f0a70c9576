#!/bin/sh
# refuse_destroy.sh OWNER PROJECT: fails while machines of this owner live in the project.
set -eu
if ! command -v gcloud >/dev/null 2>&1; then
  echo "cannot look for nodes of $1: gcloud is not installed; install it, or apply with" \
    "refuse_destroy_with_nodes = false after you looked yourself" >&2
  exit 1
fi
nodes=$(gcloud compute instances list --project "$2" --filter "labels.costopt-owner=$1" \
  --format 'value(name)')
if [ -n "$nodes" ]; then
  echo "nodes of $1 live in $2:" $nodes >&2
  echo "cancel their jobs (costopt cancel JOB) and wait until they are gone, or end them with" \
    "costopt reconcile --apply" >&2
  exit 1
fi
