#!/usr/bin/env bash
# setpath.sh PATH: sets the module path of the tree, in every go.mod, import, linker
# flag and document, and formats the code. Run it once, on a clean clone, when the
# repository has a home.
set -euo pipefail
cd "$(dirname "$0")/.."
new=${1:?module path, such as example.com/owner/watchlab}
if ! [[ $new =~ ^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._~-]+)+$ ]]; then
	echo "setpath.sh: $new is not a module path with a domain" >&2
	exit 2
fi
old=$(awk '$1 == "module" { print $2 }' go.mod)
# In Go files, import paths and paths after a quote; elsewhere, words of go commands.
# A label such as watchlab.dev/run and the path of a program are not module paths.
files() { find . -path ./.git -prune -o -path ./bin -prune -o -path ./results -prune -o -type f "$@" -print0; }
top='cmd|impls|loadgen|bench|dashboards|scripts|examples'
files \( -name '*.go' -o -name '*.md' -o -name '*.sh' -o -name '*.txt' -o -name '*.yml' -o -name '*.yaml' -o -name Makefile \) |
	xargs -0 perl -pi -e 's{(?<![\w./~-])\Q'"$old"'\E/(?=(?:'"$top"')(?:[/".\s\x60)]|$))}{'"$new"'/}g'
files -name go.mod | xargs -0 perl -pi -e '
	s{^(module )\Q'"$old"'\E(?=/|$)}{$1'"$new"'};
	s{(?<![\w./~-])\Q'"$old"'\E(?= (?:v0|=>))}{'"$new"'}g'
files -name '*.go' | xargs -0 gofmt -w
echo "setpath.sh: $old is now $new"
