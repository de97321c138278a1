package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/lab"
)

// TestStoreFlags: a store or a workqueue that cannot be played is refused in one line, which names the
// flag and the allowed values.
func TestStoreFlags(t *testing.T) {
	informer := with(small, "--impl", "ring", "--pipeline", "informer")
	for want, args := range map[string][]string{
		"--store: needs --pipeline informer":                          with(small, "--store", "clientgo"),
		"--workqueue: needs --pipeline informer":                      with(small, "--workqueue", "clientgo"),
		`--store: store: unknown variant "nobody" (have clientgo`:     with(informer, "--store", "nobody"),
		`--workqueue: workqueue: unknown variant "no" (have clientgo`: with(informer, "--workqueue", "no"),
		"--family: stores are chosen by --store; alone":               with(small, "--family", "store"),
		"--family: workqueues are chosen by --workqueue; alone":       with(small, "--family", "workqueue"),
	} {
		code, out, errs := call(t, args...)
		if code != exitUsage || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want 2, nothing, one line with %q", args, code, out, errs, want)
		}
	}
}

// TestStoreNames: the store and the workqueue are parts of a cell's name once they are given, but not
// of client-go's own informer, which is still the baseline.
func TestStoreNames(t *testing.T) {
	for want, flags := range map[string][]string{
		"/rate=max":                nil,
		"/store=clientgo/rate=max": {"--store", "clientgo"},
		"/store=clientgo/workqueue=clientgo/rate=max": {"--workqueue", "clientgo", "--store", "clientgo"},
	} {
		args := with(with(small, "--impl", "clientgo-informer,ring", "--pipeline", "informer"), flags...)
		code, out, errs := call(t, with(args, "-o", "bench")...)
		const rest = "/delivery=in-order/pipeline=informer/source=memory/storm=tiny"
		if code != exitOK || !strings.Contains(out, "/impl=ring"+rest+want) || !strings.Contains(out, "/impl=clientgo-informer"+rest+"/rate=max") {
			t.Errorf("%q: exit code %d, stderr %q, no %s in %q", flags, code, errs, want, out)
		}
		if code, out, _ = call(t, with(args, "-o", "table")...); code != exitOK || !regexp.MustCompile(`(?m)^ *ring .*×`).MatchString(out) {
			t.Errorf("%q: exit code %d, %s", flags, code, out)
		}
	}
}

// TestStoreScale: a scale compares workqueues; client-go's own informer is played once.
func TestStoreScale(t *testing.T) {
	args := append([]string{"scale", "--impl", "clientgo-informer,ring", "--pipeline", "informer", "--over", "workqueue=clientgo,ring"}, small[1:]...)
	o, _ := sweepRun(t, args...)
	if cells := o.Comparisons[0].Cells; !slices.ContainsFunc(cells, func(c lab.CellResult) bool { return c.Label("workqueue") == "ring" && len(c.Rounds) > 0 }) {
		t.Errorf("%+v", cells)
	}
	for i := range o.Comparisons[0].Cells {
		if cl := &o.Comparisons[0].Cells[i]; !cl.Baseline && cl.Repeats == "" && o.Comparisons[0].Against(cl) == nil {
			t.Errorf("%s has no baseline", cl.BenchName())
		}
	}
}
