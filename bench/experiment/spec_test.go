package experiment_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/experiment"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/source"
)

func TestParse(t *testing.T) {
	got, err := experiment.Parse("x.yaml", []byte("family: queue\nstorm: {name: gang, scale: 0.1}\npaces: [max, \"1000\"]\nbudget: 1m\nknobs:\n  batchSize: 10\n"))
	want := experiment.Spec{
		Config: pipeline.Config{Family: "queue", Knobs: pipeline.Knobs{BatchSize: 10}},
		Storm:  experiment.Storm{Name: "gang", Scale: 0.1}, Paces: []string{"max", "1000"}, Budget: metav1.Duration{Duration: time.Minute},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	var again experiment.Spec
	if err := json.Unmarshal(got.JSON(), &again); err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("%v: %+v is parsed again as %+v", err, got, again)
	}
}

// TestReplan: the Spec of a plan, with its defaults, plans the same.
func TestReplan(t *testing.T) {
	small, queue := experiment.Storm{Name: "steady", Scale: 0.01}, pipeline.Config{Family: "queue"}
	quick := experiment.Quick()
	for i := range quick.Parts {
		quick.Parts[i].Storm = small
	}
	for name, s := range map[string]experiment.Spec{
		"quick": quick, "family": {Config: queue, Storm: small}, "budget": {Config: queue, Storm: small, Budget: metav1.Duration{Duration: time.Second}},
		"knee":  {Storm: small, Search: &experiment.Search{Knee: &experiment.KneeSearch{}}, Budget: metav1.Duration{Duration: time.Second}},
		"scale": {Config: pipeline.Config{Modes: []string{"per-key"}}, Storm: small, Search: &experiment.Search{Scale: &experiment.Scale{Over: "shards=1,2"}}},
		"share": {Config: queue, Storm: small, Share: "0/2"},
	} {
		first, err := experiment.New(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var kept experiment.Spec
		if err := json.Unmarshal(first.Options.Experiment, &kept); err != nil {
			t.Fatal(err)
		}
		again, err := experiment.New(kept)
		if err != nil {
			t.Fatalf("%s again: %v", name, err)
		}
		if diff := cmp.Diff(first.Spec, again.Spec); diff != "" {
			t.Errorf("%s (-first +again):\n%s", name, diff)
		}
		if a, b := cellNames(first), cellNames(again); !slices.Equal(a, b) || first.Options.Name != again.Options.Name {
			t.Errorf("%s: %s plays %q, replanned %s %q", name, first.Options.Name, a, again.Options.Name, b)
		}
	}
}

func cellNames(p *experiment.Plan) []string {
	var all []string
	for _, c := range p.Comparisons {
		for _, cl := range c.Cells {
			all = append(all, c.Title+" "+c.Input+" "+cl.BenchName())
		}
	}
	return all
}

// TestEveryFieldIsDocumented: every field of the Spec has a help text and a flag.
func TestEveryFieldIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	all := &experiment.Spec{Search: &experiment.Search{Knee: &experiment.KneeSearch{}, Scale: &experiment.Scale{}}}
	for _, f := range experiment.Fields(all) {
		if f.Help == "" || seen[f.Flag] || experiment.FlagOf(f.Path) != f.Flag || experiment.Path(f.Flag) != f.Path {
			t.Errorf("field %s, flag %s: %q", f.Path, f.Flag, f.Help)
		}
		seen[f.Flag] = true
	}
}

// TestValues: the values in the tags are those of the packages that define them.
func TestValues(t *testing.T) {
	var encodings []string
	for _, e := range decode.Encodings() {
		encodings = append(encodings, string(e))
	}
	want := map[string][]string{
		"encoding": encodings, "initialList": {source.List, source.WatchList},
		"compression":    {source.Gzip, source.Uncompressed},
		"family":         {string(impls.DeltaFIFO), string(impls.Queue), string(impls.Merge)},
		"pipeline":       {pipeline.QueuePipeline, pipeline.InformerPipeline, pipeline.KubeletPipeline},
		"stamps":         {string(pipeline.StampsNone), string(pipeline.StampsSampled), string(pipeline.StampsAll)},
		"source":         source.Names(),
		"knobs.handOver": {string(impls.Owned), string(impls.Lent)},
		"knobs.throttle": {"yes", "no"},
		"deliveries":     {string(deltafifo.InOrder), string(deltafifo.PerKey)},
	}
	got := map[string][]string{}
	for _, f := range experiment.Fields(new(experiment.Spec)) {
		if f.Values != nil {
			got[f.Path] = f.Values
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
