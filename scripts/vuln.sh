#!/usr/bin/env bash
# vuln.sh [--canary] BINARY: looks for known vulnerabilities in what a binary contains, with govulncheck and the
# Go vulnerability database or the one that GOVULNDB names (https://… or file:///FOLDER). Exit code 3:
# it found some. Without a database it says that nothing was checked and succeeds, since a network
# without one is no fault of the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
canary=''
if [ "${1:-}" = --canary ]; then
	canary=GO-2026-9999 GOVULNDB=file://$PWD/scripts/tools/testdata/vulndb
	shift
fi
binary=${1:?path of a binary} db=${GOVULNDB:-https://vuln.go.dev}
program=$(scripts/program.sh govulncheck)
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
code=0
if [ -n "$canary" ]; then
	grep -q "$canary" < <("$program" -db "$db" -mode binary "$binary") && exit 0
	echo "vuln.sh: govulncheck does not find the made-up $canary" >&2
	exit 1
fi
"$program" -db "$db" -mode binary "$binary" 2>"$errors" || code=$?
cat "$errors" >&2
if [ "$code" = 1 ] && grep -qE 'no such host|connection refused|i/o timeout|Forbidden|unreachable' "$errors"; then
	echo "vuln.sh: $db cannot be reached: $binary was NOT checked for vulnerabilities" >&2
	exit 0
fi
exit "$code"
