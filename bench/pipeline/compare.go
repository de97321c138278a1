package pipeline

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/lab"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/share"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// The pipelines, by name.
const (
	QueuePipeline    = "queue"
	InformerPipeline = "informer"
	KubeletPipeline  = "kubelet"
)

// Names returns the names of the pipelines.
func Names() []string { return []string{QueuePipeline, InformerPipeline, KubeletPipeline} }

// Families returns the families that have variants in a pipeline; none for an
// unknown name.
func Families(pipeline string) []impls.Family {
	switch pipeline {
	case QueuePipeline:
		return []impls.Family{impls.DeltaFIFO, impls.Queue, impls.Merge}
	case InformerPipeline:
		return []impls.Family{impls.DeltaFIFO}
	case KubeletPipeline:
		return []impls.Family{impls.Merge}
	}
	return nil
}

// The default lengths of an unpaced round, in events after the initial list. A round
// takes some 10 ms with a fast variant and about 1 s with the slowest.
const (
	defaultQueueEvents    = 200_000
	defaultMergeEvents    = 2_000
	defaultInformerEvents = 50_000
)

// DefaultDuration is the default length of a paced schedule.
const DefaultDuration = 2 * time.Second

// ErrConfig is wrapped by errors for an invalid [Config]; they name the field and the
// allowed values.
var ErrConfig = errors.New("invalid comparison")

// Config is what [Compare] compares. The zero values of all fields but Family,
// Pipeline and Storm are defaults.
type Config struct {
	// Family of the compared variants.
	Family impls.Family
	// Impls are the names of the variants; empty means all variants of the family.
	Impls []string
	// Pipeline is queue, informer or kubelet; see [Families].
	Pipeline string
	// Source is the name of a [source.Source]: memory (the default) or apiserver. The
	// queue pipeline allows memory only.
	Source string
	// Storm is the played storm. The family merge plays the pods of one node
	// ([NodePods]). The queue pipeline of the other families plays metadata only; see
	// [storm.Storm.Metadata].
	Storm *storm.Storm
	// Paces are the release rates, one cell each; empty means one unpaced cell.
	Paces []pace.Pace
	// Seed of the random parts of a pace.
	Seed int64
	// Budget is the largest allowed lag of releases. A round that exceeds it is invalid:
	// the generator was too slow.
	Budget pace.Budget
	// Producers is the number of goroutines that call the queue; 0 means 1. Each owns a
	// part of the keys. More than 1 needs deltafifo or queue in the queue pipeline.
	Producers int
	// Events is the minimum number of events after the initial list. The storm is
	// repeated in whole laps to reach it. 0 selects the default of unpaced cells:
	// 200,000 in the queue pipeline, 50,000 in the informer pipeline, 2,000 for merge,
	// and the storm as it is from the apiserver. Paced cells play their Duration by
	// default. The minimum is always 100.
	Events int
	// Duration is the length of a paced schedule; 0 means [DefaultDuration].
	Duration time.Duration
	// Modes are deliveries of deltafifo; empty means all deliveries of each variant.
	// Other families have none.
	Modes []string
	// Knobs are the variants' options.
	Knobs Knobs
	// Share is the played part of the storm; the zero value is the whole storm. All
	// shares together play the same events at the same times as the whole storm does.
	// Events counts all shares; its default grows with the number of shares.
	Share share.Share
	// Faults of the simulated API server, for the source apiserver. They begin with the
	// storm and are the same in each round. With faults, the stall limit is three
	// minutes, as clients back off.
	Faults []fault.Spec
	// Static is the number of static pods in each of kubelet's file and http sources, in
	// the kubelet pipeline; 0 plays the api source alone. Every 5 ms one pod of each
	// source changes.
	Static int
	// Consumers is the number of goroutines that pop, for deltafifo and queue in the
	// queue pipeline; 0 means 1. A variant that allows only one consumer gets one; the
	// label "consumers" shows the actual number.
	Consumers int
	// Readers is the number of goroutines that list the indexer without a pause, in the
	// informer pipeline.
	Readers int
	// HandlerCost is the processor time that the handler spends on each event: the event
	// handler of the informer pipeline, the consumer of the queue pipeline. It is a loop
	// of fixed length, calibrated on an idle processor.
	HandlerCost time.Duration
	// Stalled holds the consumer until all events are queued, then measures the heap and
	// the drain. It needs deltafifo or queue in the queue pipeline, unpaced, with an
	// unbounded queue.
	Stalled bool
	// Procs is the GOMAXPROCS of the cells; 0 keeps the process's value.
	Procs int
	// Stamps selects the stamped events of unpaced cells; empty means [StampsSampled].
	Stamps Stamps
	// NoProbe switches off the lock probe of paced cells; see the package documentation.
	NoProbe bool
}

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
	m := &material{
		base: config.Storm, events: config.Events, exact: config.Events > 0,
		duration: config.Duration, producers: config.Producers, source: config.Source,
		seed: config.Seed, budget: config.Budget,
	}
	m.faults, m.static, m.patience = config.Faults, config.Static, config.patience()
	m.share = config.Share
	if !m.exact {
		m.events = config.defaultEvents() * max(1, config.Share.Count)
	}
	if err := m.enough(); err != nil {
		return nil, err
	}
	var (
		comparisons []lab.Comparison
		err         error
	)
	switch config.Family {
	case impls.DeltaFIFO:
		comparisons, err = compareDeltaFIFO(config, m)
	case impls.Queue:
		comparisons, err = compareQueue(config, m)
	default:
		comparisons, err = compareMerge(config, m)
	}
	if err != nil {
		return nil, err
	}
	if n := config.Consumers; n > 1 && !anyLabelled(comparisons, lab.Label{Key: "consumers", Value: strconv.Itoa(n)}) {
		return nil, fmt.Errorf("%w: %d consumers, where no variant lets several take at once (allowed: 1)", ErrConfig, n)
	}
	input, whole := digests(&config, m)
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

// complete validates the config and fills in the defaults.
func (s *Config) complete() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	families := Families(s.Pipeline)
	switch {
	case families == nil:
		return fail("pipeline %q (allowed: %s)", s.Pipeline, strings.Join(Names(), ", "))
	case !slices.Contains(Families(QueuePipeline), s.Family):
		return fail("family %q (allowed: %s)", s.Family, joined(Families(QueuePipeline)))
	case !slices.Contains(families, s.Family):
		return fail("the %s pipeline has no place for family %s (allowed: %s)", s.Pipeline, s.Family, joined(families))
	}
	if s.Source == "" {
		s.Source = source.MemoryName
	}
	single := s.Pipeline != QueuePipeline || s.Family == impls.Merge
	switch {
	case !slices.Contains(source.Names(), s.Source):
		return fail("source %q (allowed: %s)", s.Source, strings.Join(source.Names(), ", "))
	case s.Pipeline == QueuePipeline && s.Source != source.MemoryName:
		return fail("the queue pipeline takes its events from %s only, not from source %q", source.MemoryName, s.Source)
	case s.Producers < 0:
		return fail("%d producers (allowed: 1 or more)", s.Producers)
	case s.Producers > 1 && s.Storm != nil && slices.ContainsFunc(s.Storm.Marks, isRelist):
		return fail("%d producers on storm %s, which is relisted: a Reflector is one (allowed: 1)", s.Producers, s.Storm.Name)
	case s.Producers > 1 && single:
		return fail("%d producers for family %s in the %s pipeline (allowed: 1)", s.Producers, s.Family, s.Pipeline)
	case s.Events < 0:
		return fail("%d events (allowed: 1 or more, 0 for the default)", s.Events)
	case s.Duration < 0:
		return fail("duration %v (allowed: more than 0)", s.Duration)
	case len(s.Modes) > 0 && s.Family != impls.DeltaFIFO:
		return fail("modes %q for family %s, which has none", s.Modes, s.Family)
	case s.Storm == nil || len(s.Storm.Events) == 0:
		return fail("the storm has no events")
	}
	if err := s.Share.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	switch {
	case len(s.Faults) > 0 && s.Source != source.APIServerName:
		return fail("faults of source %q, which has none (allowed: %s)", s.Source, source.APIServerName)
	case s.Static < 0 || s.Static > maxStatic:
		return fail("%d static pods (allowed: 0 to %d)", s.Static, maxStatic)
	case s.Static > 0 && s.Pipeline != KubeletPipeline:
		return fail("static pods in the %s pipeline, which has no sources of them (allowed: %s)", s.Pipeline, KubeletPipeline)
	}
	for _, f := range s.Faults {
		if err := f.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if k := s.Knobs.foreign(s.Family); k != "" {
		return fail("%s for family %s, which has none", k, s.Family)
	}
	if err := s.checkLoad(); err != nil {
		return err
	}
	for _, m := range s.Modes {
		if m != string(deltafifo.InOrder) && m != string(deltafifo.PerKey) {
			return fail("mode %q (allowed: %s, %s)", m, deltafifo.InOrder, deltafifo.PerKey)
		}
	}
	for i, p := range s.Paces {
		if slices.ContainsFunc(s.Paces[:i], func(o pace.Pace) bool { return o.String() == p.String() }) {
			return fail("pace %v (allowed: each once)", p)
		}
	}
	if len(s.Paces) == 0 {
		s.Paces = []pace.Pace{{}}
	}
	s.Producers = max(1, s.Producers)
	if s.Duration == 0 {
		s.Duration = DefaultDuration
	}
	if err := s.Storm.Validate(); err != nil {
		return fmt.Errorf("storm %s: %w", s.Storm.Name, err)
	}
	if s.Pipeline == QueuePipeline && s.Family != impls.Merge {
		s.Storm = s.Storm.Metadata()
	}
	if s.Family == impls.Merge {
		node, err := s.Storm.ForNode(NodePods)
		if err != nil {
			return err
		}
		s.Storm = node
	}
	return nil
}

func (s *Config) defaultEvents() int {
	n := defaultQueueEvents
	switch {
	case s.Source == source.APIServerName:
		return 0
	case s.Family == impls.Merge:
		return defaultMergeEvents
	case s.Pipeline == InformerPipeline:
		n = defaultInformerEvents
	}
	if s.HandlerCost > 0 {
		// The handling takes about 1 s.
		n = min(n, max(plentyEvents, int(time.Second/s.HandlerCost)))
	}
	return n
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
func (s *Config) cells(name, variant, baseline string, g impls.Guarantees, k Knobs, build func(pace.Pace) lab.Workload) []lab.Cell {
	labels := []lab.Label{{Key: "impl", Value: variant}}
	if g.Mode != "" {
		labels = append(labels, lab.Label{Key: "delivery", Value: g.Mode})
	}
	labels = append(labels,
		lab.Label{Key: "pipeline", Value: s.Pipeline},
		lab.Label{Key: "source", Value: s.Source},
		lab.Label{Key: "storm", Value: labelValue(s.Storm.Name)},
	)
	if s.Pipeline == QueuePipeline && s.Family != impls.Merge {
		labels = append(labels, lab.Label{Key: "producers", Value: strconv.Itoa(s.Producers)})
	}
	labels = append(labels, k.labels()...)
	labels = append(labels, s.loadLabels(g)...)
	var cells []lab.Cell
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

// workload returns the skeleton of a cell.
func (s *Config) workload(name string, g impls.Guarantees, m *material, r pace.Pace, stages stages) *workload {
	w := &workload{name: name, guarantees: g, load: s.load(g), material: m, rate: r, stall: stallLimit + m.patience, stages: stages, procs: s.Procs}
	if s.Pipeline != QueuePipeline {
		w.stall = m.stall()
	}
	return w
}

func compareDeltaFIFO(config Config, m *material) ([]lab.Comparison, error) {
	return compareDeliveries(config, func(v deltafifo.Variant, g impls.Guarantees, opts deltafifo.Options, r pace.Pace) lab.Workload {
		if config.Pipeline == InformerPipeline {
			return config.workload(v.Name, g, m, r, &informerStages{variant: v.Name, opts: opts})
		}
		if opts.Delivery == deltafifo.PerKey {
			opts.KnownObjects = everKnown{}
		}
		return config.workload(v.Name, g, m, r, &fifo{build: func() (consumable, error) { return deltafifo.New(v.Name, opts) }})
	})
}

// upstreamInformer returns client-go's own informer as a variant, with the guarantees of
// its queue.
func upstreamInformer() deltafifo.Variant {
	v, err := deltafifo.Lookup(inOrderBaseline)
	if err != nil {
		panic(err) // It is registered by the package itself.
	}
	v.Name = ClientGoInformer
	return v
}

// The baselines of the deliveries.
const (
	inOrderBaseline = "clientgo-realfifo-batch"
	perKeyBaseline  = "clientgo-deltafifo"
)

// deltaVariants returns the variants of deltafifo. The informer pipeline adds
// client-go's own informer. On a storm with resyncs it does not, as that informer has no
// call for them.
func (s *Config) deltaVariants() ([]deltafifo.Variant, error) {
	all, lookup := deltafifo.Variants(), deltafifo.Lookup
	resyncs := slices.ContainsFunc(s.Storm.Marks, func(m storm.Mark) bool { return m.Type == storm.MarkResync })
	if s.Pipeline == InformerPipeline {
		if !resyncs {
			all = append([]deltafifo.Variant{upstreamInformer()}, all...)
		}
		lookup = func(name string) (deltafifo.Variant, error) {
			switch {
			case name != ClientGoInformer:
				return deltafifo.Lookup(name)
			case resyncs:
				return deltafifo.Variant{}, fmt.Errorf("%w: variant %s on storm %s, whose resyncs it has no call for", ErrConfig, name, s.Storm.Name)
			}
			return upstreamInformer(), nil
		}
	}
	return chosen(s.Impls, all, lookup)
}

// compareDeliveries returns the comparisons of deltafifo, one for each delivery.
func compareDeliveries(config Config, build func(deltafifo.Variant, impls.Guarantees, deltafifo.Options, pace.Pace) lab.Workload) ([]lab.Comparison, error) {
	variants, err := config.deltaVariants()
	if err != nil {
		return nil, err
	}
	name := "DeltaFIFO"
	if config.Pipeline == InformerPipeline {
		name = "Informer"
	}
	baselines := map[deltafifo.Delivery]string{deltafifo.InOrder: inOrderBaseline, deltafifo.PerKey: perKeyBaseline}
	if slices.ContainsFunc(variants, func(v deltafifo.Variant) bool { return v.Name == ClientGoInformer }) {
		baselines[deltafifo.InOrder] = ClientGoInformer
	}
	var out []lab.Comparison
	used := make(map[string]bool)
	f := &fitting{knobs: config.Knobs}
	for _, delivery := range []deltafifo.Delivery{deltafifo.InOrder, deltafifo.PerKey} {
		if len(config.Modes) > 0 && !slices.Contains(config.Modes, string(delivery)) {
			continue
		}
		taken := f.taken
		c := lab.Comparison{
			Family: string(config.Family),
			Title:  config.title(string(delivery) + " delivery"), Latency: Handled,
		}
		for _, v := range variants {
			g, ok := v.Mode(string(delivery))
			if !ok {
				continue
			}
			used[v.Name] = true
			k, err := fit(f, v.Name, func(k Knobs) (deltafifo.Queue, error) {
				return v.New(k.deltafifo(deltafifo.Options{Delivery: delivery}))
			})
			if err != nil {
				return nil, err
			}
			opts := k.deltafifo(deltafifo.Options{Delivery: delivery})
			g = opts.Label(g)
			c.Cells = append(c.Cells, config.cells(name, v.Name, baselines[delivery], g, k, func(r pace.Pace) lab.Workload {
				return build(v, g, opts, r)
			})...)
		}
		// A delivery in which no variant takes the options is left out.
		if len(c.Cells) > 0 && (f.knobs.none() || f.taken > taken) {
			out = append(out, c)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	for _, v := range variants {
		if !used[v.Name] && len(config.Impls) > 0 {
			return nil, fmt.Errorf("%w: variant %s has no delivery among %q (it has: %s)", ErrConfig, v.Name, config.Modes, modes(v.Guarantees))
		}
	}
	return out, nil
}

func compareQueue(config Config, m *material) ([]lab.Comparison, error) {
	variants, err := chosen(config.Impls, queue.Variants(), queue.Lookup)
	if err != nil {
		return nil, err
	}
	c := lab.Comparison{Family: string(config.Family), Title: config.title(""), Latency: Handled}
	f := &fitting{knobs: config.Knobs}
	for _, v := range variants {
		k, err := fit(f, v.Name, func(k Knobs) (queue.Queue, error) { return v.New(k.queue()) })
		if err != nil {
			return nil, err
		}
		g := v.Guarantees[0]
		g.Bounded = k.Capacity > 0
		c.Cells = append(c.Cells, config.cells("Queue", v.Name, "clientgo-fifo", g, k, func(r pace.Pace) lab.Workload {
			return config.workload(v.Name, g, m, r, &fifo{build: func() (consumable, error) { return queue.New(v.Name, k.queue()) }})
		})...)
	}
	return []lab.Comparison{c}, f.err()
}

func compareMerge(config Config, m *material) ([]lab.Comparison, error) {
	variants, err := chosen(config.Impls, merge.Variants(), merge.Lookup)
	if err != nil {
		return nil, err
	}
	name := "Merge"
	if config.Pipeline == KubeletPipeline {
		name = "Kubelet"
	}
	c := lab.Comparison{
		Family: string(config.Family),
		Title:  config.title(fmt.Sprintf("a node of %d pods", config.Storm.Peak())), Latency: Handled,
	}
	f := &fitting{knobs: config.Knobs}
	for _, v := range variants {
		k, err := fit(f, v.Name, func(k Knobs) (merge.Merger, error) { return v.New(k.merge()) })
		if err != nil {
			return nil, err
		}
		g := k.merge().Label(v.Guarantees[0])
		build := func() (merge.Merger, error) { return merge.New(v.Name, k.merge()) }
		c.Cells = append(c.Cells, config.cells(name, v.Name, "reference", g, k, func(r pace.Pace) lab.Workload {
			if config.Pipeline == KubeletPipeline {
				return config.workload(v.Name, g, m, r, &kubelet{build: build})
			}
			w := config.workload(v.Name, g, m, r, &merging{build: build})
			// A slow pace makes no progress between two events.
			w.stall += m.score(r).pause
			return w
		})...)
	}
	return []lab.Comparison{c}, f.err()
}

// chosen returns the named variants, or all of them.
func chosen[V any](names []string, all []V, lookup func(string) (V, error)) ([]V, error) {
	if len(names) == 0 {
		return all, nil
	}
	var out []V
	for i, name := range names {
		v, err := lookup(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%w: variant %s is named twice", ErrConfig, name)
		}
		out = append(out, v)
	}
	return out, nil
}

func modes(gs []impls.Guarantees) string {
	var names []string
	for _, g := range gs {
		names = append(names, g.Mode)
	}
	return strings.Join(names, ", ")
}

func joined(families []impls.Family) string {
	var names []string
	for _, f := range families {
		names = append(names, string(f))
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
