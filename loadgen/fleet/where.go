package fleet

// where tells how far shards say they are.
func (v seen) where(shards []Shard, ref Ref) {}
