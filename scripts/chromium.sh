#!/usr/bin/env bash
# Sees to it that there is a Chromium for the browser tests: one that is there
# already (CHROMIUM, or on the PATH), else Debian's, where this is root and has
# apt-get. Otherwise it says so, loudly, and the tests are skipped: they must not
# keep anybody from the others. Prints the program's path, or nothing.
set -euo pipefail

if [ -n "${CHROMIUM:-}" ]; then
	command -v "$CHROMIUM" && exit 0
	echo "chromium.sh: CHROMIUM names $CHROMIUM, which is no program" >&2
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
	echo "#### SKIPPED: no Chromium here and none could be installed; the HTML report is NOT tested in a browser ####" >&2
fi
