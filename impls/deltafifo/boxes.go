package deltafifo

import "k8s.io/client-go/tools/cache"

// maxBox is the length from which on a box is made for each hand-over.
const maxBox = 17

// boxes are hand-overs of lent memory as process gets them, by length, so that
// making one does not allocate. They belong to who has the memory.
type boxes [maxBox]any

// box makes of a hand-over what process gets; lend is true where its memory is
// lent.
func (b *boxes) box(deltas []cache.Delta, lend bool) any {
	if !lend || len(deltas) >= maxBox {
		return cache.Deltas(deltas)
	}
	at := &b[len(deltas)]
	// Lent memory grows, seldom.
	if have, ok := (*at).(cache.Deltas); !ok || &have[0] != &deltas[0] {
		*at = cache.Deltas(deltas)
	}
	return *at
}
