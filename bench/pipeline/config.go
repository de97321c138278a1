package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"watchlab/impls"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
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

// The default events of an unpaced round. It takes some 10 ms with a fast variant and
// about 1 s with the slowest.
const (
	defaultQueueEvents    = 200_000
	defaultMergeEvents    = 2_000
	defaultInformerEvents = 50_000
)

// DefaultDuration is the default length of a paced schedule.
const DefaultDuration = 2 * time.Second

// ErrConfig is wrapped by errors for an invalid [Config]. They name the allowed values and, in a [*manifest.Error],
// the field if one is wrong.
var ErrConfig = errors.New("invalid comparison")

// Config selects what [Compare] compares. The zero values of all fields but Family, Pipeline and Storm are
// defaults. experiment.Spec embeds it; the tags are explained there. A field with the tag "-" is text in the Spec,
// or comes from a file.
type Config struct {
	// Family whose variants are compared: deltafifo, queue or merge (default: merge for the kubelet pipeline, else deltafifo).
	Family   impls.Family `json:"family,omitempty" flag:"family,common" help:"family: deltafifo, queue, merge (default: the pipeline's)" enum:"deltafifo,queue,merge"`
	Impls    []string     `json:"variants,omitempty" flag:"impl,common" help:"variants of the family, by name (default all)"`
	Modes    []string     `json:"deliveries,omitempty" flag:"delivery" help:"deltafifo deliveries: in-order, per-key (default both)" enum:"in-order,per-key" family:"deltafifo"`
	Pipeline string       `json:"pipeline,omitempty" flag:"pipeline,common" help:"pipeline: queue, informer, kubelet (default queue)" enum:"queue,informer,kubelet"`
	// Source of the storm: memory or apiserver (simulated, over HTTP) (default: memory).
	Source string `json:"source,omitempty" flag:"source,common" help:"storm source: memory, apiserver (default memory)" enum:"memory,apiserver"`
	// Storm is the played storm. The family merge plays the pods of one node ([NodePods]). The
	// queue pipeline of the other families plays metadata only; see [storm.Storm.Metadata].
	Storm *storm.Storm `json:"-"`
	Paces []pace.Pace  `json:"-"` // release rates, one cell each; empty means one unpaced cell
	// Budget is the largest allowed lag of releases; a round that exceeds it is invalid. 0 means that of [pace.Budget].
	Budget time.Duration `json:"-"`
	// Duration is the length of a paced schedule; 0 means [DefaultDuration].
	Duration time.Duration `json:"-"`
	// Share is the played part of the storm. All shares together play the same events at
	// the same times as the whole storm does. Events counts all shares; its default grows
	// with the number of shares.
	Share storm.Share `json:"-"`
	// Faults of the simulated API server begin with the storm and are the same in each
	// round. With faults, the stall limit is three minutes, as clients back off.
	Faults []fault.Spec `json:"-"`
	// HandlerCost is the processor time that the informer's handler, or the queue's
	// consumer, spends on each event: a loop of fixed length, calibrated when idle.
	HandlerCost time.Duration `json:"-"`

	Seed      int64 `json:"seed,omitempty" flag:"seed" help:"seed of storm, paces and cell order (default 1)"`
	Producers int   `json:"producers,omitempty" flag:"producers" help:"producing goroutines, queue pipeline (default 1)" pipeline:"queue" family:"deltafifo,queue"`
	// Events of a round at least, after the initial list; the storm is repeated (default: 200,000 in the queue pipeline, 50,000 in the informer pipeline, 2,000 for merge, the storm as it is from the apiserver, and at a pace those of the duration).
	Events int `json:"events,omitempty" flag:"events" help:"least events a round (default: by pipeline)"`
	// Readers is the number of goroutines that list the indexer without a pause, in the informer pipeline (default: 0).
	Readers int `json:"readers,omitempty" flag:"readers" help:"goroutines listing the indexer, informer pipeline (default 0)" pipeline:"informer" max:"1024"`
	// Stalled holds the consumer until all events are queued, and measures bytes queued and the drain; queue pipeline, unpaced, unbounded (default: false).
	Stalled bool   `json:"stalled,omitempty" flag:"stalled" help:"hold the consumer until all events are queued (default false)" pipeline:"queue" family:"deltafifo,queue"`
	Procs   int    `json:"procs,omitempty" flag:"procs" help:"GOMAXPROCS of a cell (default: the process's)" max:"1024"`
	Stamps  Stamps `json:"stamps,omitempty" flag:"stamps" help:"stamps of unpaced events: none, sampled, all (default sampled)" enum:"none,sampled,all" family:"deltafifo,queue"`
	// Wire applies to the source apiserver. The zero value is client-go JSON. Labels omit it, so old results compare.
	source.Wire
	// Store of the informer, a variant of the family store, as `watchlab list` shows it; client-go's own informer keeps its own (default: clientgo).
	Store string `json:"store,omitempty" flag:"store" help:"store of the informer, by name (default clientgo)" pipeline:"informer"`
	// Workqueue between handler and worker, a variant of the family workqueue; client-go's own informer keeps client-go's (default: clientgo).
	Workqueue string `json:"workqueue,omitempty" flag:"workqueue" help:"workqueue before the worker, by name (default clientgo)" pipeline:"informer"`
	// Knobs are options of variants. A variant that does not support them ignores them.
	Knobs Knobs `json:"knobs,omitzero"`
	// Static pods of each source (file, http) in the kubelet pipeline; every 5 ms one pod of each source changes (default: 0, the api source alone).
	Static int `json:"staticPods,omitempty" flag:"static" help:"static pods a kubelet source, kubelet pipeline (default 0)" pipeline:"kubelet" max:"1000"`
}

// Knobs are options of variants; the zero value is each variant's default. A variant without these
// options, such as client-go's, is played without them, as the baseline; its labels and guarantees
// show that. At least one variant has to take them. The tags are those of experiment.Spec.
type Knobs struct {
	// Capacity of a delta queue, and of the kubelet's channel; producers block when it is full (default: 0, unbounded).
	Capacity  int `json:"capacity,omitempty" flag:"capacity" help:"queue capacity; producers block when full (default unbounded)" family:"deltafifo,merge"`
	BatchSize int `json:"batchSize,omitempty" flag:"batch-size" help:"most events of one deltafifo batch (default 1000)" min:"1" family:"deltafifo"`
	Shards    int `json:"shards,omitempty" flag:"shards" help:"shards of a sharded queue (default: the variant's)" family:"deltafifo,queue"`
	// Throttle makes producers wait for process while two batches are queued, as client-go's RealFIFO does: yes or no (default: yes).
	Throttle string `json:"throttle,omitempty" flag:"throttle" help:"producers wait while two batches are queued: yes, no (default yes)" enum:"yes,no" family:"deltafifo"`
	// HandOver of slices: owned or lent (deltafifo reuses them) (default: owned).
	HandOver impls.Ownership `json:"handOver,omitempty" flag:"handover" help:"ownership of slices: owned, lent (default owned)" enum:"owned,lent" family:"deltafifo"`
}

func (k Knobs) none() bool { return k == Knobs{} }

// badField refuses the value of a field, which has its name in YAML.
func badField(field, format string, args ...any) error {
	return manifest.BadField(field, refuse(format, args...))
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
}

// complete sets defaults and checks combinations. experiment.Spec.Validate checks single values, and that a field
// applies to the pipeline, the source and the family.
func (s *Config) complete() error {
	s.Source = cmp.Or(s.Source, source.MemoryName)
	if s.Storm == nil || len(s.Storm.Events) == 0 {
		return refuse("the storm has no events")
	}
	relisted := slices.ContainsFunc(s.Storm.Marks, isRelist)
	paced := slices.ContainsFunc(s.Paces, pace.Pace.Paced)
	switch allowed := families[s.Pipeline]; {
	case !slices.Contains(allowed, s.Family):
		names := join(allowed, func(f impls.Family) string { return string(f) })
		return badField("family", "the %s pipeline has no place for family %s (allowed: %s)", s.Pipeline, s.Family, names)
	case s.Pipeline == QueuePipeline && s.Source != source.MemoryName:
		return badField("source", "the queue pipeline takes its events from %s only, not from source %q", source.MemoryName, s.Source)
	case s.Producers > 1 && relisted:
		return badField("producers", "%d producers on storm %s, which is relisted: a Reflector is one (allowed: 1)", s.Producers, s.Storm.Name)
	case s.Stamps != "" && paced:
		return badField("stamps", "stamps %s at a pace, where every event is stamped (allowed: unpaced)", s.Stamps)
	case s.Stalled && s.Knobs.Capacity > 0:
		return badField("stalled", "a stalled consumer and capacity %d: producers would wait for ever (allowed: unbounded)", s.Knobs.Capacity)
	case s.Stalled && paced:
		return badField("stalled", "a stalled consumer at a pace: what is measured is how it drains (allowed: unpaced)")
	case s.Stalled && s.Stamps != "":
		return badField("stamps", "stamps %s with a stalled consumer, which has no latencies", s.Stamps)
	case (s.Store != "" || s.Workqueue != "") && slices.Equal(s.Impls, []string{ClientGoInformer}):
		return badField(map[bool]string{true: "store", false: "workqueue"}[s.Store != ""], "a store %q or a workqueue %q for %s alone, which keeps client-go's", s.Store, s.Workqueue, ClientGoInformer)
	}
	if err := s.checkStacks(); err != nil {
		return err
	}
	if s.Wire != (source.Wire{}) && (len(s.Impls) == 0 || stackOf(s.Impls[0]).decoder == "") {
		var err error
		if s.Wire, err = s.Wire.Complete(); err != nil {
			return err
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
	var err error
	switch {
	case s.Family == impls.Merge:
		s.Storm, err = s.Storm.ForNode(NodePods)
	case s.Pipeline == QueuePipeline:
		s.Storm = s.Storm.Metadata()
	}
	return err
}

// stagesOf returns the store and the workqueue of a variant's cells. Client-go's own informer keeps
// client-go's.
func (s *Config) stagesOf(variant string) (store, queue string) {
	if stackOf(variant).informer == ClientGoInformer {
		return "", ""
	}
	return s.Store, s.Workqueue
}

const defaultWorkqueue = "clientgo"

// fresh reports whether each event has an object of its own, as a decoder makes it. An API server's client
// decodes each object anyway. All are made before the clock starts: their allocation is no cost of a variant.
func (s *Config) fresh() bool { return s.Source == source.MemoryName }

func (s *Config) stampsOf() Stamps {
	switch {
	case s.Family == impls.Merge:
		return StampsAll
	case s.Stalled:
		// A latency would measure how long the consumer was held.
		return StampsNone
	}
	return s.Stamps
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
		n = min(n, max(plentyEvents, int(time.Second/s.HandlerCost))) // about 1 s of handling
	}
	return n
}
