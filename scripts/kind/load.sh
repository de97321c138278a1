#!/usr/bin/env bash
# load.sh CLUSTER IMAGE: for clusters that cannot pull, builds the image of a program
# that scripts/tools pins and loads it into the cluster under the name that the
# manifests have. KIND is the kind program, ARCH the architecture of the nodes. The
# module of Prometheus has no web pages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cluster=${1:?name of the cluster}
image=${2:?name of the image}
arch=${ARCH:-$(go env GOHOSTARCH)}
version=${image##*:}
case $image in
prom/prometheus:*) name=prometheus what="Prometheus, the server alone" pinned=$(echo "${version#v}" | awk -F. '{ printf "v0.%d%02d.%d", $1, $2, $3 }') ;;
otel/opentelemetry-collector:*) name=otelcol what="An OpenTelemetry collector with few components" pinned=v$version ;;
*/kwok:*) name=kwok what="KWOK, nodes without kubelets" pinned=$version ;;
*)
	echo "load.sh: $image cannot be built here" >&2
	exit 3
	;;
esac
program=$("$here/../program.sh" "$name" "$arch")
dir=$(dirname "$program")
if [ "$(basename "$dir")" != "$name-$pinned" ]; then
	echo "load.sh: $image: scripts/tools pins $(basename "$dir") instead of $pinned" >&2
	exit 2
fi
(cd "$here/../tools" && go run ./image --ref "$image" --command "$name" --description "$what, built from its Go module for tests" \
	--out "$program.tar" --binary "linux/$arch=$program")
"$KIND" load image-archive "$program.tar" --name "$cluster"
