package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
	"watchlab/loadgen/source"
)

// Compare returns a comparison for each delivery of deltafifo, or one for another
// family, with a cell for each variant and pace.
//
// Ratios are against clientgo-realfifo-batch (in-order), clientgo-deltafifo
// (per-key), clientgo-fifo (queue) and reference (merge), and in the informer pipeline
// against [ClientGoInformer] (in-order), if Impls does not leave it out.
//
// The error wraps [ErrConfig], [impls.ErrUnknownVariant] or the storm's. A storm that can't be
// repeated needs min(1000, Events) events after its initial list, and at least 100.
func Compare(config Config) ([]lab.Comparison, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	m := &preparedStorm{Config: config, exact: config.Events > 0}
	if !m.exact {
		m.Events = config.defaultEvents() * max(1, config.Share.Count)
	}
	if err := m.enough(); err != nil {
		return nil, err
	}
	var c familyComparison
	var err error
	switch config.Family {
	case impls.DeltaFIFO:
		c, err = m.deltaComparison()
	case impls.Queue:
		c = m.queueComparison()
	case impls.Merge:
		c = m.mergeComparison()
	}
	if err != nil {
		return nil, err
	}
	comparisons, err := m.compare(c)
	if err != nil {
		return nil, err
	}
	input := m.digest()
	for i := range comparisons {
		comparisons[i].Input = input
	}
	return comparisons, nil
}

// title describes a comparison, without its variants and what their labels say.
func (s *Config) title(what string) string {
	t := fmt.Sprintf("%s pipeline, storm %s", s.Pipeline, s.Storm.Name)
	if what != "" {
		t = what + ", " + t
	}
	if s.Static > 0 {
		t += fmt.Sprintf(", file and http with %d pods each", s.Static)
	}
	for _, f := range s.Faults {
		t += ", fault " + f.String()
	}
	return t
}

func (m *preparedStorm) cells(benchmark, baseline, variant string, set setting, k Knobs) (cells []lab.Cell) {
	labels := m.labels(variant, set.Guarantees, k)
	text, class := m.promises(variant, set.Guarantees)
	for _, rate := range m.Paces {
		cells = append(cells, lab.Cell{
			Name:       benchmark,
			Labels:     append(slices.Clone(labels), lab.Label{Key: "rate", Value: rate.String()}),
			Guarantees: text,
			Class:      class,
			Baseline:   variant == baseline,
			New: func() (lab.Workload, error) {
				return &workload{name: variant, stages: set.stages(), round: round{guarantees: set.Guarantees, prepared: m, rate: rate, stall: m.stall(rate)}}, nil
			},
		})
	}
	return cells
}

// promises returns the guarantees and the class of a variant's cells, with those of the chosen store and
// workqueue.
func (s *Config) promises(variant string, g impls.Guarantees) (text, kind string) {
	if s.Store == "" && s.Workqueue == "" {
		return g.String(), class(g)
	}
	stored, worked := s.stagesOf(variant)
	of, _ := store.Lookup(cmp.Or(stored, informer.DefaultStore)) // experiment.Spec.Validate has checked the names
	queue, _ := workqueue.Lookup(cmp.Or(worked, defaultWorkqueue))
	g.Lists = of.Guarantees[0].Lists
	text, kind = g.String(), class(g)
	if by := queue.Guarantees[0].Order; by != impls.OrderPerKey {
		order := ", workqueue order " + string(by)
		text, kind = text+order, kind+order
	}
	return text, kind
}

// class returns the guarantees that two variants must share for a ratio between them:
// order, coalescing, and lists of a point in time. Reports show the others beside the figures.
func class(g impls.Guarantees) string {
	c := fmt.Sprintf("order %s, coalesces %s", g.Order, g.Coalesces)
	if g.Lists != "" && g.Lists != impls.PointInTime {
		c += ", lists " + string(g.Lists)
	}
	return c
}

// labels returns the labels of a variant's cells, without the rate. It leaves out zero values.
func (s *Config) labels(variant string, g impls.Guarantees, k Knobs) (labels []lab.Label) {
	producers, consumer := 0, ""
	if s.Pipeline == QueuePipeline && s.Family != impls.Merge {
		producers = s.Producers
	}
	if s.Stalled {
		consumer = "stalled"
	}
	compression := ""
	if s.Source == source.APIServerName {
		compression = cmp.Or(s.Wire.Compression, source.Gzip)
		if stackOf(variant).inflate == source.Uncompressed {
			compression = source.Uncompressed
		}
	}
	store, queue := s.stagesOf(variant)
	throttle := impls.Throttling("")
	if k.Throttle != "" {
		throttle = g.Throttles // also of a variant that has no choice
	}
	for _, l := range []struct {
		key   string
		value any
	}{
		{"impl", variant}, {"delivery", g.Mode}, {"pipeline", s.Pipeline}, {"source", s.Source},
		{"storm", labelValue(s.Storm.Name)}, {"producers", producers},
		{"capacity", k.Capacity}, {"batch", k.BatchSize}, {"shards", k.Shards},
		{"throttle", throttle}, {"handover", k.HandOver},
		{"consumer", consumer}, {"readers", s.Readers},
		{"handler", s.HandlerCost}, {"procs", s.Procs}, {"stamps", s.Stamps},
		{"encoding", s.Wire.Encoding}, {"decode", s.Wire.Decode}, {"initial-list", s.Wire.InitialList},
		{"compression", compression},
		{"store", store}, {"workqueue", queue},
	} {
		if !reflect.ValueOf(l.value).IsZero() {
			labels = append(labels, lab.Label{Key: l.key, Value: fmt.Sprint(l.value)})
		}
	}
	return labels
}

// familyComparison describes how the variants of a family are compared.
type familyComparison struct {
	benchmark string // name of the benchmark
	modes     []mode // one mode with the empty name for a family without modes
	variants  []variant
}

// mode is a mode with the title and the baseline of its comparison.
type mode struct{ name, title, baseline string }

// variant is a variant of any family.
type variant struct {
	name       string
	guarantees []impls.Guarantees
	set        func(impls.Guarantees, Knobs) setting
}

// setting is a variant in one mode, with options.
type setting struct {
	impls.Guarantees // as the options change them
	build            func() (closer, error)
	stages           func() stages
}

type closer interface{ Close() }

// compare returns a comparison for each mode. It leaves out a mode in which no variant
// takes the knobs.
func (m *preparedStorm) compare(c familyComparison) (out []lab.Comparison, err error) {
	variants, err := m.chosen(c.variants)
	if err != nil {
		return nil, err
	}
	used := make(map[string]bool)
	var refusal error // of the last variant that did not take the knobs
	for _, in := range c.modes {
		if len(m.Modes) > 0 && !slices.Contains(m.Modes, in.name) {
			continue
		}
		comparison := lab.Comparison{Family: string(m.Family), Title: m.title(in.title)}
		taken := m.Knobs.none()
		for _, v := range variants {
			at := slices.IndexFunc(v.guarantees, func(g impls.Guarantees) bool { return in.name == "" || g.Mode == in.name })
			if at < 0 {
				continue
			}
			used[v.name] = true
			k := m.Knobs
			set := v.set(v.guarantees[at], k)
			if !k.none() {
				switch instance, err := set.build(); {
				case errors.Is(err, impls.ErrOptions):
					refusal, k = fmt.Errorf("%s: %w", v.name, err), Knobs{Throttle: k.Throttle}
					set = v.set(v.guarantees[at], k)
				case err != nil:
					return nil, err
				default:
					instance.Close()
					taken = true
				}
			}
			comparison.Cells = append(comparison.Cells, m.cells(c.benchmark, in.baseline, v.name, set, k)...)
		}
		if len(comparison.Cells) > 0 && taken {
			out = append(out, comparison)
		}
	}
	if len(out) == 0 && refusal != nil {
		return nil, refuse("no variant takes these options: %w", refusal)
	}
	for _, v := range variants {
		if !used[v.name] && len(m.Impls) > 0 {
			has := join(v.guarantees, func(g impls.Guarantees) string { return g.Mode })
			return nil, refuse("variant %s has no delivery among %q (it has: %s)", v.name, m.Modes, has)
		}
	}
	return out, nil
}

// chosen returns the variants named by Impls, or all of them.
func (s *Config) chosen(all []variant) (out []variant, err error) {
	if len(s.Impls) == 0 {
		return all, nil
	}
	for i, name := range s.Impls {
		at := slices.IndexFunc(all, func(v variant) bool { return v.name == name })
		switch {
		case at < 0:
			have := join(all, func(v variant) string { return v.name })
			return nil, fmt.Errorf("%s: %w %q (have %s)", s.Family, impls.ErrUnknownVariant, name, have)
		case slices.Contains(s.Impls[:i], name):
			return nil, refuse("variant %s is named twice", name)
		}
		out = append(out, all[at])
	}
	return out, nil
}

func (m *preparedStorm) deltaStages(v string, opts deltafifo.Options) stages {
	if m.Pipeline == InformerPipeline {
		of := stackOf(v)
		f := &informerStages{variant: of.informer, inflate: of.inflate, decoder: of.decoderOf(m.Wire.Encoding), opts: opts}
		f.store, f.workqueue = m.stagesOf(v)
		return f
	}
	return &fifo{build: func() (consumable, error) { return deltafifo.New(v, opts) }}
}

// The baselines of the deliveries.
const (
	inOrderBaseline = "clientgo-realfifo-batch"
	perKeyBaseline  = "clientgo-deltafifo"
)

// deltaComparison returns the comparison of deltafifo. The informer pipeline adds client-go's
// own informer, with the guarantees of its queue. On a storm with resyncs it does not, as
// that informer has no call for them.
func (m *preparedStorm) deltaComparison() (familyComparison, error) {
	c, all, baseline := familyComparison{benchmark: "DeltaFIFO"}, deltafifo.Variants(), inOrderBaseline
	if m.Pipeline == InformerPipeline {
		c.benchmark = "Informer"
		upstream, err := deltafifo.Lookup(inOrderBaseline)
		upstream.Name = ClientGoInformer
		named := slices.ContainsFunc(m.Impls, func(v string) bool { return stackOf(v).informer == ClientGoInformer })
		switch resyncs := slices.ContainsFunc(m.Storm.Marks, isResync); {
		case err != nil:
			return c, err
		case resyncs && named:
			return c, refuse("variant %s on storm %s, whose resyncs it has no call for", ClientGoInformer, m.Storm.Name)
		case !resyncs && (named || len(m.Impls) == 0):
			all, baseline = append([]deltafifo.Variant{upstream}, all...), ClientGoInformer
		}
		for _, of := range stacks {
			at := slices.IndexFunc(all, func(v deltafifo.Variant) bool { return v.Name == of.informer })
			if at >= 0 && slices.Contains(m.Impls, of.name) {
				v := all[at]
				v.Name, baseline = of.name, stacks[0].name
				all = append(all, v)
			}
		}
	}
	c.modes = []mode{
		{string(deltafifo.InOrder), "in-order delivery", baseline},
		{string(deltafifo.PerKey), "per-key delivery", perKeyBaseline},
	}
	for _, v := range all {
		c.variants = append(c.variants, variant{v.Name, v.Guarantees, func(g impls.Guarantees, k Knobs) setting {
			opts := deltafifo.Options{
				Delivery: deltafifo.Delivery(g.Mode), Capacity: k.Capacity, BatchSize: k.BatchSize, Shards: k.Shards,
				HandOver: k.HandOver, Throttle: k.Throttle != "no",
			}
			if m.Pipeline == QueuePipeline && opts.Delivery == deltafifo.PerKey {
				opts.KnownObjects = everKnown{}
			}
			return setting{opts.Label(g), func() (closer, error) { return v.New(opts) }, func() stages { return m.deltaStages(v.Name, opts) }}
		}})
	}
	return c, nil
}

func (m *preparedStorm) queueComparison() familyComparison {
	c := familyComparison{benchmark: "Queue", modes: []mode{{baseline: "clientgo-fifo"}}}
	for _, v := range queue.Variants() {
		c.variants = append(c.variants, variant{v.Name, v.Guarantees, func(g impls.Guarantees, k Knobs) setting {
			opts := queue.Options{Shards: k.Shards}
			return setting{opts.Label(g), func() (closer, error) { return v.New(opts) }, func() stages {
				return &fifo{build: func() (consumable, error) { return queue.New(v.Name, opts) }}
			}}
		}})
	}
	return c
}

func (m *preparedStorm) mergeComparison() familyComparison {
	c := familyComparison{benchmark: "Merge", modes: []mode{{title: fmt.Sprintf("a node of %d pods", m.Storm.Peak()), baseline: "reference"}}}
	if m.Pipeline == KubeletPipeline {
		c.benchmark = "Kubelet"
	}
	for _, v := range merge.Variants() {
		c.variants = append(c.variants, variant{v.Name, v.Guarantees, func(g impls.Guarantees, k Knobs) setting {
			opts := merge.Options{Capacity: k.Capacity}
			return setting{g, func() (closer, error) { return v.New(opts) }, func() stages {
				own := merging{build: func() (merge.Merger, error) { return merge.New(v.Name, opts) }}
				if m.Pipeline == KubeletPipeline {
					return &kubelet{merging: own}
				}
				return &own
			}}
		}})
	}
	return c
}

func join[T any](all []T, name func(T) string) string {
	var names []string
	for _, t := range all {
		names = append(names, name(t))
	}
	return strings.Join(names, ", ")
}

// labelValue formats a storm's name for a benchmark name. The name may be a path.
func labelValue(name string) string {
	base, _, _ := strings.Cut(filepath.Base(name), ".")
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r == '=' || r == '/' || r == '"' || r == ',' {
			return '-'
		}
		return r
	}, base)
	if clean == "" {
		return "storm"
	}
	return clean
}
