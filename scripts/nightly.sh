#!/usr/bin/env bash
# nightly.sh [STAGE…] plays what .ci/run leaves out, stage by stage, and writes the summary to
# results/<date>-<commit>-nightly/README.md and the logs to bin/nightly. A stage that fails does not end it; the
# first failure is the last line. Without a stage it plays all. Exit code 1: a stage failed.
#
#   BENCHTIME=1x SOAK=10m FUZZTIME=1m CHAOS=10m STORMS=3m FAULTS=5m   how long stages play
#   ALARMS=6   runs of one binary in the stage alarms, of which at most 6 % of the figures may differ
set -uo pipefail
cd "$(dirname "$0")/.."
all=(long alarms benchmarks mutants soak fuzz chaos load e2e kubernetes supply)
[ $# -gt 0 ] || set -- "${all[@]}"
for name; do
	[[ " ${all[*]} " == *" $name "* ]] || { echo "nightly.sh: no stage $name (stages: ${all[*]})" >&2; exit 2; }
done
export FUZZTIME=${FUZZTIME:-1m}
commit=$(git describe --always --exclude '*' --abbrev=12 --dirty)
out=results/$(date -u +%F)-$commit-nightly logs=bin/nightly
mkdir -p "$logs"
first='' rows=''

command_of() {
	case $1 in
	benchmarks) echo "go test -timeout 0 -run '^$' -skip '^BenchmarkPlanted$' -bench . -benchtime ${BENCHTIME:-1x} -short ./bench" ;;
	long) echo "go test -count 1 -timeout 0 ./impls/decode -long && go test -count 1 -timeout 0 -run '^TestCrash' ./bench/lab -crash-every 1" \
		"&& go test -count 1 -timeout 0 -v -run '^TestSecrets$' ./loadgen/trace/anonymise -objects 100000" ;;
	alarms) echo "make build && rm -rf bin/alarms && for i in \$(seq ${ALARMS:-6}); do bin/watchlab run scripts/alarms.yaml --out bin/alarms/\$i || exit; done" \
		"&& go test -count 1 -v -run '^TestRepeats$' ./bench/compare -runs \"\$PWD/bin/alarms\"" ;;
	soak) echo "make soak SOAK=${SOAK:-10m}" ;;
	chaos) echo "make chaos CHAOS=${CHAOS:-10m}" ;;
	load) echo "make load STORMS=${STORMS:-3m}" ;;
	e2e) echo "make e2e FAULTS=${FAULTS:-5m}" ;;
	kubernetes) echo "make build && scripts/kubernetes-tests.sh" ;;
	supply) echo "make vuln sbom reproducible && scripts/vuln.sh --canary bin/watchlab" ;;
	*) echo "make $1" ;;
	esac
}

# failure LOG prints the first failure in a log: of a test, of a fuzz target, else its last line.
failure() {
	grep -m1 -E '^ *--- FAIL|^panic: |^FAIL\s|^(Error|error):' "$1" || tail -n 1 "$1"
}

for name; do
	command=$(command_of "$name") began=$SECONDS verdict=passed
	echo "== $name: $command" >&2
	if ! (eval "$command") >"$logs/$name.txt" 2>&1; then
		verdict="**failed**: \`$(failure "$logs/$name.txt" | cut -c1-120)\`"
		first=${first:-"$name: $(failure "$logs/$name.txt") ($logs/$name.txt)"}
	fi
	rows+="| $name | \`${command//|/\\|}\` | $((SECONDS - began)) s | ${verdict//|/\\|} |"$'\n'
	mkdir -p "$out"
	{
		printf '# Nightly\n\n`scripts/nightly.sh %s` at commit %s, %s, %s cores, %s.\n\n' "$*" "$commit" "$(date -u +%F)" "$(nproc)" "$(go env GOVERSION)"
		printf '| stage | command | time | outcome |\n|---|---|---:|---|\n%s' "$rows"
	} >"$out/README.md"
done
cat "$out/README.md"
if [ -n "$first" ]; then
	echo "nightly.sh: first failure: $first" >&2
	exit 1
fi
echo "nightly.sh: all ${#} stages passed" >&2
