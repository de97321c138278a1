package lab

import "slices"

// againSuffix is the suffix of the variant's name in the second cell of an A/A pair.
const againSuffix = "-again"

// pair returns the second cell of an A/A pair and the name of the first. It chooses the
// first unpaced baseline, because ratios are of throughput and relative to the
// baseline; else the first baseline, else the first cell.
func pair(cells []Cell) (again Cell, of string) {
	baseline := func(c Cell) bool { return c.Baseline }
	unpaced := func(c Cell) bool {
		_, paced := rateOf(c.Labels)
		return c.Baseline && !paced
	}
	at := slices.IndexFunc(cells, unpaced)
	if at < 0 {
		at = max(slices.IndexFunc(cells, baseline), 0)
	}
	again = cells[at]
	again.Baseline = false
	again.Labels = slices.Clone(again.Labels)
	i := slices.IndexFunc(again.Labels, func(l Label) bool { return l.Key == "impl" })
	if i < 0 {
		i = len(again.Labels)
		again.Labels = append(again.Labels, Label{Key: "impl", Value: again.Name})
	}
	again.Labels[i].Value += againSuffix
	return again, cells[at].BenchName()
}
