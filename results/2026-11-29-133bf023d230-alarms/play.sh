#!/usr/bin/env bash
# play.sh SERVER FROM TO OUT NAMES…: plays a controller without and with all faults, once a seed from FROM to TO, six at a
# time, and writes a line for each to OUT/summary.txt. Folders of plays that fail stay. SERVER is simulated or envtest. It
# runs in the root of the source tree after make build, with the programs in PATH; ray.yaml and kueue.yaml are the resource
# definitions of those modules. kueue needs a certificate in /etc/kueue/metrics/certs.
server=$1 from=$2 to=$3 out=$4
shift 4
mkdir -p "$out"
export server out
one() {
	local n=$1 seed=$2 w stale=bench/e2e/controllers/stale here
	here=$(dirname "$0")/workloads
	local kcm="kube-controller-manager --kubeconfig={kubeconfig} --leader-elect=false --use-service-account-credentials=false --secure-port=0 --kube-api-qps=100 --kube-api-burst=200"
	local cmd="$kcm --controllers=$n-controller"
	case $n in
	deployment) w=deployments cmd="$kcm --controllers=deployment-controller,replicaset-controller" ;;
	replicaset) w=replicasets ;;
	node-lifecycle) w=nodes cmd+=" --node-monitor-grace-period=16s --node-eviction-rate=10" ;;
	statefulset | daemonset | job) w=$stale/$n.yaml ;;
	ray) w="$here/ray.yaml --manifest ray.yaml" cmd="ray-operator --kubeconfig={kubeconfig} --enable-leader-election=false --metrics-addr={metrics} --health-probe-bind-address=127.0.0.1:0" ;;
	kueue) w="$here/kueue.yaml --manifest kueue.yaml" cmd="kueue --config=$here/kueue-config.yaml --kubeconfig={kubeconfig} --feature-gates=VisibilityOnDemand=false" ;;
	*) w=$here/$n.yaml ;;
	esac
	# shellcheck disable=SC2086 # workloads and commands are words
	bin/watchlab controller --server "$server" --workload $w --seed "$seed" --faults none --faults all --shrink=false --out "$out/$n-$seed" -- $cmd >"$out/$n-$seed.txt" 2>&1
	local rc=$?
	echo "$n seed=$seed rc=$rc" >>"$out/summary.txt"
	[ $rc = 0 ] && rm -rf "$out/$n-$seed" "$out/$n-$seed.txt"
}
export -f one
for seed in $(seq "$from" "$to"); do for n; do echo "$n $seed"; done; done | xargs -P 6 -L 1 bash -c 'one "$@"' "$0"
