package controller

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/bench/controller/record"
	"watchlab/bench/controller/server"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/loadgen/manifest"
)

// Sizing says how the needs of a program are measured, for [Size]. A zero field takes its default. The tags are those of
// [experiment.Spec].
type Sizing struct {
	Manifests []string `json:"manifests,omitempty" flag:"manifest,array" help:"objects to begin with, and those that are copied: files, folders, URLs, -"`
	Recursive bool     `json:"recursive,omitempty" flag:"recursive,R" help:"read subfolders of --manifest (default false)"`
	Without   []string `json:"without,omitempty" flag:"without,array" help:"parts of the cluster that are left out: scheduler, kubelet, garbage-collector, namespace"`
	// Grow has the numbers of objects of a resource, as in pods=1k,10k. The objects are copies of the first of that
	// resource in Manifests, or of a built-in one. By default each resource that the program lists grows.
	Grow []string `json:"grow,omitempty" flag:"grow,array" help:"RESOURCE=N,N,…: numbers of objects (default: 1k,3k,9k of each resource that the program lists, of more than two 1k,9k)"`
	// At are the numbers to predict for, as in pods=100k. Of a resource that is not named there are none.
	At        []string        `json:"at,omitempty" flag:"at" help:"RESOURCE=N,…: predict for so many objects (default: the largest numbers measured)"`
	Rounds    int             `json:"rounds,omitempty" flag:"rounds" help:"rounds of all numbers (default 2)" min:"1"`
	InCluster bool            `json:"inCluster,omitempty" flag:"in-cluster" help:"give the program the configuration of a pod, not KUBECONFIG"`
	Settle    metav1.Duration `json:"settle,omitzero" flag:"settle" help:"longest time to become idle (default 1m)"`
	Command   []string        `json:"command"`
}

// SizeFile is the result in the folder of a [Size].
const SizeFile = "size.json"

// Units of the figures of a point, in benchmark format. Memory is resident and of no file.
const (
	UnitPeak        = "peak-B"         // the largest of the three peaks
	UnitFirstPeak   = "first-peak-B"   // from the start until it rests
	UnitRest        = "rest-B"         // idle after the first list
	UnitRelistPeak  = "relist-peak-B"  // while it lists all again
	UnitRestartPeak = "restart-peak-B" // of a new process with the objects as the first left them
	UnitStartCPU    = "start-cpu-ns"   // CPU time until it rests
	UnitStartSent   = "start-sent-B"   // bytes of the answers until then
	UnitStartCalls  = "start-requests" // until then
)

// SizeUnits are the units in their order.
var SizeUnits = []string{UnitPeak, UnitFirstPeak, UnitRest, UnitRelistPeak, UnitRestartPeak, UnitStartCPU, UnitStartSent, UnitStartCalls}

// Sized is the result of [Size].
type Sized struct {
	Env       lab.Env  `json:"env"`
	Sizing    Sizing   `json:"sizing"`
	Resources []string `json:"resources"` // that grew
	Points    []Point  `json:"points"`    // in the order in which they were measured
	// Laws are the linear laws of the figures by their unit: the constant, and an object of each of Resources.
	Laws map[string][]stats.Estimate `json:"laws,omitempty"`
	// At are the predictions by unit for so many objects.
	AtCounts    map[string]int            `json:"atCounts,omitempty"`
	At          map[string]stats.Estimate `json:"at,omitempty"`
	Watches     []Watched                 `json:"watches"`
	Interrupted bool                      `json:"interrupted,omitempty"`
}

// Point is one process with some numbers of objects.
type Point struct {
	Round   int                `json:"round"` // from 1
	Counts  map[string]int     `json:"counts"`
	Figures map[string]float64 `json:"figures"` // by unit
	Busy    bool               `json:"busy,omitempty"`
}

// Watched is what the program keeps a watch of.
type Watched struct {
	Resource string `json:"resource"`
	Scope    string `json:"scope"` // namespace, empty for all
	Selector string `json:"selector,omitempty"`
	Encoding string `json:"encoding"`
	Metadata bool   `json:"metadata,omitempty"` // metadata alone
	Sent     int64  `json:"sent"`               // bytes until the first rest, of the last point, which has the largest numbers
	Used     bool   `json:"used"`               // it gets or writes single objects
	// Of an object: the shares of its JSON that are not metadata, and that are managed fields.
	Body    float64 `json:"body"`
	Managed float64 `json:"managed"`
}

// growth is a resource with its numbers, ascending.
type growth struct {
	resource string
	counts   []int
}

// defaultCounts are far enough apart for a slope, and small enough for some minutes; fewCounts those of more than two
// resources.
var defaultCounts, fewCounts = []int{1000, 3000, 9000}, []int{1000, 9000}

// parseGrowth reads RESOURCE=N,N,…, with so many numbers at least.
func parseGrowth(text string, least int) (g growth, err error) {
	resource, counts, _ := strings.Cut(text, "=")
	for one := range strings.SplitSeq(counts, ",") {
		digits, thousands := strings.CutSuffix(one, "k")
		n, err := strconv.Atoi(digits)
		if thousands {
			n *= 1000
		}
		if err != nil || n < 0 || n > 10_000_000 || resource == "" {
			return g, fmt.Errorf("%q is not RESOURCE=N, with a number such as 500 or 10k", text)
		}
		g.counts = append(g.counts, n)
	}
	slices.Sort(g.counts)
	if g.counts = slices.Compact(g.counts); len(g.counts) < least {
		return g, fmt.Errorf("%q: two numbers at least", text)
	}
	g.resource = resource
	return g, nil
}

// growths reads Grow and At. The error is a [*manifest.Error].
func (s Sizing) growths() (grow, at []growth, err error) {
	for _, text := range s.Grow {
		g, err := parseGrowth(text, 2)
		if err == nil && slices.ContainsFunc(grow, func(other growth) bool { return other.resource == g.resource }) {
			err = fmt.Errorf("%s is given twice", g.resource)
		}
		if err != nil {
			return nil, nil, manifest.BadField("grow", err)
		}
		grow = append(grow, g)
	}
	for _, text := range s.At {
		g, err := parseGrowth(text, 1)
		if err != nil {
			return nil, nil, manifest.BadField("at", err)
		}
		at = append(at, g)
	}
	return grow, at, nil
}

// spec is that of a session. Its faults begin when the program rests.
func (s Sizing) spec(t timing) Spec {
	return Spec{
		Manifests: s.Manifests, Recursive: s.Recursive, Without: s.Without, InCluster: s.InCluster, Programs: []Program{{New, s.Command}},
		Plans: []string{fmt.Sprintf(relists, 3*t.steady)}, Speed: 1, Seed: 1, Server: "simulated", Replicas: 1, Rounds: 1,
		Settle: s.Settle, Warmup: metav1.Duration{Duration: time.Minute},
	}
}

// sizer measures points.
type sizer struct {
	Options
	result   *Sized
	spec     Spec
	prepared *prepared
	copied   map[string]manifest.Object // by resource
	played   int                        // of points
}

// Size measures a program with growing numbers of objects, each time in a new process with a new server: its memory at
// the first list, at rest, while it lists again and after a restart, its CPU time, and what it requests. It fits linear
// laws to them. If ctx ends, the result has the points so far. The error of bad input is a [*manifest.Error].
func Size(ctx context.Context, s Sizing, opts Options) (*Sized, error) {
	if len(s.Command) == 0 {
		return nil, manifest.Bad("command", "no program is given (watchlab size -- ./my-controller)")
	}
	grow, at, err := s.growths()
	if err := cmp.Or(err, s.spec(defaultTiming).Validate()); err != nil {
		return nil, err
	}
	opts = opts.complete()
	opts.timing = cmp.Or(opts.timing, defaultTiming)
	s.Rounds, s.Settle.Duration = cmp.Or(s.Rounds, 2), cmp.Or(s.Settle.Duration, time.Minute)
	r := &sizer{Options: opts, spec: s.spec(opts.timing), copied: map[string]manifest.Object{}}
	if r.prepared, err = opts.prepare(ctx, r.spec); err != nil {
		return nil, err
	}
	if err := r.templates(); err != nil {
		return nil, err
	}
	for i, g := range grow {
		if grow[i].resource = r.resource(g.resource); grow[i].resource == "" {
			return nil, manifest.Bad("grow", "%s: no object to copy; --manifest can have one", g.resource)
		}
	}
	if err := lab.MakeDir(r.Dir); err != nil {
		return nil, err
	}
	redacted := s
	redacted.Command, redacted.Manifests = lab.RedactAll(s.Command), lab.RedactAll(s.Manifests)
	r.result = &Sized{Env: lab.CaptureEnv(time.Now(), opts.Build, opts.Args), Sizing: redacted}
	err = r.all(ctx, s.Rounds, grow, at)
	if ctx.Err() != nil {
		r.result.Interrupted, err = true, nil
	} else if err != nil && len(r.result.Points) == 0 {
		return nil, err
	}
	return r.result, errors.Join(err, r.result.fit(), r.save())
}

// templates finds the objects that are copied: of Manifests, else the built-in ones.
func (r *sizer) templates() error {
	builtin, err := manifest.Decode("built-in objects", builtinObjects, false)
	if err != nil {
		return err
	}
	plural := map[schema.GroupKind]string{}
	for _, o := range r.prepared.objects {
		if u, ok := o.Object.(*unstructured.Unstructured); ok && o.Kind.Kind == "CustomResourceDefinition" {
			kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
			defined := server.DefinedBy(u)
			plural[schema.GroupKind{Group: defined.Group, Kind: kind}] = defined.Resource
		}
	}
	for _, o := range slices.Concat(r.prepared.objects, builtin) {
		guess, _ := meta.UnsafeGuessKindToResource(o.Kind)
		resource := schema.GroupResource{Group: o.Kind.Group, Resource: cmp.Or(plural[o.Kind.GroupKind()], guess.Resource)}.String()
		if _, known := r.copied[resource]; !known {
			r.copied[resource] = o
		}
	}
	return nil
}

// builtinObjects are one of each built-in kind.
//
//go:embed objects.yaml
var builtinObjects []byte

// resource completes the name of a resource that may lack its group; empty if there is no object to copy.
func (r *sizer) resource(name string) string {
	for _, full := range slices.Sorted(maps.Keys(r.copied)) { // pods is before pods.example.com
		if strings.HasPrefix(full+".", name+".") {
			return full
		}
	}
	return ""
}

// listed are the growths of all that the program lists.
func (r *sizer) listed(ctx context.Context) (grown []growth, err error) {
	r.Progress(Progress{Play: 1, Plays: 1, Name: "what it lists", Point: true})
	if _, err := r.point(ctx, nil); err != nil {
		return nil, err
	}
	var missing, resources []string
	counts := defaultCounts
	for _, w := range r.result.Watches { // They are sorted.
		resources = append(resources, w.Resource)
	}
	resources = slices.Compact(resources)
	if len(resources) > 2 {
		counts = fewCounts
	}
	for _, resource := range resources {
		if full := r.resource(resource); full != "" {
			grown = append(grown, growth{full, counts})
		} else {
			missing = append(missing, resource)
		}
	}
	if len(missing) > 0 {
		r.Notify(fmt.Sprintf("does not grow: %s: no object to copy; --manifest can have one", strings.Join(missing, ", ")))
	}
	if len(grown) == 0 {
		return nil, errors.New("the program lists nothing that can grow")
	}
	return grown, nil
}

// all measures all points of all rounds.
func (r *sizer) all(ctx context.Context, rounds int, grown, at []growth) (err error) {
	if len(grown) == 0 {
		if grown, err = r.listed(ctx); err != nil {
			return err
		}
	}
	r.result.AtCounts = map[string]int{}
	for _, g := range grown {
		r.result.Resources = append(r.result.Resources, g.resource)
		if len(at) == 0 {
			r.result.AtCounts[g.resource] = g.counts[len(g.counts)-1]
		}
	}
	for _, g := range at {
		resource := r.resource(g.resource)
		if !slices.Contains(r.result.Resources, resource) {
			return manifest.Bad("at", "%s does not grow", g.resource)
		}
		r.result.AtCounts[resource] = g.counts[0]
	}
	plan := countsOf(grown)
	for round := range rounds {
		for i, counts := range plan {
			name := fmt.Sprintf("%s/round=%d", countText(counts), round+1)
			r.Progress(Progress{Play: round*len(plan) + i + 1, Plays: rounds * len(plan), Name: name, Point: true})
			p, err := r.point(ctx, counts)
			if err != nil {
				return err
			}
			p.Round = round + 1
			r.result.Points = append(r.result.Points, *p)
			if err := r.save(); err != nil {
				return err
			}
		}
	}
	return nil
}

// countsOf are the points: all at their least, each by itself at its others, and all at their most.
func countsOf(grown []growth) (all []map[string]int) {
	least, most := map[string]int{}, map[string]int{}
	for _, g := range grown {
		least[g.resource], most[g.resource] = g.counts[0], g.counts[len(g.counts)-1]
	}
	all = append(all, least)
	for _, g := range grown {
		for _, n := range g.counts[1:] {
			one := maps.Clone(least)
			one[g.resource] = n
			all = append(all, one)
		}
	}
	if len(grown) > 1 {
		all = append(all, most)
	}
	return all
}

// countText is as in configmaps=2000/pods=8000.
func countText(counts map[string]int) string {
	var parts []string
	for _, resource := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s=%d", resource, counts[resource]))
	}
	return strings.Join(parts, "/")
}

// grown returns the objects of a point.
func (r *sizer) grown(counts map[string]int) ([]manifest.Object, error) {
	copied := map[string]bool{}
	for resource := range counts {
		copied[r.copied[resource].String()] = true
	}
	out := slices.DeleteFunc(slices.Clone(r.prepared.objects), func(o manifest.Object) bool { return copied[o.String()] })
	for _, resource := range slices.Sorted(maps.Keys(counts)) {
		from := r.copied[resource]
		u, err := from.Unstructured()
		if err != nil {
			return nil, err
		}
		for i := range counts[resource] {
			o, one := from, &unstructured.Unstructured{Object: maps.Clone(u.Object)}
			metadata, _ := u.Object["metadata"].(map[string]any)
			one.Object["metadata"] = maps.Clone(metadata) // The server changes no more; the rest is shared.
			one.SetName(fmt.Sprintf("%s-%d", u.GetName(), i))
			o.Object, o.Name = one, one.GetName()
			out = append(out, o)
		}
	}
	return out, nil
}

// point measures one point.
func (r *sizer) point(ctx context.Context, counts map[string]int) (_ *Point, err error) {
	ready := *r.prepared
	if ready.objects, err = r.grown(counts); err != nil {
		return nil, err
	}
	manifest.Settle(ready.objects) // Copies have one uid, and no owner has the name of what is copied.
	r.played++
	s := &session{
		spec: r.spec, prepared: &ready, program: r.spec.Programs[0], plan: ready.plans[0], seed: 1,
		dir: filepath.Join(r.Dir, playsDir, fmt.Sprintf("%02d", r.played)), timing: r.timing, notify: r.Notify,
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	s.begin()
	p := &Point{Counts: counts, Figures: map[string]float64{}}
	first, err := s.rest(ctx, p)
	if err != nil {
		return nil, err
	}
	r.requested(s, p)
	p.Figures[UnitFirstPeak], p.Figures[UnitRest], p.Figures[UnitStartCPU] = float64(first.Peak), float64(first.Memory), float64(first.CPU)
	if counts == nil { // Only what it lists was asked for.
		return p, nil
	}
	if err := s.relist(ctx); err != nil {
		return nil, err
	}
	relisted, err := s.rest(ctx, p)
	if err != nil {
		return nil, err
	}
	s.programs[0].kill()
	open, ended, err := s.server.Watches()
	if err == nil {
		s.foreign = open + ended
		err = errors.Join(s.programs[0].start(), s.awaitWatches(ctx))
	}
	if err != nil {
		return nil, err
	}
	restarted, err := s.rest(ctx, p)
	p.Figures[UnitRelistPeak], p.Figures[UnitRestartPeak] = float64(relisted.Peak), float64(restarted.Peak)
	p.Figures[UnitPeak] = float64(max(first.Peak, relisted.Peak, restarted.Peak))
	return p, err
}

// requested reads what the program has requested until it rested.
func (r *sizer) requested(s *session, p *Point) {
	accesses, _ := s.recorder.Result()
	watched, used := map[string]Watched{}, map[string]bool{}
	p.Figures[UnitStartCalls] = float64(len(accesses))
	for a := range record.Each(accesses) {
		p.Figures[UnitStartSent] += float64(a.Out)
		resource := a.Resource.GroupResource().String()
		if a.Verb != "list" && a.Verb != "watch" {
			used[resource] = true
			continue
		}
		if a.Background() || a.Code >= 300 {
			continue
		}
		w := Watched{
			Resource: resource, Scope: strings.TrimSuffix(a.Key, "/"), Selector: a.Selector, Encoding: a.Encoding, Metadata: a.Metadata,
		}
		key := fmt.Sprint(w)
		w.Sent = watched[key].Sent + a.Out
		watched[key] = w
	}
	r.result.Watches = nil
	for _, key := range slices.Sorted(maps.Keys(watched)) {
		w := watched[key]
		w.Used = used[w.Resource]
		if o, known := r.copied[w.Resource]; known {
			w.Body, w.Managed = shares(o)
		}
		r.result.Watches = append(r.result.Watches, w)
	}
}

// shares returns the shares of an object's JSON that are not metadata, and that are managed fields.
func shares(o manifest.Object) (body, managed float64) {
	length := func(v any) float64 {
		data, _ := json.Marshal(v) // It was read as one.
		return float64(len(data))
	}
	u, err := o.Unstructured()
	if err != nil {
		return 0, 0
	}
	all := length(u.Object)
	body = 1 - length(u.Object["metadata"])/all
	if fields := u.GetManagedFields(); len(fields) > 0 {
		managed = length(fields) / all
	}
	return body, managed
}

// save writes the result so far.
func (r *sizer) save() error {
	write := func(w io.Writer) error { return lab.EncodeJSON(w, r.result) }
	return errors.Join(file(r.Dir, SizeFile, write), file(r.Dir, BenchFile, r.result.WriteBench))
}

// WriteBench writes a benchmark line for each point.
func (o *Sized) WriteBench(w io.Writer) error {
	out := benchWriter(w, o.Env)
	for _, p := range o.Points {
		var values []stats.Value
		for _, unit := range SizeUnits {
			values = append(values, stats.Value{Unit: unit, Value: p.Figures[unit]})
		}
		if err := out.WriteValues("Size/"+countText(p.Counts), 1, values); err != nil {
			return err
		}
	}
	return nil
}

// fit fits the laws, if there are enough points.
func (o *Sized) fit() error {
	var x []float64
	for _, resource := range o.Resources {
		x = append(x, float64(o.AtCounts[resource]))
	}
	for _, unit := range SizeUnits {
		var points []stats.LinearPoint
		for _, p := range o.Points {
			point := stats.LinearPoint{Y: p.Figures[unit]}
			for _, resource := range o.Resources {
				point.X = append(point.X, float64(p.Counts[resource]))
			}
			points = append(points, point)
		}
		law, err := stats.FitLinear(points)
		if errors.Is(err, stats.ErrTooFewPoints) {
			return nil // It was interrupted.
		}
		if err != nil {
			return err
		}
		if o.Laws == nil {
			o.Laws, o.At = map[string][]stats.Estimate{}, map[string]stats.Estimate{}
		}
		o.Laws[unit], o.At[unit] = law.Coefficients, law.Predict(x)
	}
	return nil
}
