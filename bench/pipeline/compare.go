package pipeline

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/lab"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
	"watchlab/loadgen/pace"
)

// Compare returns a comparison for each delivery of deltafifo, or one for another
// family, with a cell for each variant and pace.
//
// Ratios are against clientgo-realfifo-batch (in-order), clientgo-deltafifo
// (per-key), clientgo-fifo (queue) and reference (merge), and in the informer pipeline
// against [ClientGoInformer] (in-order), if Impls does not leave it out.
//
// The error wraps [ErrConfig], [impls.ErrUnknownVariant] or the storm's. A storm that
// can't be repeated needs min(1000, Events) events after its initial list, and at
// least 100.
func Compare(config Config) ([]lab.Comparison, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	m := &material{Config: config, exact: config.Events > 0}
	if !m.exact {
		m.Events = config.defaultEvents() * max(1, config.Share.Count)
	}
	if err := m.enough(); err != nil {
		return nil, err
	}
	var comparisons []lab.Comparison
	var err error
	switch config.Family {
	case impls.DeltaFIFO:
		comparisons, err = m.compareDeltaFIFO(m.deltaWorkload)
	case impls.Queue:
		comparisons, err = m.compareQueue()
	case impls.Merge:
		comparisons, err = m.compareMerge()
	}
	if err != nil {
		return nil, err
	}
	if n := config.Consumers; n > 1 && !anyLabelled(comparisons, lab.Label{Key: "consumers", Value: strconv.Itoa(n)}) {
		return nil, refuse("%d consumers, where no variant lets several take at once (allowed: 1)", n)
	}
	input, whole := m.digests()
	for i := range comparisons {
		comparisons[i].Input, comparisons[i].Whole = input, whole
	}
	return comparisons, nil
}

// anyLabelled reports whether a cell has the label.
func anyLabelled(comparisons []lab.Comparison, l lab.Label) bool {
	return slices.ContainsFunc(comparisons, func(c lab.Comparison) bool {
		return slices.ContainsFunc(c.Cells, func(cl lab.Cell) bool { return slices.Contains(cl.Labels, l) })
	})
}

// title describes a comparison, without its variants.
func (s *Config) title(what string) string {
	t := fmt.Sprintf("%s pipeline, storm %s", s.Pipeline, s.Storm.Name)
	if what != "" {
		t = what + ", " + t
	}
	if s.Pipeline != QueuePipeline {
		t += ", source " + s.Source
		if s.Static > 0 {
			t += fmt.Sprintf(", file and http with %d pods each", s.Static)
		}
		for _, f := range s.Faults {
			t += ", fault " + f.String()
		}
	} else if s.Producers > 1 {
		t += fmt.Sprintf(", %d producers", s.Producers)
	}
	return t
}

// cells returns a cell for each rate of one variant.
func (s *Config) cells(name, variant, baseline string, g impls.Guarantees, k Knobs, build func(pace.Pace) lab.Workload) (cells []lab.Cell) {
	labels := s.labels(variant, g, k)
	for _, rate := range s.Paces {
		cells = append(cells, lab.Cell{
			Name:       name,
			Labels:     append(slices.Clone(labels), lab.Label{Key: "rate", Value: rateLabel(rate)}),
			Guarantees: g.String(),
			Class:      class(g),
			Baseline:   variant == baseline,
			New:        func() (lab.Workload, error) { return build(rate), nil },
		})
	}
	return cells
}

// labels returns the labels of a variant's cells, without the rate. It leaves out zero
// values.
func (s *Config) labels(variant string, g impls.Guarantees, k Knobs) (labels []lab.Label) {
	producers, consumers, consumer := 0, 0, ""
	if s.Pipeline == QueuePipeline && s.Family != impls.Merge {
		producers = s.Producers
	}
	if s.Consumers > 0 {
		consumers = s.consumersOf(g)
	}
	if s.Stalled {
		consumer = "stalled"
	}
	for _, l := range []struct {
		key   string
		value any
	}{
		{"impl", variant}, {"delivery", g.Mode}, {"pipeline", s.Pipeline}, {"source", s.Source},
		{"storm", labelValue(s.Storm.Name)}, {"producers", producers},
		{"capacity", k.Capacity}, {"batch", k.BatchSize}, {"shards", k.Shards},
		{"compaction", k.Compaction}, {"handover", k.HandOver}, {"trust", k.Trust},
		{"consumers", consumers}, {"consumer", consumer}, {"readers", s.Readers},
		{"handler", s.HandlerCost}, {"procs", s.Procs}, {"stamps", s.Stamps},
	} {
		if !reflect.ValueOf(l.value).IsZero() {
			labels = append(labels, lab.Label{Key: l.key, Value: fmt.Sprint(l.value)})
		}
	}
	return labels
}

// workload returns the skeleton of a cell.
func (m *material) workload(name string, g impls.Guarantees, r pace.Pace, stages stages) *workload {
	return &workload{name: name, guarantees: g, material: m, rate: r, stall: m.stall(r), stages: stages}
}

// contest describes how the variants of a family are compared.
type contest[O, T any] struct {
	// benchmark is the name of the benchmark.
	benchmark string
	variants  []impls.Variant[O, T]
	modes     []mode // one mode with the empty name for a family without modes
	// options returns a variant's options. label returns its guarantees as they change
	// them.
	options  func(mode string, k Knobs) O
	label    func(O, impls.Guarantees) impls.Guarantees
	workload workloadFunc[O]
}

// mode is a mode with the title and the baseline of its comparison.
type mode struct{ name, title, baseline string }

// workloadFunc returns the workload of a cell.
type workloadFunc[O any] func(variant string, g impls.Guarantees, opts O, r pace.Pace) lab.Workload

// compare returns a comparison for each mode. It leaves out a mode in which no variant
// takes the knobs.
func compare[O, T any](s *Config, c contest[O, T]) (out []lab.Comparison, err error) {
	used := make(map[string]bool)
	// refusal is the error of the last variant that did not take the knobs.
	var refusal error
	for _, m := range c.modes {
		if len(s.Modes) > 0 && !slices.Contains(s.Modes, m.name) {
			continue
		}
		comparison := lab.Comparison{Family: string(s.Family), Title: s.title(m.title), Latency: Handled}
		taken := s.Knobs.none()
		for _, v := range c.variants {
			g, ok := v.Mode(m.name)
			if !ok {
				continue
			}
			used[v.Name] = true
			k := s.Knobs
			if !k.none() {
				switch err := try(v, c.options(m.name, k)); {
				case errors.Is(err, impls.ErrOptions):
					refusal, k = fmt.Errorf("%s: %w", v.Name, err), Knobs{}
				case err != nil:
					return nil, err
				default:
					taken = true
				}
			}
			opts := c.options(m.name, k)
			g = c.label(opts, g)
			comparison.Cells = append(comparison.Cells, s.cells(c.benchmark, v.Name, m.baseline, g, k, func(r pace.Pace) lab.Workload {
				return c.workload(v.Name, g, opts, r)
			})...)
		}
		if len(comparison.Cells) > 0 && taken {
			out = append(out, comparison)
		}
	}
	if len(out) == 0 && refusal != nil {
		return nil, refuse("no variant takes these options: %w", refusal)
	}
	for _, v := range c.variants {
		if !used[v.Name] && len(s.Impls) > 0 {
			return nil, refuse("variant %s has no delivery among %q (it has: %s)", v.Name, s.Modes, strings.Join(modes(v.Guarantees), ", "))
		}
	}
	return out, nil
}

// try builds and closes an instance.
func try[O, T any](v impls.Variant[O, T], opts O) error {
	instance, err := v.New(opts)
	if c, ok := any(instance).(interface{ Close() }); ok && err == nil {
		c.Close()
	}
	return err
}

// deltaWorkload is the [workloadFunc] of deltafifo.
func (m *material) deltaWorkload(v string, g impls.Guarantees, opts deltafifo.Options, r pace.Pace) lab.Workload {
	if m.Pipeline == InformerPipeline {
		return m.workload(v, g, r, &informerStages{variant: v, opts: opts})
	}
	return m.workload(v, g, r, &fifo{build: func() (consumable, error) { return deltafifo.New(v, opts) }})
}

// The baselines of the deliveries.
const (
	inOrderBaseline = "clientgo-realfifo-batch"
	perKeyBaseline  = "clientgo-deltafifo"
)

// deltaVariants returns the variants of deltafifo. The informer pipeline adds
// client-go's own informer, with the guarantees of its queue. On a storm with resyncs it
// does not, as that informer has no call for them.
func (s *Config) deltaVariants() ([]deltafifo.Variant, error) {
	all := deltafifo.Variants()
	if s.Pipeline == InformerPipeline {
		upstream, err := deltafifo.Lookup(inOrderBaseline)
		upstream.Name = ClientGoInformer
		switch resyncs := slices.ContainsFunc(s.Storm.Marks, isResync); {
		case err != nil:
			return nil, err
		case !resyncs:
			all = append([]deltafifo.Variant{upstream}, all...)
		case slices.Contains(s.Impls, ClientGoInformer):
			return nil, refuse("variant %s on storm %s, whose resyncs it has no call for", ClientGoInformer, s.Storm.Name)
		}
	}
	return chosen(s.Impls, all, deltafifo.Lookup)
}

// compareDeltaFIFO returns the comparisons of deltafifo, one for each delivery.
func (s *Config) compareDeltaFIFO(workload workloadFunc[deltafifo.Options]) ([]lab.Comparison, error) {
	variants, err := s.deltaVariants()
	if err != nil {
		return nil, err
	}
	benchmark, baseline := "DeltaFIFO", inOrderBaseline
	if s.Pipeline == InformerPipeline {
		benchmark = "Informer"
	}
	if slices.ContainsFunc(variants, func(v deltafifo.Variant) bool { return v.Name == ClientGoInformer }) {
		baseline = ClientGoInformer
	}
	return compare(s, contest[deltafifo.Options, deltafifo.Queue]{
		benchmark: benchmark, variants: variants, label: deltafifo.Options.Label, workload: workload,
		modes: []mode{
			{string(deltafifo.InOrder), "in-order delivery", baseline},
			{string(deltafifo.PerKey), "per-key delivery", perKeyBaseline},
		},
		options: func(mode string, k Knobs) deltafifo.Options {
			opts := deltafifo.Options{
				Delivery: deltafifo.Delivery(mode), Capacity: k.Capacity, BatchSize: k.BatchSize, Shards: k.Shards,
				Compaction: k.Compaction, HandOver: k.HandOver,
			}
			if s.Pipeline == QueuePipeline && opts.Delivery == deltafifo.PerKey {
				opts.KnownObjects = everKnown{}
			}
			return opts
		},
	})
}

func (m *material) compareQueue() ([]lab.Comparison, error) {
	variants, err := chosen(m.Impls, queue.Variants(), queue.Lookup)
	if err != nil {
		return nil, err
	}
	return compare(&m.Config, contest[queue.Options, queue.Queue]{
		benchmark: "Queue", variants: variants, modes: []mode{{baseline: "clientgo-fifo"}},
		options: func(_ string, k Knobs) queue.Options {
			return queue.Options{Capacity: k.Capacity, Shards: k.Shards}
		},
		label: func(o queue.Options, g impls.Guarantees) impls.Guarantees {
			g.Bounded = o.Capacity > 0
			return g
		},
		workload: func(v string, g impls.Guarantees, opts queue.Options, r pace.Pace) lab.Workload {
			return m.workload(v, g, r, &fifo{build: func() (consumable, error) { return queue.New(v, opts) }})
		},
	})
}

func (m *material) compareMerge() ([]lab.Comparison, error) {
	variants, err := chosen(m.Impls, merge.Variants(), merge.Lookup)
	if err != nil {
		return nil, err
	}
	benchmark := "Merge"
	if m.Pipeline == KubeletPipeline {
		benchmark = "Kubelet"
	}
	return compare(&m.Config, contest[merge.Options, merge.Merger]{
		benchmark: benchmark, variants: variants, label: merge.Options.Label,
		modes: []mode{{title: fmt.Sprintf("a node of %d pods", m.Storm.Peak()), baseline: "reference"}},
		options: func(_ string, k Knobs) merge.Options {
			return merge.Options{Capacity: k.Capacity, HandOver: k.HandOver, Trust: k.Trust}
		},
		workload: func(v string, g impls.Guarantees, opts merge.Options, r pace.Pace) lab.Workload {
			build := func() (merge.Merger, error) { return merge.New(v, opts) }
			if m.Pipeline == KubeletPipeline {
				return m.workload(v, g, r, &kubelet{merging: merging{build: build}})
			}
			return m.workload(v, g, r, &merging{build: build})
		},
	})
}

// chosen returns the named variants, or all of them. lookup returns the error of an unknown
// name.
func chosen[O, T any](names []string, all []impls.Variant[O, T], lookup func(string) (impls.Variant[O, T], error)) ([]impls.Variant[O, T], error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []impls.Variant[O, T]
	for i, name := range names {
		at := slices.IndexFunc(all, func(v impls.Variant[O, T]) bool { return v.Name == name })
		if at < 0 {
			_, err := lookup(name)
			return nil, err
		}
		if slices.Contains(names[:i], name) {
			return nil, refuse("variant %s is named twice", name)
		}
		out = append(out, all[at])
	}
	return out, nil
}

func modes(gs []impls.Guarantees) (names []string) {
	for _, g := range gs {
		names = append(names, g.Mode)
	}
	return names
}

func joined[T ~string](all []T) string {
	var names []string
	for _, t := range all {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// rateLabel formats a pace for a benchmark name. A "/" would end the label there.
func rateLabel(p pace.Pace) string { return strings.ReplaceAll(p.String(), "/", "@") }

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
