#!/usr/bin/env bash
# program.sh NAME [ARCH]: prints the path of a program that scripts/tools pins, and
# builds it first if bin/programs does not have this release. With ARCH the program
# is for Linux on that architecture.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
name=${1:?name of a program} arch=${2:-}
pin=$root/scripts/tools flags='-s -w' version='' build=(build -buildvcs=false) options=()
case $name in
golangci-lint) module=github.com/golangci/golangci-lint/v2 package=$module/cmd/golangci-lint ;;
cyclonedx-gomod) module=github.com/CycloneDX/cyclonedx-gomod package=$module/cmd/cyclonedx-gomod ;;
govulncheck) module=golang.org/x/vuln package=$module/cmd/govulncheck ;;
kind) module=sigs.k8s.io/kind package=$module ;;
kwok) module=sigs.k8s.io/kwok package=$module/cmd/kwok ;;
etcd) module=go.etcd.io/etcd/server/v3 package=$module ;;
prometheus) module=github.com/prometheus/prometheus package=$module/cmd/prometheus ;;
otelcol) module=go.opentelemetry.io/collector/otelcol package=./collector ;;
kubectl | kube-apiserver | kube-controller-manager | kube-scheduler)
	pin=$pin/kube module=k8s.io/kubernetes package=$module/cmd/$name
	;;
e2e.test) # Kubernetes' own tests, for scripts/kubernetes-tests.sh
	pin=$pin/kube module=k8s.io/kubernetes package=$module/test/e2e build=(test -c -vet=off)
	;;
# Controllers that bench/e2e/controllers storms.
cert-manager-controller)
	pin=$pin/certmanager module=github.com/cert-manager/cert-manager package=$module/cmd/controller
	;;
controller-runtime-builtins | controller-runtime-crd)
	pin=$root/bench/e2e module=sigs.k8s.io/controller-runtime package=$module/examples/${name#controller-runtime-}
	;;
# One minor of client-go, for bench/clientgo. The newest is that of its go.mod.
clientgo@*)
	pin=$root/bench/clientgo module=k8s.io/client-go package=./player minor=${name#*@}
	version=$(awk -v m="$module" '$1 == m { print $NF; exit }' "$pin/go.mod")
	case $minor in
	"${version:1:4}") ;;
	*) options+=(-modfile "v$minor.mod") version=$(awk -v m="$module" '$1 == m && $2 == "=>" { print $NF }' "$pin/v$minor.mod") ;;
	esac
	;;
*)
	echo "program.sh: scripts/tools does not pin $name" >&2
	exit 3
	;;
esac
version=${version:-$(awk -v m="$module" '$1 == m && $2 ~ /^v/ { print $2; exit } $2 == m { print $3; exit }' "$pin/go.mod")}
case $pin in
*/kube) # Kubernetes reports the release that the linker sets.
	IFS=. read -r major minor _ <<<"${version#v}"
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $p.gitVersion=$version -X $p.gitMajor=$major -X $p.gitMinor=$minor -X $p.gitTreeState=clean"
	done
	;;
esac
# Prometheus v0.315.0 as a module is the release 3.15.0.
if [ "$name" = prometheus ]; then
	flags+=" -X github.com/prometheus/common/version.Version=$(echo "${version#v0.}" | awk -F. '{ printf "%d.%d.%d", $1 / 100, $1 % 100, $2 }')"
fi
program=$root/bin/programs/$name-$version/$name${arch:+-linux-$arch}
# The players of client-go's minors are part of this tree: the build cache knows what changed.
if [ ! -x "$program" ] || [[ $name == clientgo@* ]]; then
	echo "program.sh: building $name $version" >&2
	mkdir -p "$(dirname "$program")"
	if [ -n "$arch" ]; then export GOOS=linux GOARCH=$arch; fi
	# The program has its name only when it is complete.
	(cd "$pin" && GOWORK=off GOFLAGS='' CGO_ENABLED=0 go "${build[@]}" -trimpath "${options[@]}" -ldflags "$flags" -o "$program.$$" "$package")
	mv "$program.$$" "$program"
fi
echo "$program"
