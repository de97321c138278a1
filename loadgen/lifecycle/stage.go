package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/itchyny/gojq"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/manifest"
)

//go:embed stages/*.yaml
var builtin embed.FS

// Stage changes the objects of a kind some time after they match. Of several stages that match, one is drawn
// by its weight.
type Stage struct {
	Name   string
	kind   schema.GroupKind
	always bool // it has a selector
	match  []requirement
	labels map[string]string
	notes  map[string]string // annotations
	weight source
	delay  *source // in milliseconds; nil for none
	upTo   *source // with jitter
	steps  []step
}

// source is a number, unless an expression finds another one.
type source struct {
	number int64
	from   *gojq.Code // nil for none
}

// step is an action of a stage, with the templates of its patches.
type step struct {
	stepForm
	patch, apply *template.Template
}

type requirement struct {
	key      *gojq.Code
	operator string
	values   []string
}

// The form of a file: KWOK's Stage, kwok.x-k8s.io/v1alpha1 (KWOK v0.8, pkg/apis/v1alpha1).
type (
	stageForm struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Spec       specForm          `json:"spec"`
		Status     any               `json:"status"`
	}
	specForm struct {
		ResourceRef struct {
			APIGroup *string `json:"apiGroup"`
			Kind     string  `json:"kind"`
		} `json:"resourceRef"`
		Selector *struct {
			MatchLabels      map[string]string `json:"matchLabels"`
			MatchAnnotations map[string]string `json:"matchAnnotations"`
			MatchExpressions []struct {
				queryForm
				JQ  *queryForm `json:"jq"`
				CEL *celForm   `json:"cel"`
			} `json:"matchExpressions"`
		} `json:"selector"`
		Weight     int64     `json:"weight"`
		WeightFrom *fromForm `json:"weightFrom"`
		Delay      *struct {
			Duration     int64     `json:"durationMilliseconds"`
			DurationFrom *fromForm `json:"durationFrom"`
			Jitter       *int64    `json:"jitterDurationMilliseconds"`
			JitterFrom   *fromForm `json:"jitterDurationFrom"`
		} `json:"delay"`
		Next *struct {
			Event             *eventForm      `json:"event"`
			Finalizers        *finalizersForm `json:"finalizers"`
			Delete            bool            `json:"delete"`
			Patches           []patchForm     `json:"patches"`
			StatusTemplate    string          `json:"statusTemplate"`
			StatusSubresource *string         `json:"statusSubresource"`
			StatusPatchAs     any             `json:"statusPatchAs"`
		} `json:"next"`
		ImmediateNextStage bool       `json:"immediateNextStage"`
		Steps              []stepForm `json:"steps"`
	}
	queryForm struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	}
	celForm struct {
		Expression string `json:"expression"`
	}
	fromForm struct {
		ExpressionFrom string   `json:"expressionFrom"`
		JQ             *celForm `json:"jq"` // which has the same field
		CEL            *celForm `json:"cel"`
	}
	stepForm struct {
		Patch      *patchForm      `json:"patch"`
		Event      *eventForm      `json:"event"`
		Finalizers *finalizersForm `json:"finalizers"`
		Delete     bool            `json:"delete"`
		Apply      *patchForm      `json:"apply"`
	}
	patchForm struct {
		Subresource   string `json:"subresource"`
		Root          string `json:"root"`
		Template      string `json:"template"`
		Type          string `json:"type"`
		Impersonation any    `json:"impersonation"`
	}
	finalizersForm struct {
		Add    []finalizerForm `json:"add"`
		Remove []finalizerForm `json:"remove"`
		Empty  bool            `json:"empty"`
	}
	finalizerForm struct {
		Value string `json:"value"`
	}
	eventForm struct {
		Type    string `json:"type"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
)

// ReadStages reads the stages of YAML files; without a file, the built-in stages. Documents of other kinds are
// skipped. The fields are those of KWOK's Stage, v1alpha1, and the functions of its templates KWOK's.
// immediateNextStage has no effect, because every change is looked at, nor have impersonations; expressions in CEL
// are those that fromCEL knows. A stage without a selector matches nothing. An error is a [*manifest.Error].
func ReadStages(files ...string) ([]Stage, error) {
	read := os.ReadFile
	if len(files) == 0 {
		var err error
		if files, err = fs.Glob(builtin, "stages/*.yaml"); err != nil {
			return nil, err
		}
		read = builtin.ReadFile
	}
	var stages []Stage
	for _, file := range files {
		data, err := read(file)
		if err != nil {
			return nil, err
		}
		some, err := parseStages(file, data)
		if err != nil {
			return nil, err
		}
		stages = append(stages, some...)
	}
	return stages, nil
}

func parseStages(file string, data []byte) (stages []Stage, err error) {
	forms, err := manifest.StrictAll[stageForm](file, data, "Stage")
	if err != nil {
		return nil, err
	}
	for _, form := range forms {
		s, err := form.stage()
		if err != nil {
			return nil, &manifest.Error{File: file, Err: fmt.Errorf("stage %q: %w", s.Name, err)}
		}
		stages = append(stages, s)
	}
	if len(stages) == 0 {
		return nil, &manifest.Error{File: file, Err: errors.New("it has no stages")}
	}
	return stages, err
}

func (f *stageForm) stage() (s Stage, err error) {
	s.Name = f.Metadata.Name
	spec := &f.Spec
	switch {
	case f.Kind != "Stage" || !strings.HasPrefix(f.APIVersion, "kwok.x-k8s.io/"):
		return s, fmt.Errorf("apiVersion %q and kind %q (want kwok.x-k8s.io/v1alpha1 and Stage)", f.APIVersion, f.Kind)
	case s.Name == "":
		return s, errors.New("metadata.name is missing")
	case spec.ResourceRef.Kind == "":
		return s, errors.New("spec.resourceRef.kind is missing")
	case spec.Weight < 0 || spec.Delay != nil && (spec.Delay.Duration < 0 || ptr.Deref(spec.Delay.Jitter, 0) < 0):
		return s, errors.New("a delay or the weight is negative")
	}
	group, _, hasVersion := strings.Cut(ptr.Deref(spec.ResourceRef.APIGroup, "v1"), "/")
	if !hasVersion && group == "v1" {
		group = ""
	}
	s.kind = schema.GroupKind{Group: group, Kind: spec.ResourceRef.Kind}
	if s.always = spec.Selector != nil; s.always {
		s.labels, s.notes = spec.Selector.MatchLabels, spec.Selector.MatchAnnotations
		for _, e := range spec.Selector.MatchExpressions {
			q := e.queryForm
			if e.JQ != nil {
				q = *e.JQ
			} else if e.CEL != nil {
				q = queryForm{"", "In", []string{"true"}}
				if q.Key, err = fromCEL(e.CEL.Expression); err != nil {
					return s, err
				}
			}
			if !slices.Contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, q.Operator) {
				return s, fmt.Errorf("operator %q (allowed: In, NotIn, Exists, DoesNotExist)", q.Operator)
			}
			key, err := compile(q.Key)
			if err != nil {
				return s, err
			}
			s.match = append(s.match, requirement{key, q.Operator, q.Values})
		}
	}
	s.weight.number = spec.Weight
	if s.weight.from, err = spec.WeightFrom.compile(); err != nil {
		return s, err
	}
	if d := spec.Delay; d != nil {
		s.delay = &source{number: d.Duration}
		if s.delay.from, err = d.DurationFrom.compile(); err != nil {
			return s, err
		}
		if d.Jitter != nil || d.JitterFrom != nil {
			s.upTo = &source{number: ptr.Deref(d.Jitter, -1)}
			if s.upTo.from, err = d.JitterFrom.compile(); err != nil {
				return s, err
			}
		}
	}
	for _, form := range spec.allSteps() {
		st := step{stepForm: form}
		for to, p := range map[**template.Template]*patchForm{&st.patch: form.Patch, &st.apply: form.Apply} {
			if p == nil {
				continue
			}
			if !slices.Contains([]string{"", "json", "merge", "strategic", "apply"}, p.Type) {
				return s, fmt.Errorf("type of a patch %q (allowed: json, merge, strategic)", p.Type)
			}
			if *to, err = template.New(s.Name).Funcs(new(Cluster).functions()).Parse(strings.TrimSpace(p.Template)); err != nil {
				return s, err
			}
		}
		s.steps = append(s.steps, st)
	}
	return s, nil
}

// allSteps are the steps, or those that next stands for.
func (f *specForm) allSteps() (steps []stepForm) {
	n := f.Next
	if n == nil || len(f.Steps) > 0 {
		return f.Steps
	}
	if n.StatusTemplate != "" && len(n.Patches) == 0 {
		n.Patches = []patchForm{{Subresource: ptr.Deref(n.StatusSubresource, "status"), Root: "status", Template: n.StatusTemplate}}
	}
	steps = append(steps, stepForm{Event: n.Event, Finalizers: n.Finalizers})
	for i := range n.Patches {
		steps = append(steps, stepForm{Patch: &n.Patches[i]})
	}
	return append(steps, stepForm{Delete: n.Delete})
}

func (f *fromForm) compile() (*gojq.Code, error) {
	switch {
	case f == nil:
		return nil, nil
	case f.JQ != nil:
		return compile(f.JQ.Expression)
	case f.CEL != nil:
		text, err := fromCEL(f.CEL.Expression)
		if err != nil {
			return nil, err
		}
		return compile(text)
	}
	return compile(f.ExpressionFrom)
}

// with returns a copy of the stage whose templates have the functions of a cluster.
func (s Stage) with(functions template.FuncMap) *Stage {
	s.steps = slices.Clone(s.steps)
	for i := range s.steps {
		for _, t := range []**template.Template{&s.steps[i].patch, &s.steps[i].apply} {
			if *t != nil {
				*t = template.Must((*t).Clone()).Funcs(functions)
			}
		}
	}
	return &s
}

func compile(expression string) (*gojq.Code, error) {
	query, err := gojq.Parse(expression)
	if err == nil {
		var code *gojq.Code
		if code, err = gojq.Compile(query); err == nil {
			return code, nil
		}
	}
	return nil, fmt.Errorf("expression %q: %w", expression, err)
}

// results are the first values of an expression that are not null, as texts; none if it fails. An expression that takes
// longer than a second, or returns more than 1,000 values, is cut off.
func results(code *gojq.Code, content map[string]any) (out []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	iter := code.RunWithContext(ctx, content)
	for range 1000 {
		v, ok := iter.Next()
		if !ok {
			break
		}
		switch v := v.(type) {
		case nil:
		case error:
			return nil
		case string:
			out = append(out, v)
		default:
			text, _ := gojq.Marshal(v)
			out = append(out, string(text))
		}
	}
	return out
}

func (s *Stage) matches(o *object, content map[string]any) bool {
	if !s.always {
		return false
	}
	for wanted, have := range map[*map[string]string]map[string]string{&s.labels: o.meta.GetLabels(), &s.notes: o.meta.GetAnnotations()} {
		for name, value := range *wanted {
			if got, ok := have[name]; !ok || got != value {
				return false
			}
		}
	}
	for _, r := range s.match {
		values := results(r.key, content)
		among := slices.ContainsFunc(values, func(v string) bool { return slices.Contains(r.values, v) })
		if ok := map[string]bool{"In": among, "NotIn": !among, "Exists": len(values) > 0, "DoesNotExist": len(values) == 0}[r.operator]; !ok {
			return false
		}
	}
	return true
}

// content is an object in the form of JSON, with numbers as gojq takes them or, for templates, in their own words.
func content(o *object, words bool) (out map[string]any, err error) {
	data, err := json.Marshal(o.object)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if words {
		d.UseNumber()
	}
	if err = d.Decode(&out); err == nil && o.kind.Kind != "" {
		out["apiVersion"], out["kind"] = o.kind.GroupVersion().String(), o.kind.Kind
	}
	return out, err
}

// advance plans the next stage of an object. A stage that still matches keeps its time.
func (c *Cluster) advance(o *object) {
	stages := c.stages[o.kind.GroupKind()]
	if len(stages) == 0 {
		return
	}
	fields, err := content(o, false)
	if err != nil {
		return
	}
	var matching []*Stage
	for _, s := range stages {
		if s.matches(o, fields) {
			matching = append(matching, s)
		}
	}
	if o.stage != nil {
		if slices.Contains(matching, o.stage) {
			return
		}
		c.cancel(o, o.stage.action())
		o.stage = nil
	}
	if len(matching) == 0 {
		return
	}
	o.stage = c.draw(matching, fields)
	s := o.stage
	c.plan(o, s.action(), c.delayOf(s, fields), func(ctx context.Context) error {
		o.stage = nil
		return c.apply(ctx, o, s)
	})
}

// action is the name of the stage's action.
func (s *Stage) action() string { return "stage " + s.Name }

// draw draws a stage as KWOK does: by weights; if all are 0, from those whose weight is known, if any is.
func (c *Cluster) draw(from []*Stage, fields map[string]any) *Stage {
	total := int64(0)
	weights := map[*Stage]int64{}
	for _, s := range from {
		w, ok := s.weight.number, true
		if found := s.weight.find(fields); len(found) > 0 {
			var err error
			w, err = strconv.ParseInt(strings.TrimSuffix(found[0], ".0"), 0, 64)
			ok = err == nil
		}
		if ok {
			weights[s] = max(w, 0)
			total += weights[s]
		}
	}
	switch {
	case total > 0:
		n := c.rng.Int64N(total)
		for _, s := range from {
			if n -= weights[s]; n < 0 {
				return s
			}
		}
	case len(weights) > 0:
		from = slices.DeleteFunc(from, func(s *Stage) bool { _, known := weights[s]; return !known })
	}
	return from[c.rng.IntN(len(from))]
}

// find returns what the expression finds.
func (s *source) find(fields map[string]any) []string {
	if s.from == nil {
		return nil
	}
	return results(s.from, fields)
}

// wait is a duration: the time until what the expression finds, or what it lasts. It is unknown if that is empty.
func (s *source) wait(fields map[string]any) (d time.Duration, known bool) {
	if found := s.find(fields); len(found) > 0 {
		if found[0] == "" {
			return 0, false
		}
		if at, err := time.Parse(time.RFC3339, found[0]); err == nil {
			return time.Until(at), true
		}
		if lasts, err := time.ParseDuration(found[0]); err == nil {
			return lasts, true
		}
	}
	return time.Duration(s.number) * time.Millisecond, s.number >= 0
}

// delayOf follows KWOK: what an expression finds replaces the delay, and the jitter may be below it.
func (c *Cluster) delayOf(s *Stage, fields map[string]any) time.Duration {
	if s.delay == nil {
		return 0
	}
	d, known := s.delay.wait(fields)
	if s.upTo != nil && known {
		if upTo, known := s.upTo.wait(fields); known && upTo > d {
			d += time.Duration(c.rng.Int64N(int64(upTo - d)))
		} else if known {
			d = upTo
		}
	}
	return max(d, 0)
}

// apply makes the changes of a stage.
func (c *Cluster) apply(ctx context.Context, o *object, s *Stage) error {
	for _, st := range s.steps {
		if e := st.Event; e != nil {
			if err := c.event(ctx, o, "kwok_controller", e.Type, e.Reason, e.Message); err != nil {
				return err
			}
		}
		if f := st.Finalizers; f != nil {
			old := o.meta.GetFinalizers()
			left := slices.DeleteFunc(slices.Clone(old), func(have string) bool { return f.Empty || slices.Contains(f.Remove, finalizerForm{have}) })
			for _, add := range f.Add {
				if !slices.Contains(left, add.Value) {
					left = append(left, add.Value)
				}
			}
			if !slices.Equal(left, old) {
				if err := c.patchMeta(ctx, o, "finalizers", left); err != nil {
					return err
				}
			}
		}
		if st.Delete {
			return c.resource(o).Delete(ctx, o.meta.GetName(), metav1.DeleteOptions{
				GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: new(o.meta.GetUID())},
			})
		}
		if st.patch != nil {
			if err := c.patch(ctx, o, st.Patch, st.patch); err != nil {
				return err
			}
		}
		if st.apply != nil {
			if err := c.applyOther(ctx, o, st.Apply, st.apply); err != nil {
				return err
			}
		}
	}
	return nil
}

// render returns what a template says about an object, as JSON.
func (c *Cluster) render(o *object, t *template.Template) ([]byte, error) {
	fields, err := content(o, true)
	if err != nil {
		return nil, err
	}
	c.subject = o
	var text bytes.Buffer
	if err = t.Execute(&text, fields); err == nil {
		var data []byte
		if data, err = yaml.YAMLToJSON(text.Bytes()); err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("template: %w", err)
}

var patchTypes = map[string]types.PatchType{
	"json": types.JSONPatchType, "merge": types.MergePatchType, "strategic": types.StrategicMergePatchType, "apply": types.ApplyPatchType,
}

// subresources is the argument of a client.
func (p *patchForm) subresources() []string {
	if p.Subresource == "" {
		return nil
	}
	return []string{p.Subresource}
}

// patch patches the object. Without a type, lists of a pod or a node merge, and others are replaced.
func (c *Cluster) patch(ctx context.Context, o *object, p *patchForm, t *template.Template) error {
	data, err := c.render(o, t)
	if err != nil {
		return err
	}
	kind := patchTypes[p.Type]
	switch {
	case kind != "":
	case o.kind.GroupKind() == podKind, o.kind.GroupKind() == nodeKind:
		kind = types.StrategicMergePatchType
	default:
		kind = types.MergePatchType
	}
	if p.Root != "" && kind == types.JSONPatchType {
		var operations []map[string]any
		if err := json.Unmarshal(data, &operations); err != nil {
			return fmt.Errorf("template: %w", err)
		}
		for _, op := range operations {
			op["path"] = fmt.Sprint("/", p.Root, op["path"])
		}
		data, err = json.Marshal(operations)
	} else if p.Root != "" {
		data, err = json.Marshal(map[string]json.RawMessage{p.Root: data})
	}
	if err == nil {
		_, err = c.resource(o).Patch(ctx, o.meta.GetName(), kind, data, metav1.PatchOptions{}, p.subresources()...)
	}
	return err
}

// applyOther creates or changes another object.
func (c *Cluster) applyOther(ctx context.Context, o *object, p *patchForm, t *template.Template) error {
	data, err := c.render(o, t)
	if err != nil {
		return err
	}
	other := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &other.Object); err != nil {
		return fmt.Errorf("template: %w", err)
	}
	kind := other.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var client dynamic.ResourceInterface = c.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		other.SetNamespace(cmp.Or(other.GetNamespace(), o.meta.GetNamespace()))
		client = c.client.Resource(mapping.Resource).Namespace(other.GetNamespace())
	}
	if p.Subresource == "" {
		if _, err := client.Create(ctx, other, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	opts := metav1.PatchOptions{}
	how := cmp.Or(patchTypes[p.Type], types.ApplyPatchType)
	if how == types.ApplyPatchType {
		opts.FieldManager, opts.Force = "kwok", new(true)
	}
	if data, err = other.MarshalJSON(); err == nil {
		_, err = client.Patch(ctx, other.GetName(), how, data, opts, p.subresources()...)
	}
	return err
}
