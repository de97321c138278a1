module watchlab/bench/telemetry/e2e

go 1.26.0

require (
	github.com/google/pprof v0.0.0-20260115054156-294ebfa9ad83
	go.uber.org/goleak v1.3.0
)
