#!/usr/bin/env bash
# kubernetes-tests.sh [FOCUS] plays Kubernetes' own end-to-end tests against `watchlab serve`, with the pinned
# kube-controller-manager and kube-scheduler, and KWOK as the kubelets of two nodes. FOCUS is a regular expression of
# names, by default the conformance tests of [sig-api-machinery]; SKIP is one of tests to leave out, by default those that
# need a pod's process (webhooks, an aggregated server) and those of policies in CEL, which the server has not. It writes the table and its sums to stdout, and logs to
# bin/kubernetes-tests. An end by SIGINT keeps what ended.
set -euo pipefail
cd "$(dirname "$0")/.."
focus=${1:-'\[sig-api-machinery\].*\[Conformance\]'} skip=${SKIP-'AdmissionWebhook|Aggregator|CustomResourceConversionWebhook|CustomResourceFieldSelectors|AdmissionPolicy'}
logs=bin/kubernetes-tests config=scripts/deploy/overlays/kwok/config/stages.yaml
for p in kubectl kube-controller-manager kube-scheduler kwok e2e.test; do
	path=$(scripts/program.sh "$p") && declare "${p//[-.]/_}=$path"
done
rm -rf "$logs" && mkdir -p "$logs"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait' EXIT
start() { # NAME COMMAND…
	local log=$logs/$1.txt
	shift
	"$@" >"$log" 2>&1 &
	pids+=($!)
}
for i in 0 1; do
	printf '{apiVersion: v1, kind: Node, metadata: {name: node-%s, labels: {kubernetes.io/os: linux, kubernetes.io/hostname: node-%s}}, status: {%s, %s}}\n---\n' \
		$i $i 'capacity: {cpu: 32, memory: 256Gi, pods: 110}' 'allocatable: {cpu: 32, memory: 256Gi, pods: 110}'
done >"$logs/nodes.yaml"
start serve bin/watchlab serve --graceful --manifest "$logs/nodes.yaml" --kubeconfig-out "$logs/kubeconfig" --overwrite
# until COMMAND: waits for a minute at most.
until_() {
	for _ in $(seq 300); do "$@" && return; sleep 0.2; done
	echo "kubernetes-tests.sh: not within a minute: $* (logs in $logs)" >&2
	exit 1
}
until_ test -s "$logs/kubeconfig"
"$kubectl" --kubeconfig "$logs/kubeconfig" config view --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d >"$logs/ca.crt"
start kube-controller-manager "$kube_controller_manager" --kubeconfig "$logs/kubeconfig" --leader-elect=false --secure-port=0 --kube-api-qps=200 \
	--kube-api-burst=400 --resource-quota-sync-period=30s --use-service-account-credentials=false --root-ca-file "$logs/ca.crt"
start kube-scheduler "$kube_scheduler" --kubeconfig "$logs/kubeconfig" --leader-elect=false --secure-port=0
start kwok "$kwok" --kubeconfig "$logs/kubeconfig" --manage-all-nodes --config "$config" --node-lease-duration-seconds 40 --server-address 127.0.0.1:0
ready() { [ "$("$kubectl" --kubeconfig "$logs/kubeconfig" get nodes --no-headers 2>/dev/null | grep -c ' Ready ')" = 2 ]; }
until_ ready
PATH=$(dirname "$kubectl"):$PATH "$e2e_test" -kubeconfig "$logs/kubeconfig" -provider skeleton -disable-log-dump -allowed-not-ready-nodes -1 \
	-ginkgo.focus "$focus" -ginkgo.skip "$skip" -ginkgo.no-color -ginkgo.v -ginkgo.timeout 2h -report-dir "$logs" >"$logs/e2e.test.txt" 2>&1 || true
# A line of the report is the beginning of a test, or its failure.
awk '
	function attribute(name) { return match($0, " " name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4) : "" }
	function plain(s) { gsub(/&#xA;.*/, "", s); gsub(/&#34;|&quot;/, "\"", s); gsub(/&#39;/, "'\''", s); gsub(/&lt;/, "<", s); gsub(/&gt;/, ">", s); gsub(/&amp;/, "\\&", s); gsub(/\|/, "\\|", s); return s }
	/<testcase / && attribute("name") ~ /^\[It\]/ && attribute("status") != "skipped" {
		test = plain(attribute("name")); sub(/^\[It\] /, "", test); sub(/( \[[A-Za-z0-9:, -]*\])+$/, "", test)
		outcome = attribute("status"); sums[outcome]++; rows[++n] = test; outcomes[n] = outcome
	}
	/<failure / && why[n] == "" { sub(/.*<failure [^>]*>(\[[A-Z]*\] )?/, ""); why[n] = substr(plain($0), 1, 200) }
	END {
		print "| test | outcome | |\n|---|---|---|"
		for (i = 1; i <= n; i++) printf "| %s | %s | %s |\n", rows[i], outcomes[i] == "passed" ? "passed" : "**" outcomes[i] "**", why[i]
		printf "\n%d tests:", n; for (s in sums) printf " %d %s", sums[s], s; print ""
	}' "$logs"/junit*.xml
