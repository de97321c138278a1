package fleet

import (
	"fmt"
	"strconv"

	"watchlab/bench/fleet/delivery"
)

// delivered tells of which shards a result is there whole: all parts of one parcel.
func (v seen) delivered(shards []Shard) {
	parts := map[string]map[int]bool{}
	for _, m := range v.maps {
		shard, err := strconv.Atoi(m.Labels[delivery.ShardLabel])
		if err != nil || shard < 0 || shard >= len(shards) {
			continue
		}
		var part, of int
		if _, err := fmt.Sscanf(m.Annotations[delivery.PartAnnotation], "%d/%d", &part, &of); err != nil {
			continue
		}
		parcel := strconv.Itoa(shard) + " " + m.Annotations[delivery.ParcelAnnotation]
		if parts[parcel] == nil {
			parts[parcel] = map[int]bool{}
		}
		parts[parcel][part] = true
		if len(parts[parcel]) == of {
			shards[shard].Delivered = true
		}
	}
}
