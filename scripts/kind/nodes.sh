#!/usr/bin/env bash
# nodes.sh COUNT --context NAME [flags of kubectl]: creates and deletes fake nodes, which
# have no kubelet, until the cluster has COUNT of them. Other nodes stay unchanged.
# KUBECTL is the kubectl program.
#
# KWOK, which the overlay kwok deploys, renews the nodes' leases and reports their status.
# Thousands of fake nodes cause the watch streams of thousands of kubelets. A taint keeps
# ordinary pods away.
set -euo pipefail
count=${1:?number of nodes}
shift
if ! [[ $count =~ ^[0-9]{1,4}$|^10000$ ]]; then # twice what Kubernetes supports
	echo "nodes.sh: COUNT=$count is not a number from 0 to 10000" >&2
	exit 2
fi
if [[ " $*" != *" --context"* ]]; then
	echo "nodes.sh: --context is required: the script writes to the cluster" >&2
	exit 2
fi
kubectl=${KUBECTL:-kubectl} ours=watchlab.dev/fake-node

# manifest prints a node of a common size, in the form that a kubelet registers.
manifest() {
	cat <<-NODE
		{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$1",
		  "labels": {"$ours": "true", "type": "kwok", "kubernetes.io/hostname": "$1", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
		  "annotations": {"kwok.x-k8s.io/node": "fake"}},
		 "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
		 "status": {"phase": "Running", "capacity": {"cpu": "32", "memory": "128Gi", "pods": "110"},
		  "allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}}}
	NODE
}

wanted=$(for ((i = 0; i < count; i++)); do printf 'watchlab-fake-%05d\n' "$i"; done)
existing=$("$kubectl" get nodes "$@" --selector "$ours" --output jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}' | sort)
missing=$(comm -23 <(echo "$wanted") <(echo "$existing"))
surplus=$(comm -13 <(echo "$wanted") <(echo "$existing"))
if [ -n "$missing" ]; then
	for name in $missing; do manifest "$name"; done | "$kubectl" create "$@" --filename - >/dev/null
fi
if [ -n "$surplus" ]; then
	# One kubectl deletes five nodes a second.
	echo "$surplus" | xargs -P 16 -n 25 "$kubectl" delete nodes "$@" --wait=false >/dev/null
fi
echo "$count nodes without kubelets: $(wc -w <<<"$missing") made, $(wc -w <<<"$surplus") removed"
