#!/usr/bin/env bash
# prometheus.sh: installs Debian's prometheus and promtool as root with apt-get, if
# they are missing, and does not start the service. It always exits with code 0; tests
# that need Prometheus skip without it.
set -uo pipefail

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "prometheus.sh: no prometheus and promtool in PATH, and not root on Debian; tests that need them skip" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# This policy keeps the package from starting its service.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
	trap 'rm -f "$policy"' EXIT
fi
for attempt in 1 2; do
	if apt-get install -y -qq --no-install-recommends prometheus >/dev/null 2>&1; then
		exit 0
	fi
	[ "$attempt" = 1 ] && apt-get update -qq >/dev/null 2>&1
done
echo "prometheus.sh: apt-get could not install prometheus; tests that need it skip" >&2
