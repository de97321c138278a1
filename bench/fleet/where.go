package fleet

import "watchlab/bench/fleet/barrier"

// where tells how far shards say they are: what their Leases have.
func (v seen) where(shards []Shard) {
	for _, l := range v.leases {
		p, ok := barrier.Read(l)
		if !ok || p.Index < 0 || p.Index >= len(shards) || shards[p.Index].Writer != p.Writer {
			continue
		}
		shards[p.Index].Where = p.String()
	}
}
