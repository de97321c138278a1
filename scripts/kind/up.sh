#!/usr/bin/env bash
# up.sh CLUSTER WORKERS: a kind cluster of one control plane and so many workers, if
# there is none of that name. KIND is the kind program, KIND_IMAGE another node image
# than kind's own release has, KIND_CONFIG a configuration that is taken as it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cluster=${1:?name of the cluster}
workers=${2:?number of workers}
if ! [[ $workers =~ ^[0-9]{1,2}$ ]]; then
	echo "up.sh: WORKERS=$workers is no number from 0 to 99" >&2
	exit 2
fi
if "$KIND" get clusters 2>/dev/null | grep -qx "$cluster"; then
	echo "kind-up: cluster $cluster is there already, and is left as it is" >&2
	exit 0
fi
{
	cat "${KIND_CONFIG:-$here/cluster.yaml}"
	if [ -z "${KIND_CONFIG:-}" ]; then
		for ((i = 0; i < workers; i++)); do echo '- role: worker'; done
	fi
} | "$KIND" create cluster --name "$cluster" --config - --wait 120s ${KIND_IMAGE:+--image "$KIND_IMAGE"}
