#!/usr/bin/env bash
# Fuzzes each target in turn, for FUZZTIME each, and prints a table of executions and crashes. An input that
# crashes goes to testdata/fuzz of its package, where go test plays it again. A worker has 8 GiB of address
# space: an input that takes more is a crash, too. Coverage of our own packages guides the fuzzer: that of all
# dependencies, as of go test -fuzz, takes minutes to build. With FUZZKEEP=n the n newest inputs of each target that
# reached new code, of up to 4 kB, are kept in testdata/fuzz, too.
#
# usage: scripts/fuzz.sh [TARGET...]   # as in FuzzReader; all by default
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
corpus=$(go env GOCACHE)/fuzz/watchlab
crashes=0

# kept PACKAGE TARGET prints the number of inputs in testdata.
kept() { (find "$1/testdata/fuzz/$2" -type f 2>/dev/null || true) | wc -l; }

printf '| package | target | executions | inputs kept | crashes |\n|---|---|---:|---:|---:|\n'
for package in $(grep -rl --include='*_test.go' '^func Fuzz' bench impls loadgen | xargs dirname | sort -u); do
	targets=$(grep -ho '^func Fuzz\w*' "$package"/*_test.go | cut -c6- | sort)
	if [ $# -gt 0 ]; then
		targets=$(grep -xF "$(printf '%s\n' "$@")" <<<"$targets") || continue
	fi
	go test -c -gcflags="$(go list -m)/...=-d=libfuzzer" -o "$out/fuzz.test" "./$package"
	for target in $targets; do
		before=$(kept "$package" "$target")
		(
			cd "$package"
			ulimit -v $((8 << 20))
			"$out/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "${FUZZTIME:-10m}" \
				-test.fuzzcachedir "$corpus/$package" -test.parallel "${FUZZPARALLEL:-1}"
		) >"$out/log" 2>&1 || true
		found=$(($(kept "$package" "$target") - before))
		# A time that ends while the worker is at an input is reported as a failure: golang.org/issue/48591. No test of
		# ours says so, and an input that fails is kept.
		if ! grep -q '^PASS' "$out/log" && { [ "$found" -gt 0 ] || ! grep -qx '    context deadline exceeded' "$out/log"; }; then
			cat "$out/log" >&2
			found=$((found > 0 ? found : 1))
		fi
		crashes=$((crashes + found))
		if [ "${FUZZKEEP:-0}" -gt 0 ] && [ -d "$corpus/$package/$target" ]; then
			mkdir -p "$package/testdata/fuzz/$target"
			find "$corpus/$package/$target" -type f -size -9 -printf '%T@ %p\n' | sort -rn | sed -n "1,${FUZZKEEP}p" |
				cut -d ' ' -f 2- | xargs -r cp -t "$package/testdata/fuzz/$target"
		fi
		last=$(grep 'execs: ' "$out/log" | tail -1 || true)
		executions=$(sed -E 's/.*execs: ([0-9]+).*/\1/' <<<"$last")
		inputs=$(sed -E 's/.*total: ([0-9]+).*/\1/' <<<"$last")
		echo "| $package | $target | $executions | $inputs | $found |"
	done
done
exit $((crashes > 0))
