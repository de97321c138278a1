#!/usr/bin/env bash
# chromium.sh: prints the path of a Chromium for the browser tests: $CHROMIUM, one in
# $PATH, or Debian's, which it installs as root with apt-get. Without one it prints a
# warning and exits with code 0; the browser tests skip.
set -euo pipefail

if [ -n "${CHROMIUM:-}" ]; then
	command -v "$CHROMIUM" && exit 0
	echo "chromium.sh: CHROMIUM names $CHROMIUM, which is not a program" >&2
	exit 2
fi

find_chromium() {
	local name
	for name in chromium chromium-browser google-chrome google-chrome-stable; do
		if command -v "$name"; then
			return 0
		fi
	done
	return 1
}

if find_chromium; then
	exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	{
		apt-get update -qq || true
		# Fonts by name: without recommended packages, Chromium comes with none.
		apt-get install -y -qq --no-install-recommends chromium fonts-liberation
	} >&2 || true
fi
if ! find_chromium; then
	echo "#### SKIPPED: this machine has no Chromium and none could be installed; the HTML report is NOT tested in a browser ####" >&2
fi
