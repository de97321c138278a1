package trace

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

func podFrame(at time.Duration, t watch.EventType, name string) Frame {
	return Frame{Offset: at, Type: t, Resource: podResource, Object: fmt.Appendf(nil, `{"metadata":{"namespace":"ns","name":%q}}`, name)}
}

func TestStats(t *testing.T) {
	m := &Summary{Name: "x"}
	for _, f := range []Frame{
		podFrame(0, watch.Added, "a"), podFrame(0, watch.Added, "b"),
		{Type: watch.Bookmark, Resource: podResource, Object: []byte(`{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}`)},
		podFrame(time.Second, watch.Modified, "a"), podFrame(3*time.Second, watch.Modified, "a"), podFrame(3*time.Second, watch.Added, "c"),
		{Offset: 4 * time.Second, Resource: podResource, Break: &Break{Reason: Relisted}},
		podFrame(5*time.Second, watch.Deleted, "a"),
	} {
		noError(t, m.add(f))
	}
	r := m.Resources[0]
	r.finish()
	got := fmt.Sprintf("%d initial, %d+%d+%d in %g s, %g/s, peak %d at %d; %d keys, %d of one, %.2f", r.Initial, r.Added, r.Modified, r.Deleted, r.Seconds, r.PerSecond, r.Peak, r.PeakAt, r.Keys, r.MostOfOne, r.TopTenth)
	if want := "2 initial, 1+2+1 in 4 s, 1/s, peak 2 at 3; 2 keys, 3 of one, 0.75"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var table bytes.Buffer
	if err := m.Print(&table); err != nil || !strings.Contains(table.String(), "v1/pods") {
		t.Errorf("%v:\n%s", err, table.String())
	}
	if fmt.Sprint(r.Rate) != "[0 1 0 2 0 1]" {
		t.Errorf("rate %v", r.Rate)
	}
}
