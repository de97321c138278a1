#!/usr/bin/env bash
# load.sh CLUSTER IMAGE: builds the image of a program that clusters are tried with from
# its pinned Go module, for those that can't pull it, and loads it into the cluster under
# the name that the manifests have. The web pages of Prometheus are not in its module.
# PROGRAMS is where programs are kept, KIND the kind program, ARCH the nodes'
# architecture.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cluster=${1:?name of the cluster}
image=${2:?name of the image}
arch=${ARCH:-$(go env GOHOSTARCH)}
version=${image##*:}
case $image in
prom/prometheus:*)
	name=prometheus module=$here/build/prometheus package=github.com/prometheus/prometheus/cmd/prometheus
	pinned=github.com/prometheus/prometheus@v0.$(echo "${version#v}" | awk -F. '{ printf "%d%02d.%d", $1, $2, $3 }')
	flags="-X github.com/prometheus/common/version.Version=${version#v}" what="Prometheus, the server alone"
	;;
otel/opentelemetry-collector:*)
	name=otelcol module=$here/../../bench/telemetry/e2e/collector package=.
	pinned=go.opentelemetry.io/collector/otelcol@v$version flags='' what="An OpenTelemetry collector with few components"
	;;
*/kwok:*)
	name=kwok module=$here/build/kwok package=sigs.k8s.io/kwok/cmd/kwok
	pinned=sigs.k8s.io/kwok@$version flags='' what="KWOK, nodes without kubelets"
	;;
*)
	echo "load.sh: $image can't be built here" >&2
	exit 3
	;;
esac
if ! (cd "$module" && go list -m "${pinned%@*}") | grep -qF " ${pinned#*@}"; then
	echo "load.sh: $image: $module pins another release than ${pinned#*@}" >&2
	exit 2
fi
dir=${PROGRAMS:?}/$name-$version/linux-$arch
mkdir -p "$dir"
if [ ! -x "$dir/$name" ]; then
	echo "load.sh: building $image from $pinned, which takes minutes at first" >&2
	(cd "$module" && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "-s -w $flags" -o "$dir/$name.$$" "$package")
	mv "$dir/$name.$$" "$dir/$name"
fi
(cd "$here/../image" && go run . --ref "$image" --command "$name" --description "$what, built from its Go module for tests" \
	--out "$dir/$name.tar" --binary "linux/$arch=$dir/$name")
"$KIND" load image-archive "$dir/$name.tar" --name "$cluster"
