package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
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
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// The pipelines, by name.
const (
	QueuePipeline    = "queue"
	InformerPipeline = "informer"
	KubeletPipeline  = "kubelet"
)

// families has the families of each pipeline.
var families = map[string][]impls.Family{
	QueuePipeline:    {impls.DeltaFIFO, impls.Queue, impls.Merge},
	InformerPipeline: {impls.DeltaFIFO},
	KubeletPipeline:  {impls.Merge},
}

// Names returns the names of the pipelines.
func Names() []string { return []string{QueuePipeline, InformerPipeline, KubeletPipeline} }

// Families returns the families that have variants in a pipeline; none for an
// unknown name.
func Families(pipeline string) []impls.Family { return families[pipeline] }

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
	Share storm.Share
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
	m := &material{Config: config, exact: config.Events > 0}
	if !m.exact {
		m.Events = config.defaultEvents() * max(1, config.Share.Count)
	}
	if err := m.enough(); err != nil {
		return nil, err
	}
	compare := map[impls.Family]func() ([]lab.Comparison, error){
		impls.DeltaFIFO: m.compareDeltaFIFO, impls.Queue: m.compareQueue, impls.Merge: m.compareMerge,
	}
	comparisons, err := compare[config.Family]()
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

// refuse returns an error for an invalid config.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
}

// anyLabelled reports whether a cell has the label.
func anyLabelled(comparisons []lab.Comparison, l lab.Label) bool {
	return slices.ContainsFunc(comparisons, func(c lab.Comparison) bool {
		return slices.ContainsFunc(c.Cells, func(cl lab.Cell) bool { return slices.Contains(cl.Labels, l) })
	})
}

// complete validates the config and fills in the defaults.
func (s *Config) complete() error {
	s.Source = cmp.Or(s.Source, source.MemoryName)
	single := s.Pipeline != QueuePipeline || s.Family == impls.Merge
	relisted := s.Storm != nil && slices.ContainsFunc(s.Storm.Marks, isRelist)
	switch allowed := families[s.Pipeline]; {
	case allowed == nil:
		return refuse("pipeline %q (allowed: %s)", s.Pipeline, strings.Join(Names(), ", "))
	case !slices.Contains(families[QueuePipeline], s.Family):
		return refuse("family %q (allowed: %s)", s.Family, joined(families[QueuePipeline]))
	case !slices.Contains(allowed, s.Family):
		return refuse("the %s pipeline has no place for family %s (allowed: %s)", s.Pipeline, s.Family, joined(allowed))
	case !slices.Contains(source.Names(), s.Source):
		return refuse("source %q (allowed: %s)", s.Source, strings.Join(source.Names(), ", "))
	case s.Pipeline == QueuePipeline && s.Source != source.MemoryName:
		return refuse("the queue pipeline takes its events from %s only, not from source %q", source.MemoryName, s.Source)
	case s.Producers < 0:
		return refuse("%d producers (allowed: 1 or more)", s.Producers)
	case s.Producers > 1 && relisted:
		return refuse("%d producers on storm %s, which is relisted: a Reflector is one (allowed: 1)", s.Producers, s.Storm.Name)
	case s.Producers > 1 && single:
		return refuse("%d producers for family %s in the %s pipeline (allowed: 1)", s.Producers, s.Family, s.Pipeline)
	case s.Events < 0:
		return refuse("%d events (allowed: 1 or more, 0 for the default)", s.Events)
	case s.Duration < 0:
		return refuse("duration %v (allowed: more than 0)", s.Duration)
	case len(s.Modes) > 0 && s.Family != impls.DeltaFIFO:
		return refuse("modes %q for family %s, which has none", s.Modes, s.Family)
	case s.Storm == nil || len(s.Storm.Events) == 0:
		return refuse("the storm has no events")
	case len(s.Faults) > 0 && s.Source != source.APIServerName:
		return refuse("faults of source %q, which has none (allowed: %s)", s.Source, source.APIServerName)
	case s.Static < 0 || s.Static > maxStatic:
		return refuse("%d static pods (allowed: 0 to %d)", s.Static, maxStatic)
	case s.Static > 0 && s.Pipeline != KubeletPipeline:
		return refuse("static pods in the %s pipeline, which has no sources of them (allowed: %s)", s.Pipeline, KubeletPipeline)
	case s.Knobs.foreign(s.Family) != "":
		return refuse("%s for family %s, which has none", s.Knobs.foreign(s.Family), s.Family)
	}
	err := s.Share.Validate()
	for _, f := range s.Faults {
		err = cmp.Or(err, f.Validate())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := s.checkLoad(relisted); err != nil {
		return err
	}
	for _, m := range s.Modes {
		if m != string(deltafifo.InOrder) && m != string(deltafifo.PerKey) {
			return refuse("mode %q (allowed: %s, %s)", m, deltafifo.InOrder, deltafifo.PerKey)
		}
	}
	for i, p := range s.Paces {
		if slices.ContainsFunc(s.Paces[:i], func(o pace.Pace) bool { return o.String() == p.String() }) {
			return refuse("pace %v (allowed: each once)", p)
		}
	}
	if len(s.Paces) == 0 {
		s.Paces = []pace.Pace{{}}
	}
	s.Producers = max(1, s.Producers)
	s.Duration = cmp.Or(s.Duration, DefaultDuration)
	if err := s.Storm.Validate(); err != nil {
		return fmt.Errorf("storm %s: %w", s.Storm.Name, err)
	}
	switch {
	case s.Family == impls.Merge:
		s.Storm, err = s.Storm.ForNode(NodePods)
	case s.Pipeline == QueuePipeline:
		s.Storm = s.Storm.Metadata()
	}
	return err
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
func (s *Config) cells(name, variant, baseline string, g impls.Guarantees, k Knobs, build func(pace.Pace) lab.Workload) (cells []lab.Cell) {
	labels := labelSet{{Key: "impl", Value: variant}}
	labels.add("delivery", g.Mode)
	labels.add("pipeline", s.Pipeline)
	labels.add("source", s.Source)
	labels.add("storm", labelValue(s.Storm.Name))
	if s.Pipeline == QueuePipeline && s.Family != impls.Merge {
		labels.add("producers", s.Producers)
	}
	k.label(&labels)
	s.labelLoad(&labels, g)
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

// labelSet has the labels of a cell.
type labelSet []lab.Label

// add adds a label, unless the value is the zero value.
func (l *labelSet) add(key string, value any) {
	if !reflect.ValueOf(value).IsZero() {
		*l = append(*l, lab.Label{Key: key, Value: fmt.Sprint(value)})
	}
}

// workload returns the skeleton of a cell.
func (m *material) workload(name string, g impls.Guarantees, r pace.Pace, stages stages) *workload {
	return &workload{name: name, guarantees: g, material: m, rate: r, stall: m.stall(r), stages: stages}
}

// candidate is a variant in a comparison.
type candidate struct {
	name string
	// guarantees returns the guarantees with knobs.
	guarantees func(Knobs) impls.Guarantees
	// try builds an instance.
	try func(Knobs) (any, error)
	// workload returns the workload of a cell.
	workload func(Knobs, impls.Guarantees, pace.Pace) lab.Workload
}

// compare returns a comparison with the cells of the candidates. name is the benchmark's.
func (s *Config) compare(what, name, baseline string, f *fitting, candidates []candidate) (lab.Comparison, error) {
	c := lab.Comparison{Family: string(s.Family), Title: s.title(what), Latency: Handled}
	for _, v := range candidates {
		k, err := f.fit(v)
		if err != nil {
			return c, err
		}
		g := v.guarantees(k)
		c.Cells = append(c.Cells, s.cells(name, v.name, baseline, g, k, func(r pace.Pace) lab.Workload { return v.workload(k, g, r) })...)
	}
	return c, nil
}

func (m *material) compareDeltaFIFO() ([]lab.Comparison, error) {
	return m.compareDeliveries(func(v string, g impls.Guarantees, opts deltafifo.Options, r pace.Pace) lab.Workload {
		if m.Pipeline == InformerPipeline {
			return m.workload(v, g, r, &informerStages{variant: v, opts: opts})
		}
		if opts.Delivery == deltafifo.PerKey {
			opts.KnownObjects = everKnown{}
		}
		return m.workload(v, g, r, &fifo{build: func() (consumable, error) { return deltafifo.New(v, opts) }})
	})
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
	if s.Pipeline != InformerPipeline {
		return chosen(s.Impls, deltafifo.Variants(), deltafifo.Lookup)
	}
	resyncs := slices.ContainsFunc(s.Storm.Marks, isResync)
	upstream := func() (deltafifo.Variant, error) {
		if resyncs {
			return deltafifo.Variant{}, refuse("variant %s on storm %s, whose resyncs it has no call for", ClientGoInformer, s.Storm.Name)
		}
		v, err := deltafifo.Lookup(inOrderBaseline)
		v.Name = ClientGoInformer
		return v, err
	}
	all := deltafifo.Variants()
	if v, err := upstream(); err == nil {
		all = append([]deltafifo.Variant{v}, all...)
	}
	return chosen(s.Impls, all, func(name string) (deltafifo.Variant, error) {
		if name == ClientGoInformer {
			return upstream()
		}
		return deltafifo.Lookup(name)
	})
}

// compareDeliveries returns the comparisons of deltafifo, one for each delivery.
func (s *Config) compareDeliveries(build func(variant string, g impls.Guarantees, opts deltafifo.Options, r pace.Pace) lab.Workload) ([]lab.Comparison, error) {
	variants, err := s.deltaVariants()
	if err != nil {
		return nil, err
	}
	name := "DeltaFIFO"
	if s.Pipeline == InformerPipeline {
		name = "Informer"
	}
	baselines := map[deltafifo.Delivery]string{deltafifo.InOrder: inOrderBaseline, deltafifo.PerKey: perKeyBaseline}
	if slices.ContainsFunc(variants, func(v deltafifo.Variant) bool { return v.Name == ClientGoInformer }) {
		baselines[deltafifo.InOrder] = ClientGoInformer
	}
	var out []lab.Comparison
	used := make(map[string]bool)
	f := &fitting{knobs: s.Knobs}
	for _, delivery := range []deltafifo.Delivery{deltafifo.InOrder, deltafifo.PerKey} {
		if len(s.Modes) > 0 && !slices.Contains(s.Modes, string(delivery)) {
			continue
		}
		var candidates []candidate
		for _, v := range variants {
			g, ok := v.Mode(string(delivery))
			if !ok {
				continue
			}
			used[v.Name] = true
			options := func(k Knobs) deltafifo.Options { return k.deltafifo(deltafifo.Options{Delivery: delivery}) }
			candidates = append(candidates, candidate{
				name:       v.Name,
				guarantees: func(k Knobs) impls.Guarantees { return options(k).Label(g) },
				try:        func(k Knobs) (any, error) { return v.New(options(k)) },
				workload: func(k Knobs, g impls.Guarantees, r pace.Pace) lab.Workload {
					return build(v.Name, g, options(k), r)
				},
			})
		}
		taken := f.taken
		c, err := s.compare(string(delivery)+" delivery", name, baselines[delivery], f, candidates)
		if err != nil {
			return nil, err
		}
		// A delivery in which no variant takes the options is left out.
		if len(c.Cells) > 0 && (f.knobs.none() || f.taken > taken) {
			out = append(out, c)
		}
	}
	for _, v := range variants {
		if f.err() == nil && !used[v.Name] && len(s.Impls) > 0 {
			return nil, refuse("variant %s has no delivery among %q (it has: %s)", v.Name, s.Modes, strings.Join(modes(v.Guarantees), ", "))
		}
	}
	return out, f.err()
}

func (m *material) compareQueue() ([]lab.Comparison, error) {
	variants, err := chosen(m.Impls, queue.Variants(), queue.Lookup)
	if err != nil {
		return nil, err
	}
	var candidates []candidate
	for _, v := range variants {
		candidates = append(candidates, candidate{
			name: v.Name,
			guarantees: func(k Knobs) impls.Guarantees {
				g := v.Guarantees[0]
				g.Bounded = k.Capacity > 0
				return g
			},
			try: func(k Knobs) (any, error) { return v.New(k.queue()) },
			workload: func(k Knobs, g impls.Guarantees, r pace.Pace) lab.Workload {
				return m.workload(v.Name, g, r, &fifo{build: func() (consumable, error) { return queue.New(v.Name, k.queue()) }})
			},
		})
	}
	f := &fitting{knobs: m.Knobs}
	c, err := m.compare("", "Queue", "clientgo-fifo", f, candidates)
	return []lab.Comparison{c}, cmp.Or(err, f.err())
}

func (m *material) compareMerge() ([]lab.Comparison, error) {
	variants, err := chosen(m.Impls, merge.Variants(), merge.Lookup)
	if err != nil {
		return nil, err
	}
	name := "Merge"
	if m.Pipeline == KubeletPipeline {
		name = "Kubelet"
	}
	var candidates []candidate
	for _, v := range variants {
		candidates = append(candidates, candidate{
			name:       v.Name,
			guarantees: func(k Knobs) impls.Guarantees { return k.merge().Label(v.Guarantees[0]) },
			try:        func(k Knobs) (any, error) { return v.New(k.merge()) },
			workload: func(k Knobs, g impls.Guarantees, r pace.Pace) lab.Workload {
				build := func() (merge.Merger, error) { return merge.New(v.Name, k.merge()) }
				if m.Pipeline == KubeletPipeline {
					return m.workload(v.Name, g, r, &kubelet{build: build})
				}
				return m.workload(v.Name, g, r, &merging{build: build})
			},
		})
	}
	f := &fitting{knobs: m.Knobs}
	c, err := m.compare(fmt.Sprintf("a node of %d pods", m.Storm.Peak()), name, "reference", f, candidates)
	return []lab.Comparison{c}, cmp.Or(err, f.err())
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
			return nil, refuse("variant %s is named twice", name)
		}
		out = append(out, v)
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
