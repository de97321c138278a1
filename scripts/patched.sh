#!/usr/bin/env bash
# patched.sh: builds watchlab with client-go under docs/found/realfifo-popbatch.patch and prints its
# path. Its baseline clientgo-realfifo-batch has the name clientgo-realfifo-patched. The patched
# module is in bin/patched/client-go.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
to=$root/bin/patched
cd "$root"
rm -rf "$to" && mkdir -p "$to"
cp -r "$(go list -m -f '{{.Dir}}' k8s.io/client-go)" "$to/client-go" && chmod -R u+w "$to/client-go"
patch -s -d "$to/client-go" -p1 <docs/found/realfifo-popbatch.patch
cp go.mod go.sum "$to"
go mod edit -replace "k8s.io/client-go=$to/client-go" "$to/go.mod"
sed 's/"clientgo-realfifo-batch"/"clientgo-realfifo-patched"/' impls/deltafifo/clientgo.go >"$to/clientgo.go"
printf '{"Replace": {"%s": "%s"}}' "$root/impls/deltafifo/clientgo.go" "$to/clientgo.go" >"$to/overlay.json"
go build -modfile="$to/go.mod" -overlay="$to/overlay.json" -o "$to/watchlab" ./cmd/watchlab
echo "$to/watchlab"
