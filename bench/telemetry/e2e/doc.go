// Package e2e runs the command against real receivers of telemetry: an
// OpenTelemetry collector built from its modules, Debian's Prometheus, and one that
// decodes what is pushed to Pyroscope, whose server can't be had as a module; and
// against servers that are down, slow or answer garbage.
//
//	cd bench/telemetry/e2e && go test .   # or make e2e
//
// The collector takes a minute and a half to build when nothing is in the build
// cache, and is kept in $WATCHLAB_PROGRAMS, or else in the user's cache folder.
// Tests that need Prometheus are skipped, and say so, where it isn't installed
// (scripts/prometheus.sh installs it).
package e2e
