#!/usr/bin/env bash
# kubeconfig.sh CLUSTER FILE: writes the kubeconfig of a kind cluster to a file of its
# own, without a look at KUBECONFIG. If kind does not know the cluster, it copies the
# user's kubeconfig that has the context kind-CLUSTER.
set -euo pipefail
cluster=${1:?name of the cluster}
file=${2:?file to write}
mkdir -p "$(dirname "$file")"
unfinished=$(mktemp "$file.XXXXXX")
trap 'rm -f "$unfinished"' EXIT
if "$KIND" get kubeconfig --name "$cluster" >"$unfinished" 2>/dev/null; then
	mv "$unfinished" "$file"
	exit 0
fi
IFS=: read -ra own <<<"${KUBECONFIG:-$HOME/.kube/config}"
for f in "${own[@]}"; do
	if [ -r "$f" ] && grep -q "kind-$cluster\$" "$f"; then
		cp "$f" "$unfinished"
		mv "$unfinished" "$file"
		exit 0
	fi
done
echo "kubeconfig.sh: no kind cluster $cluster here (make kind-up CLUSTER=$cluster), nor a context kind-$cluster in ${own[*]}" >&2
exit 1
