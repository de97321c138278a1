package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/impls"
)

// class returns the guarantees that two variants must share for a ratio between them:
// order, coalescing, trust, and lists of a point in time. Reports show the others beside the figures.
func class(g impls.Guarantees) string {
	c := fmt.Sprintf("order %s, coalesces %s", g.Order, g.Coalesces)
	if g.Trusts != "" {
		c += ", trusts " + g.Trusts
	}
	if g.Lists == impls.PerObject {
		c += ", lists " + string(g.Lists)
	}
	return c
}

// digests returns the digest of the played input and, for a share of a storm, the digest
// that all shares have in common.
func (m *material) digests() (input, whole string) {
	all := m.digest()
	if m.Share.Whole() {
		return all, ""
	}
	own := sha256.Sum256([]byte(all + " share " + m.Share.String()))
	return hex.EncodeToString(own[:]), all
}

// digest identifies the input of all shares. Comparisons with equal digests play the same events,
// at the same intended times, in the same way. It covers key, type, number, time and size of the
// events. It leaves out what a cell's labels have: variant, knobs, pace. O(events).
func (m *material) digest() string {
	h := sha256.New()
	text := func(format string, args ...any) { fmt.Fprintf(h, format+"\n", args...) }
	text("%s %s %s", m.Family, m.Pipeline, m.Source)
	text("seed %d, events %d (exactly: %v), duration %v, budget %v", m.Seed, m.Events, m.exact, m.Duration, m.Budget)
	if !m.Share.Whole() {
		text("shares %d", m.Share.Count)
	}
	if m.fresh() {
		text("objects %s", ObjectsFresh)
	}
	text("producers %d, static %d, faults %v", m.Producers, m.Static, m.Faults)
	s := m.Storm
	text("%s %s initial %d, keys %d, marks %v", s.Resource, s.Kind, s.Initial, s.Keys, s.Marks)
	var line []byte
	for i := range s.Events {
		e := &s.Events[i]
		line = append(line[:0], e.Type...)
		line = append(line, ' ')
		line = append(line, e.Key...)
		line = binary.BigEndian.AppendUint64(line, e.Seq)
		line = binary.BigEndian.AppendUint64(line, uint64(e.At))
		line = binary.BigEndian.AppendUint64(line, uint64(size(e.Object)))
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// size returns an object's size as protobuf if its type supports that, else as JSON; 0
// if neither works.
func size(o runtime.Object) int {
	if p, ok := o.(interface{ Size() int }); ok {
		return p.Size()
	}
	text, _ := json.Marshal(o)
	return len(text)
}
