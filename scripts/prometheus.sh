#!/usr/bin/env bash
# Installs Debian's Prometheus (prometheus and promtool) where it is missing and
# this may be done: as root, with apt-get. Its service is not started. Ends with
# exit code 0 in any case; what needs Prometheus says loudly where it isn't there.
set -uo pipefail

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "prometheus.sh: no prometheus and promtool in the PATH, and not root on a Debian: install them, or the dashboards are not tried on a real one" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# A policy that forbids it keeps the package from starting its service.
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
echo "prometheus.sh: apt-get could not install prometheus: the dashboards are not tried on a real one" >&2
