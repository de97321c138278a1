package lab

import "slices"

// againSuffix is what the second cell of an A/A pair has at the end of its
// variant's name.
const againSuffix = "-again"

// pair returns a second instance of the cell that an A/A pair is made of: the
// first baseline that is played as fast as it goes, as ratios are of throughput
// and against it; else the first baseline, else the first cell. It also returns
// the name of the cell that it repeats.
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
