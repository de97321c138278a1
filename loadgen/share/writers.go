package share

import (
	"fmt"
	"hash/fnv"
	"strings"

	"watchlab/loadgen/source/cluster"
)

// WriterRun names what a writer makes in the cluster: it is the value of
// [cluster.RunLabel] on each of its objects and namespaces, and a part of the latter's
// names. It begins like the run, but is never its name, so that the pods of the run
// are not taken for the storm's.
func WriterRun(run string, index int) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(run)) // It never fails.
	return fmt.Sprintf("%s-%08x-%d", strings.TrimRight(run[:min(len(run), 6)], "-"), h.Sum32(), index)
}

// WrittenBy selects, by their labels, the objects that the plan's writers make.
func (p Plan) WrittenBy() string {
	names := make([]string, p.Writers)
	for i := range names {
		names[i] = WriterRun(p.Run, i)
	}
	return cluster.RunLabel + " in (" + strings.Join(names, ",") + ")"
}
