#!/usr/bin/env bash
# audit.sh [STAGE…] checks what this project claims of itself, stage by stage, and writes a report:
# README.md, the output of each stage and the raw figures. Without a stage it plays all. A stage
# replaces what an earlier audit of the same folder says of it, so an interrupted audit goes on with
# the stages that it lacks. Exit code 1: a criterion is not met.
#
#   AUDIT=DIR       the folder of the report (default: results/<date>-<commit>-audit)
#   AUDIT_RAW=DIR   the complete runs, which are too large to publish (default: bin/audit)
#   AUDIT_RUNS=12   the runs of one binary; AUDIT_ROUNDS: their rounds (default: those of audit.yaml)
#   AUDIT_SOAK=2e6  the events of each variant in the soak
#   AUDIT_SOAKED=F  the log of a soak that was played, in place of playing one
set -uo pipefail
cd "$(dirname "$0")/.."
commit=$(git describe --always --exclude '*' --abbrev=12 --dirty)
out=${AUDIT:-results/$(date -u +%F)-$commit-audit} raw=${AUDIT_RAW:-bin/audit}
all=(false-alarms gate statistics equal-input headlines losses refused upstream soak crash secrets)
parts=$raw/parts
mkdir -p "$out" "$parts" "$raw/runs"
RUNS=$(realpath "$raw/runs") # of false-alarms
export RUNS
failed=0

# stage NAME QUESTION COMMAND FIGURES: runs the command, keeps its output and writes the section.
# FIGURES is a pattern of the lines that the section shows.
stage() {
	local name=$1 question=$2 command=$3 figures=$4 verdict=met
	echo "== $name: $command" >&2
	(eval "$command") >"$out/$name.txt" 2>&1 || verdict='**not met**'
	sed -i -e "s#$RUNS#RUNS#g" -e "s#$PWD#.#g" -e "s#$HOME#~#g" "$out/$name.txt"
	grep -Eq -- "$figures" "$out/$name.txt" || verdict='**not met** (no figures)'
	[ "$verdict" = met ] || { failed=1; tail -5 "$out/$name.txt" >&2; }
	{
		printf '## %s\n\n%s\n\n```sh\n%s\n```\n\n' "$name" "$question" "$command"
		if grep -Eq '^\|' "$out/$name.txt"; then
			grep -E -- "$figures" "$out/$name.txt"
		else
			printf '```text\n%s\n```\n' "$(grep -E -- "$figures" "$out/$name.txt" | sed -E 's/^ +[a-z_]+_test\.go:[0-9]+: //' | uniq | head -90)"
		fi
		printf '\nCriterion: %s. [Output](%s.txt).\n\n' "$verdict" "$name"
	} >"$parts/$name.md"
	echo "   $verdict" >&2
}

# repeat plays the experiment as often as asked; runs that are there already stay.
repeat() {
	local i
	for i in $(seq -w "${AUDIT_RUNS:-12}"); do
		[ -f "$RUNS/$i/report.md" ] && continue
		rm -rf "${RUNS:?}/$i"
		bin/watchlab run scripts/audit.yaml ${AUDIT_ROUNDS:+--rounds $AUDIT_ROUNDS} --out "$RUNS/$i" >/dev/null || return 1
	done
	(cd "$RUNS" && tar -czf - ./*/bench.txt) >"$out/runs.tar.gz"
}

false-alarms() {
	stage false-alarms "${AUDIT_RUNS:-12} runs of one binary (\`watchlab run scripts/audit.yaml\`), each with a process for each round, are compared in pairs and gated in both directions. At most 6 % of the figures may differ, and at most 6 % of the gates may fail. [bench.txt](runs.tar.gz) of all runs." \
		"repeat && go test -count 1 -run '^TestRepeats\$' -v ./bench/compare -runs \$RUNS" '^(\||gate|compare|The pairs|$)'
}

gate() {
	stage gate 'Of 400 synthetic runs with a regression of 10 % or more and 10 % allowed, none is held, with normal, skewed and bimodal noise and with outliers.' \
		"go test -count 1 -run '^TestNoFalseHeld\$' -v ./bench/compare" 'rounds, [1-4][0-9] %'
}

statistics() {
	stage statistics 'The tests of a difference hold their level with unequal spread. The claimed power is shown where noise is not normal.' \
		"go test -count 1 -run '^(TestUnequalSpread|TestClaimedPower|TestFalseAlarmsOfProcesses)\$' -v ./bench/stats ./bench/lab" 'differ|rounds:|RUN.*/|alarms'
}

equal-input() {
	stage equal-input 'All mergers of a comparison receive the same updates in the same order.' \
		"go test -count 1 -run '^TestEqualInput\$' -v ./bench/pipeline" 'pipeline:'
}

headlines() {
	stage headlines 'The output in README.md is that of the run that it names.' \
		"go test -count 1 -run '^TestReadmeOutput\$' -v ./cmd/watchlab" '^--- '
}

# lost prints the sentence of each block of a quick run, and the losses of its report. It fails
# where a block has none or too few rounds. A run that is there already stays.
lost() {
	[ -f "$raw/quick/report.md" ] || bin/watchlab run --out "$raw/quick" >/dev/null || return 1
	local sentences
	sentences=$(bin/watchlab report "$raw/quick" -o brief | grep -E ' (handles|shows|has) ')
	echo "$sentences"
	sed -n '/^## Where it loses/,/^## Method/p' "$raw/quick/report.md"
	[ "$(wc -l <<<"$sentences")" -ge 3 ] && ! grep -q 'too few rounds' <<<"$sentences"
}

losses() {
	stage losses 'The program itself lists where ours lose, the p99 at a fixed rate included, for a quick run (`watchlab run`).' \
		lost '^An? |^- '
}

refused() {
	stage refused 'The writer of a cluster run lacks a right: every cell is invalid: refused, the pods fail.' \
		"cd bench/e2e && go test -count 1 -timeout 20m -run '^TestClusterRun\$/^Refused\$' -v ." '^ *--- |refused'
}

upstream() {
	stage upstream "client-go's own tests of queues, controllers, Reflector and informers run on every variant, kubelet's tests of PodConfig on every merger. Each test that does not run or fails is listed with its reason." \
		"(cd bench/e2e && go test -count 1 -timeout 30m -v ./upstream) && (cd bench/kubelet && go test -count 1 -timeout 20m -run '^TestUpstream\$' -v .) && grep -hE '^	\"Test|^	\{\"(deltafifo|queue|informer)' bench/e2e/upstream/upstream_test.go bench/kubelet/upstream_test.go" \
		'^ *--- |passed|^	'
}

soak() {
	local play="go test -count 1 -timeout 0 -v -run '^TestSoak\$' ./impls/conformance -events ${AUDIT_SOAK:-2e6}"
	[ -z "${AUDIT_SOAKED:-}" ] || play="cat \$AUDIT_SOAKED && grep -q '^--- PASS: TestSoak' \$AUDIT_SOAKED"
	stage soak 'Each variant plays as many events in ten instances, one after the other. Nothing is lost, duplicated or reordered; the heap after collections, goroutines and open files stay flat. Mergers get updates of one pod, with a SET of all pods among 1,000.' \
		"$play" 'soaked'
}

crash() {
	stage crash 'Each operation of a run, a resume, a report and an upload on the results folder fails in ten ways, one by one: full or read-only disk, I/O error, short write, kill, power cut. After each, the folder is readable, holds every round that was reported, and --resume plays only the others.' \
		"go test -count 1 -timeout 0 -v -run '^TestCrash' ./bench/lab -crash-every 1" 'operations|^--- '
}

secrets() {
	stage secrets 'Every verb is called with secrets in its input, environment and flags, with good and failing input. 100,000 random objects of all kinds are recorded without --keep. None of the secrets is in what was printed, written or served.' \
		"go test -count 1 -timeout 0 -v -run '^TestSecrets\$' ./cmd/watchlab/cli && go test -count 1 -timeout 0 -v -run '^TestSecrets\$' ./loadgen/trace/anonymise -objects 100000" 'canaries|objects|^--- '
}

go build -trimpath -ldflags "-X watchlab/cmd/watchlab/cli.commit=$commit" -o bin/watchlab ./cmd/watchlab || exit 1
[ $# -gt 0 ] || set -- "${all[@]}"
for name; do
	[[ " ${all[*]} " == *" $name "* ]] || { echo "audit.sh: no stage $name (stages: ${all[*]})" >&2; exit 2; }
done
for name; do
	$name
	{
		printf '# Audit\n\n`make audit` at commit %s, %s, %s cores. Each section states a criterion, its command, the figures and\nwhether it is met. `repeat` and `lost` are functions of scripts/audit.sh.\n\n' \
			"$commit" "$(date -u +%F)" "$(nproc)"
		for part in "${all[@]}"; do
			if [ -f "$parts/$part.md" ]; then cat "$parts/$part.md"; else printf '## %s\n\nNot played.\n\n' "$part"; fi
		done
	} >"$out/README.md"
done
echo "audit.sh: the report is $out/README.md" >&2
exit $failed
