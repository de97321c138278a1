package pipeline

import (
	"context"
	"runtime"

	"watchlab/bench/lab"
)

// onProcs plays a workload with a GOMAXPROCS of its own. It is the process's, so
// that cells that are played at the same time can't have different ones.
type onProcs struct {
	lab.Workload
	procs, before int
}

func (w *onProcs) Setup(ctx context.Context) error {
	w.before = runtime.GOMAXPROCS(w.procs)
	return w.Workload.Setup(ctx)
}

func (w *onProcs) Teardown() error {
	defer runtime.GOMAXPROCS(w.before)
	return w.Workload.Teardown()
}
