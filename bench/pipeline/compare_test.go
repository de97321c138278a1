package pipeline_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

func TestCompareRefuses(t *testing.T) {
	small := smallStorm(t)
	listOnly := *small
	listOnly.Events = small.Events[:small.Initial]
	listOnly.Keys = small.Initial
	few := *small
	few.Events, few.Keys = small.Events[:small.Initial+1], small.Initial
	few.Events = slices.Clone(few.Events)
	few.Events[small.Initial].Type = watch.Deleted
	few.Events[small.Initial].Key, few.Events[small.Initial].KeyIndex = few.Events[0].Key, 0
	goner := few.Events[0].Object.(*v1.Pod).DeepCopy()
	goner.ResourceVersion = strconv.Itoa(small.Initial + 1)
	few.Events[small.Initial].Object = goner
	broken := *small
	broken.Keys++
	node := &storm.Storm{Name: "nodes", Keys: 1, Events: []storm.Event{{
		Type: watch.Added, Seq: 1, Key: "node-a",
		Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", ResourceVersion: "1"}},
	}}}
	one := *small
	one.Keys, one.Initial, one.Events = 1, 0, node.Events
	overWire := func(s *pipeline.Config, w source.Wire, impls ...string) {
		s.Pipeline, s.Source, s.Wire, s.Impls = "informer", "apiserver", w, impls
	}
	for title, tc := range map[string]struct {
		change func(*pipeline.Config)
		kind   error
		want   string
	}{
		"queue in informer":  {func(s *pipeline.Config) { s.Family, s.Pipeline = impls.Queue, "informer" }, pipeline.ErrConfig, "the informer pipeline has no place for family queue (allowed: deltafifo)"},
		"merge in informer":  {func(s *pipeline.Config) { s.Family, s.Pipeline = impls.Merge, "informer" }, pipeline.ErrConfig, "allowed: deltafifo"},
		"deltafifo, kubelet": {func(s *pipeline.Config) { s.Pipeline = "kubelet" }, pipeline.ErrConfig, "the kubelet pipeline has no place for family deltafifo (allowed: merge)"},
		"source of queue":    {func(s *pipeline.Config) { s.Source = "apiserver" }, pipeline.ErrConfig, "the queue pipeline takes its events from memory only"},
		"informer producers": {func(s *pipeline.Config) { s.Pipeline, s.Producers = "informer", 2 }, pipeline.ErrConfig, "2 producers"},
		"merge producers":    {func(s *pipeline.Config) { s.Family, s.Producers = impls.Merge, 2 }, pipeline.ErrConfig, "2 producers"},
		"modes of queue":     {func(s *pipeline.Config) { s.Family, s.Modes = impls.Queue, []string{"per-key"} }, pipeline.ErrConfig, "which has none"},
		"mode":               {func(s *pipeline.Config) { s.Modes = []string{"sideways"} }, pipeline.ErrConfig, `mode "sideways" (allowed: in-order, per-key)`},
		"batch of queue":     {func(s *pipeline.Config) { s.Family, s.Knobs.BatchSize = impls.Queue, 5 }, pipeline.ErrConfig, "batch size for family queue, which has none"},
		"shards of merge":    {func(s *pipeline.Config) { s.Family, s.Knobs.Shards = impls.Merge, 5 }, pipeline.ErrConfig, "shards for family merge, which has none"},
		"knob of no variant": {func(s *pipeline.Config) { s.Impls, s.Knobs.Capacity = []string{"clientgo-deltafifo"}, 5 }, impls.ErrOptions, "no variant takes these options: clientgo-deltafifo: invalid options: Capacity 5"},
		"variant's mode":     {func(s *pipeline.Config) { s.Impls, s.Modes = []string{"clientgo-deltafifo"}, []string{"in-order"} }, pipeline.ErrConfig, "variant clientgo-deltafifo has no delivery among [\"in-order\"] (it has: per-key)"},

		"variant":       {func(s *pipeline.Config) { s.Impls = []string{"best"} }, impls.ErrUnknownVariant, `unknown variant "best" (have `},
		"variant twice": {func(s *pipeline.Config) { s.Impls = []string{"cond", "cond"} }, pipeline.ErrConfig, "variant cond is named twice"},
		"no storm":      {func(s *pipeline.Config) { s.Storm = nil }, pipeline.ErrConfig, "the storm has no events"},
		"empty storm":   {func(s *pipeline.Config) { s.Storm = &storm.Storm{} }, pipeline.ErrConfig, "the storm has no events"},
		"list only":     {func(s *pipeline.Config) { s.Storm = &listOnly }, pipeline.ErrConfig, "has 0 events after its initial list"},
		"too few":       {func(s *pipeline.Config) { s.Storm = &few }, pipeline.ErrConfig, "has 1 events after its initial list, too few to measure anything by (1000 are needed)"},
		"invalid storm": {func(s *pipeline.Config) { s.Storm = &broken }, storm.ErrInvalid, "recordings/small.jsonl.gz"},
		"relisted":      {func(s *pipeline.Config) { s.Storm, s.Producers = profileStorm(t, "relist"), 2 }, pipeline.ErrConfig, "which is relisted"},
		"static pods":   {func(s *pipeline.Config) { s.Family, s.Pipeline, s.Static = impls.Merge, "kubelet", 1001 }, pipeline.ErrConfig, "1001 static pods"},
		"objects":       {func(s *pipeline.Config) { s.Objects = "borrowed" }, pipeline.ErrConfig, `objects "borrowed"`},
		"small share":   {func(s *pipeline.Config) { s.Storm, s.Share, s.Events = &one, storm.Share{Index: 0, Count: 2}, 1000 }, pipeline.ErrConfig, "fewer shares"},

		"decoder":             {func(s *pipeline.Config) { overWire(s, source.Wire{Decode: "nobody"}) }, impls.ErrUnknownVariant, "nobody"},
		"encoding":            {func(s *pipeline.Config) { overWire(s, source.Wire{Encoding: "xml"}) }, impls.ErrUnknownVariant, "clientgo-xml"},
		"encoding of decoder": {func(s *pipeline.Config) { overWire(s, source.Wire{Encoding: decode.CBOR, Decode: "clientgo-json"}) }, impls.ErrOptions, "cbor"},
		"wire of memory":      {func(s *pipeline.Config) { overWire(s, source.Wire{Encoding: decode.JSON}); s.Source = "memory" }, pipeline.ErrConfig, "from source memory"},
		"wire of kubelet": {func(s *pipeline.Config) {
			s.Family, s.Pipeline, s.Wire.InitialList = impls.Merge, "kubelet", source.List
		}, pipeline.ErrConfig, "in the kubelet"},
		"decoder of stack":     {func(s *pipeline.Config) { overWire(s, source.Wire{Decode: "shared"}, "watchlab") }, pipeline.ErrConfig, "stack watchlab"},
		"encoding of stack":    {func(s *pipeline.Config) { overWire(s, source.Wire{Encoding: decode.CBOR}, "watchlab") }, impls.ErrOptions, "cbor"},
		"stack and variant":    {func(s *pipeline.Config) { overWire(s, source.Wire{}, "watchlab", "ring") }, pipeline.ErrConfig, "beside other variants"},
		"stack from memory":    {func(s *pipeline.Config) { overWire(s, source.Wire{}, "watchlab"); s.Source = "memory" }, pipeline.ErrConfig, "from source memory"},
		"store":                {func(s *pipeline.Config) { s.Pipeline, s.Store = "informer", "nobody" }, impls.ErrUnknownVariant, `store: unknown variant "nobody" (have clientgo`},
		"workqueue":            {func(s *pipeline.Config) { s.Pipeline, s.Workqueue = "informer", "nobody" }, impls.ErrUnknownVariant, `workqueue: unknown variant "nobody" (have clientgo`},
		"workqueue of a queue": {func(s *pipeline.Config) { s.Workqueue = "clientgo" }, pipeline.ErrConfig, "in the queue pipeline (allowed: the informer"},
		"client-go's store": {
			func(s *pipeline.Config) {
				s.Pipeline, s.Store, s.Impls = "informer", "clientgo", []string{pipeline.ClientGoInformer}
			}, pipeline.ErrConfig, "which keeps client-go's",
		},

		"merge of nodes": {func(s *pipeline.Config) { s.Family, s.Storm = impls.Merge, node }, storm.ErrNotPods, "nodes"},
	} {
		t.Run(title, func(t *testing.T) {
			spec := pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "queue", Storm: small}
			tc.change(&spec)
			got, err := pipeline.Compare(spec)
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) || got != nil {
				t.Errorf("error %v, want a %v with %q", err, tc.kind, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
		})
	}
}

// TestCompareCells: each delivery has its own table and its own baseline.
func TestCompareCells(t *testing.T) {
	small := smallStorm(t)
	for title, tc := range map[string]struct {
		pipeline.Config
		want []string
	}{
		"deltafifo": {
			pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"clientgo-deltafifo", "clientgo-realfifo-batch", "cond"}, Producers: 8, Paces: rates(0, 250)},
			[]string{
				"in-order delivery, queue pipeline, storm recordings/small.jsonl.gz, 8 producers",
				"* DeltaFIFO/impl=clientgo-realfifo-batch/delivery=in-order/pipeline=queue/source=memory/storm=small/producers=8/rate=max",
				"* DeltaFIFO/impl=clientgo-realfifo-batch/delivery=in-order/pipeline=queue/source=memory/storm=small/producers=8/rate=250",
				"DeltaFIFO/impl=cond/delivery=in-order/pipeline=queue/source=memory/storm=small/producers=8/rate=max",
				"DeltaFIFO/impl=cond/delivery=in-order/pipeline=queue/source=memory/storm=small/producers=8/rate=250",
				"per-key delivery, queue pipeline, storm recordings/small.jsonl.gz, 8 producers",
				"* DeltaFIFO/impl=clientgo-deltafifo/delivery=per-key/pipeline=queue/source=memory/storm=small/producers=8/rate=max",
				"* DeltaFIFO/impl=clientgo-deltafifo/delivery=per-key/pipeline=queue/source=memory/storm=small/producers=8/rate=250",
				"DeltaFIFO/impl=cond/delivery=per-key/pipeline=queue/source=memory/storm=small/producers=8/rate=max",
				"DeltaFIFO/impl=cond/delivery=per-key/pipeline=queue/source=memory/storm=small/producers=8/rate=250",
			},
		},
		"queue": {
			pipeline.Config{Family: impls.Queue, Pipeline: "queue", Impls: []string{"clientgo-fifo", "cond"}},
			[]string{
				"queue pipeline, storm recordings/small.jsonl.gz",
				"* Queue/impl=clientgo-fifo/pipeline=queue/source=memory/storm=small/producers=1/rate=max",
				"Queue/impl=cond/pipeline=queue/source=memory/storm=small/producers=1/rate=max",
			},
		},
		"kubelet": {
			pipeline.Config{Family: impls.Merge, Pipeline: "kubelet", Source: "memory", Impls: []string{"cond"}},
			[]string{
				"a node of 20 pods, kubelet pipeline, storm recordings/small.jsonl.gz, source memory",
				"Kubelet/impl=cond/pipeline=kubelet/source=memory/storm=small/rate=max",
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			tc.Storm = small
			comparisons, err := pipeline.Compare(tc.Config)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range comparisons {
				if c.Latency != observe.Handled {
					t.Errorf("%s: headline %q", c.Title, c.Latency)
				}
				got = append(got, c.Title)
				for _, cl := range c.Cells {
					line := name(cl)
					if cl.Baseline {
						line = "* " + line
					}
					if cl.Guarantees == "" {
						t.Errorf("%s: no guarantees", line)
					}
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestKnobs: variants that take the options show them in labels and guarantees. The
// baseline is played without them. All runs keep every invariant.
func TestKnobs(t *testing.T) {
	t.Parallel()
	for title, tc := range map[string]struct {
		spec pipeline.Config
		want map[string]string
	}{
		"bounded and lent": {
			pipeline.Config{Family: impls.DeltaFIFO, Modes: []string{"in-order"}, Impls: []string{"clientgo-realfifo-batch", "ring"}, Knobs: pipeline.Knobs{Capacity: 7, HandOver: impls.Lent}},
			map[string]string{"clientgo-realfifo-batch": "", "ring": "capacity=7 handover=lent"},
		},
		"latest": {
			pipeline.Config{Family: impls.DeltaFIFO, Impls: []string{"clientgo-deltafifo", "cond"}, Knobs: pipeline.Knobs{Compaction: deltafifo.Latest}},
			map[string]string{"clientgo-deltafifo": "", "cond": "compaction=latest"},
		},
		"shared": {
			pipeline.Config{Family: impls.Merge, Impls: []string{"reference", "cond"}, Knobs: pipeline.Knobs{HandOver: impls.Shared}},
			map[string]string{"reference": "", "cond": "handover=shared"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			tc.spec.Pipeline, tc.spec.Storm, tc.spec.Events = pipeline.QueuePipeline, smallStorm(t), 2000
			comparisons, err := pipeline.Compare(tc.spec)
			if err != nil || len(comparisons) != 1 {
				t.Fatalf("%d comparisons, %v", len(comparisons), err)
			}
			got := map[string]string{}
			for _, c := range comparisons[0].Cells {
				var knobs []string
				impl := ""
				for _, l := range c.Labels {
					switch l.Key {
					case "impl":
						impl = l.Value
					case "capacity", "handover", "compaction":
						knobs = append(knobs, l.Key+"="+l.Value)
					}
				}
				got[impl] = strings.Join(knobs, " ")
				if unequal := strings.Contains(c.Guarantees, "lent") || strings.Contains(c.Guarantees, "shared") || strings.Contains(c.Guarantees, "coalesces latest"); unequal != (got[impl] != "") {
					t.Errorf("%s: guarantees are %q", impl, c.Guarantees)
				}
				if _, run, check := play(t.Context(), t, c); run != nil || check != nil {
					t.Errorf("%s: %v, %v", impl, run, check)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
