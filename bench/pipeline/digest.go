package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"

	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/impls"
	"watchlab/loadgen/storm"
)

// class says what decides whether ratios may be taken between two variants: in
// which order they hand over, what they may fold, and what they take on somebody's
// word. The rest of the guarantees stands beside the figures.
func class(g impls.Guarantees) string {
	c := fmt.Sprintf("order %s, coalesces %s", g.Order, g.Coalesces)
	if g.Trusts != "" {
		c += ", trusts " + g.Trusts
	}
	return c
}

// digests returns the digest of what is played, and for a share of a storm that of
// what all shares together play.
func digests(s *Config, m *material) (input, whole string) {
	all := digest(s, m)
	if m.share.Whole() {
		return all, ""
	}
	own := sha256.Sum256([]byte(all + " share " + m.share.String()))
	return hex.EncodeToString(own[:]), all
}

// digest names what is played by all shares: two comparisons that have the same play the same
// events, at the same intended times, in the same way. What the labels of a cell
// tell (the variant, its knobs, the pace) is not in it, and of the objects only
// what tells them apart and how large they are. O(events).
func digest(s *Config, m *material) string {
	h := sha256.New()
	text := func(format string, args ...any) { fmt.Fprintf(h, format+"\n", args...) }
	text("%s %s %s", s.Family, s.Pipeline, s.Source)
	text("seed %d, events %d (exactly: %v), duration %v, budget %v", m.seed, m.events, m.exact, m.duration, m.budget)
	if !m.share.Whole() {
		text("shares %d", m.share.Of)
	}
	text("producers %d, static %d, faults %v", m.producers, m.static, m.faults)
	digestStorm(h, m.base)
	return hex.EncodeToString(h.Sum(nil))
}

func digestStorm(h hash.Hash, s *storm.Storm) {
	fmt.Fprintf(h, "%s %s initial %d, keys %d, marks %v\n", s.Resource, s.Kind, s.Initial, s.Keys, s.Marks)
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
}

// size is how many bytes an object takes on the wire: as protobuf where its type
// has that, else as JSON; 0 where it has neither.
func size(o runtime.Object) int {
	if p, ok := o.(interface{ Size() int }); ok {
		return p.Size()
	}
	text, err := json.Marshal(o)
	if err != nil {
		return 0
	}
	return len(text)
}
