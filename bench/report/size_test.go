package report_test

import (
	"bytes"
	"strings"
	"testing"

	"watchlab/bench/controller"
	"watchlab/bench/internal/golden"
	"watchlab/bench/report"
	"watchlab/bench/stats"
)

// sized is a program that takes 10 MiB, 20 KiB for a pod and 4 KiB for a configmap, which it never uses.
func sized() *controller.Sized {
	o := &controller.Sized{
		Resources: []string{"configmaps", "pods"}, AtCounts: map[string]int{"configmaps": 5000, "pods": 100_000},
		Laws: map[string][]stats.Estimate{}, At: map[string]stats.Estimate{},
		Watches: []controller.Watched{
			{Resource: "configmaps", Encoding: "json", Sent: 4 << 20, Body: 0.5, Managed: 0.25},
			{Resource: "nodes", Scope: "", Selector: "a=b", Encoding: "protobuf", Metadata: true, Sent: 1000},
			{Resource: "pods", Scope: "default", Encoding: "protobuf", Sent: 8 << 20, Used: true, Body: 0.75, Managed: 0.25},
		},
	}
	around := func(v float64) stats.Estimate { return stats.Estimate{Value: v, Lo: 0.9 * v, Hi: 1.1 * v} }
	for i, unit := range controller.SizeUnits {
		share := 1 / float64(i+1)
		law := []float64{10 << 20 * share, 4 << 10 * share, 20 << 10 * share}
		o.Laws[unit] = []stats.Estimate{around(law[0]), around(law[1]), around(law[2])}
		o.At[unit] = around(law[0] + 5000*law[1] + 100_000*law[2])
	}
	for _, counts := range []map[string]int{{"configmaps": 1000, "pods": 1000}, {"configmaps": 1000, "pods": 9000}, {"configmaps": 9000, "pods": 1000}} {
		peak := 10<<20 + float64(counts["configmaps"])*4096 + float64(counts["pods"])*20480
		o.Points = append(o.Points, controller.Point{Round: 1, Counts: counts, Figures: map[string]float64{controller.UnitPeak: peak}, Busy: counts["pods"] == 9000})
	}
	return o
}

func TestSize(t *testing.T) {
	var text, page bytes.Buffer
	if err := report.SizeText(&text, sized()); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "size.txt", text.String())
	if err := report.SizeChart(&page, sized()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "data-tip"); n != 4 { // Each resource has two numbers, the others at their least.
		t.Errorf("%d figures", n)
	}
	text.Reset()
	if err := report.SizeText(&text, &controller.Sized{Points: make([]controller.Point, 1)}); err != nil || !strings.HasPrefix(text.String(), "No answer: 1 point measured") {
		t.Errorf("%v: %s", err, &text)
	}
}
