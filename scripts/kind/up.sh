#!/usr/bin/env bash
# up.sh CLUSTER WORKERS: creates a kind cluster of one control plane and WORKERS nodes,
# if none has that name. KIND is the kind program. KIND_IMAGE replaces the node image
# of kind's release, KIND_CONFIG the configuration.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cluster=${1:?name of the cluster}
workers=${2:?number of workers}
if ! [[ $workers =~ ^[0-9]{1,2}$ ]]; then
	echo "up.sh: WORKERS=$workers is not a number from 0 to 99" >&2
	exit 2
fi
if "$KIND" get clusters 2>/dev/null | grep -qx "$cluster"; then
	echo "up.sh: cluster $cluster exists" >&2
	exit 0
fi
{
	cat "${KIND_CONFIG:-$here/cluster.yaml}"
	if [ -z "${KIND_CONFIG:-}" ]; then
		for ((i = 0; i < workers; i++)); do echo '- role: worker'; done
	fi
} | "$KIND" create cluster --name "$cluster" --config - --wait 120s ${KIND_IMAGE:+--image "$KIND_IMAGE"}
