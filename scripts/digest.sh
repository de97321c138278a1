#!/usr/bin/env bash
# digest.sh FILE DIGEST PLATFORMS COMMIT GO: adds a line with the digest of an image to the file, and prints it. It
# fails if the file has another digest of the same platforms, commit and Go version, and then changes nothing.
set -euo pipefail
file=$1 digest=$2 key="platforms=${3// /,} commit=$4 go=$5"
[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "digest.sh: no digest: '$digest'" >&2; exit 1; }
touch "$file"
before=$(awk -v key="$key" 'substr($0, index($0, " ") + 1) == key { print $1 }' "$file")
if [ -n "$before" ] && [ "$before" != "$digest" ]; then
	echo "digest.sh: $key has the digest $digest, and in $file $before" >&2
	exit 1
fi
[ -n "$before" ] || echo "$digest $key" >>"$file"
echo "$digest $key"
