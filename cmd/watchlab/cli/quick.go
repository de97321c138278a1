package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

const (
	// quickDuration is the schedule of a paced round of the quick study.
	quickDuration = 300 * time.Millisecond
	// quickRounds is the fewest from which a difference can be told from chance.
	quickRounds = 4
)

// quickStudy is one line of the quick study.
type quickStudy struct {
	family   impls.Family
	pipeline string
	source   string
	storm    string

	rate pace.Rate
}

// quickStudies is what the quick study plays: every family alone and in its
// pipelines, end to end, from memory and over HTTP.
var quickStudies = []quickStudy{
	{impls.DeltaFIFO, pipeline.QueuePipeline, source.MemoryName, "recorded-gang", 100_000},
	{impls.DeltaFIFO, pipeline.InformerPipeline, source.MemoryName, "recorded-nodeloss", 10_000},
	{impls.DeltaFIFO, pipeline.InformerPipeline, source.APIServerName, "recorded-nodeloss", 1_000},
	{impls.Queue, pipeline.QueuePipeline, source.MemoryName, "recorded-gang", 100_000},
	{impls.Merge, pipeline.QueuePipeline, source.MemoryName, "recorded-gang", 1_000},
	{impls.Merge, pipeline.KubeletPipeline, source.MemoryName, "recorded-nodeloss", 400},
	{impls.Merge, pipeline.KubeletPipeline, source.APIServerName, "recorded-nodeloss", 400},
}

// quick fills the plan with the quick study: one table a family.
func (p *plan) quick() error {
	p.name = "quick"
	p.defaultRounds(quickRounds)
	tables := map[impls.Family]int{}
	storms := map[string]*storm.Storm{}
	for _, s := range quickStudies {
		if storms[s.storm] == nil {
			var err error
			if storms[s.storm], err = trace.Load(s.storm); err != nil {
				return err
			}
		}
		comparisons, err := compare(pipeline.Config{
			Family: s.family, Pipeline: s.pipeline, Source: s.source, Storm: storms[s.storm],
			Paces: []pace.Pace{{}, s.rate.Pace()}, Duration: quickDuration,
		})
		if err != nil {
			return err
		}
		for _, c := range comparisons {
			at, ok := tables[s.family]
			if !ok {
				at = len(p.comparisons)
				tables[s.family] = at
				p.comparisons = append(p.comparisons, lab.Comparison{
					Family: c.Family, Title: "every variant, alone and in its pipelines, on recorded watch streams",
				})
			}
			p.comparisons[at].Cells = append(p.comparisons[at].Cells, c.Cells...)
			p.comparisons[at].Input = digestOf(p.comparisons[at].Input, c.Input)
		}
	}
	if p.dir == "" {
		p.dir = freeFolder("results", today(), build(), p.name)
	}
	return nil
}

// digestOf puts the digest of what is played in the part of a comparison to that of
// the parts before it.
func digestOf(before, part string) string {
	sum := sha256.Sum256([]byte(before + part))
	return hex.EncodeToString(sum[:])
}

// freeFolder names a results folder that doesn't exist yet: the second run of
// a day at one commit gets a -2.
func freeFolder(root, date string, b lab.Build, name string) string {
	dir := filepath.Join(root, fmt.Sprintf("%s-%s-%s", date, b.Revision(), name))
	for n, free := 2, dir; ; n++ {
		if _, err := os.Lstat(free); err != nil {
			return free
		}
		free = fmt.Sprintf("%s-%d", dir, n)
	}
}
