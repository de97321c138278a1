package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/bench/lab"
)

// leastSamples is the number of samples in each part of a play that a judgement needs.
const leastSamples = 3

// leak: at the end, when all is quiet, a process has more memory, goroutines or open files than in the first
// quarter of the storm: twice as much, and moreMemory or moreCount besides; it has grown from each
// quarter of the storm to the next, and does not return. Without a leak, a garbage collector lets a heap grow to
// twice its live size. Memory is the least of a quarter, so that garbage
// counts little. Memory of objects that the play has added to the server is allowed, a hundred times.
// A process that was restarted, or that has too few samples, is not judged.
func leak(p *record.Play) Verdict {
	v := Verdict{Name: Leak}
	samples := slices.DeleteFunc(slices.Clone(p.Samples), func(s record.Sample) bool { return s.At < 0 })
	processes := lab.GroupBy(samples, func(s record.Sample) string { return s.Client })
	judged := 0
	added := addedObjects(p)
	for _, samples := range processes {
		client := samples[0].Client
		if slices.ContainsFunc(p.Exits, func(e record.Exit) bool { return e.Client == client && e.At < p.End }) {
			continue
		}
		parts := quarters(p, samples)
		if parts == nil {
			continue
		}
		judged++
		for _, kind := range []struct {
			name       string
			value      func(record.Sample) int64
			more, unit int64
		}{
			{"MB of memory", func(s record.Sample) int64 { return s.RSS }, moreMemory + added*bytesOfObject, 1e6},
			{"goroutines", func(s record.Sample) int64 { return int64(s.Goroutines) }, moreCount, 1},
			{"open files", func(s record.Sample) int64 { return int64(s.Files) }, moreCount, 1},
		} {
			var least [5]int64
			grows := true
			for i, part := range parts {
				least[i] = kind.value(slices.MinFunc(part, func(a, b record.Sample) int { return cmp.Compare(kind.value(a), kind.value(b)) }))
				grows = grows && (i == 0 || i == 4 || least[i] > least[i-1])
			}
			first, last := least[0], least[4]
			if grows && first > 0 && last > 2*first+kind.more && last*10 >= least[3]*9 {
				v.Failed = true
				v.show(parts[4][0].At, fmt.Sprintf("%s: %d %s in the first quarter, %d when all is quiet", client, first/kind.unit, kind.name, last/kind.unit))
			}
		}
	}
	v.Text = fmt.Sprintf("%d of %d processes judged", judged, len(processes))
	if judged == 0 {
		v.Text += ": too few samples, or a restart"
	}
	return v
}

// bytesOfObject is what a cached object may take: ten times a large pod.
const bytesOfObject = 100 << 10

// quarters returns the samples of the four quarters of the storm and those after the last change; nil for too few.
func quarters(p *record.Play, samples []record.Sample) [][]record.Sample {
	if p.Quiet == nil {
		return nil
	}
	parts := make([][]record.Sample, 5)
	quiet := max(*p.Quiet, p.Over)
	for _, s := range samples {
		switch {
		case s.At < p.Over:
			i := int(4 * s.At / max(p.Over, time.Nanosecond))
			parts[i] = append(parts[i], s)
		case s.At > quiet:
			parts[4] = append(parts[4], s)
		}
	}
	for _, part := range parts {
		if len(part) < leastSamples {
			return nil
		}
	}
	return parts
}

// addedObjects is the number of objects that the play has added to the server.
func addedObjects(p *record.Play) (n int64) {
	for c := range record.Each(p.Changes) {
		if c.At < 0 {
			continue
		}
		switch c.Type {
		case "ADDED":
			n++
		case "DELETED":
			n--
		}
	}
	return max(n, 0)
}
