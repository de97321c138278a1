#!/usr/bin/env bash
# reproducible.sh [PLATFORMS]: builds the image of the last commit in two folders, the second time with
# an empty build cache, and compares archives and SBOMs byte by byte. It prints the digest with commit
# and Go version, and keeps them in bin/image-digest.txt: a later build of the same must have the same digest.
set -euo pipefail
cd "$(dirname "$0")/.."
platforms=${1:-amd64} out=$(mktemp -d)
trap 'rm -rf "$out"; git worktree prune' EXIT
image() { # image NAME
	git worktree add --quiet --detach "$out/$1/tree"
	make --no-print-directory -C "$out/$1/tree" image PLATFORMS="$platforms" >"$out/$1/log"
	tail -n 1 "$out/$1/log" | sed 's/.*@//' >"$out/$1/digest"
}
image a
GOCACHE=$out/cache image b
for f in digest tree/bin/watchlab.tar tree/bin/linux-"${platforms%% *}"/watchlab.cdx.json; do
	cmp "$out/a/$f" "$out/b/$f"
done
mkdir -p bin
scripts/digest.sh bin/image-digest.txt "$(cat "$out/a/digest")" "$platforms" "$(git -C "$out/a/tree" rev-parse HEAD)" "$("${GO:-go}" env GOVERSION)"
