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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/manifest"
)

//go:embed stages/*.yaml
var builtin embed.FS

// Stage changes the objects of a kind some time after they match. Of several stages that match, one is drawn
// by its weight.
type Stage struct {
	Name     string
	kind     schema.GroupKind
	selector *v1alpha1.StageSelector
	match    []requirement // its expressions
	weight   source
	delay    source // in milliseconds
	upTo     source // with jitter
	steps    []step
}

// source is a number, unless an expression finds another one.
type source struct {
	number int64      // negative for none
	from   *gojq.Code // nil for none
}

// step is an action of a stage, with the templates of its patches.
type step struct {
	v1alpha1.StageStep
	patch, apply *template.Template
}

type requirement struct {
	key      *gojq.Code
	operator v1alpha1.SelectorOperator
	values   []string
}

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
	if len(stages) == 0 {
		return nil, &manifest.Error{File: files[len(files)-1], Err: errors.New("it has no stages")}
	}
	return stages, nil
}

func parseStages(file string, data []byte) (stages []Stage, err error) {
	forms, err := manifest.StrictAll[v1alpha1.Stage](file, data, v1alpha1.StageKind)
	if err != nil {
		return nil, err
	}
	for i := range forms {
		s, err := newStage(&forms[i])
		if err != nil {
			return nil, &manifest.Error{File: file, Err: fmt.Errorf("stage %q: %w", s.Name, err)}
		}
		stages = append(stages, s)
	}
	return stages, nil
}

func newStage(f *v1alpha1.Stage) (s Stage, err error) {
	s.Name = f.Name
	spec := &f.Spec
	delay := ptr.Deref(spec.Delay, v1alpha1.StageDelay{})
	number := func(n *int64) int64 { return ptr.Deref(n, 0) }
	switch {
	case f.Kind != v1alpha1.StageKind || !strings.HasPrefix(f.APIVersion, v1alpha1.GroupVersion.Group+"/"):
		return s, fmt.Errorf("apiVersion %q and kind %q (want kwok.x-k8s.io/v1alpha1 and Stage)", f.APIVersion, f.Kind)
	case s.Name == "":
		return s, errors.New("metadata.name is missing")
	case spec.ResourceRef.Kind == "":
		return s, errors.New("spec.resourceRef.kind is missing")
	case min(int64(spec.Weight), number(delay.DurationMilliseconds), number(delay.JitterDurationMilliseconds)) < 0:
		return s, errors.New("a delay or the weight is negative")
	}
	group, _, hasVersion := strings.Cut(cmp.Or(spec.ResourceRef.APIGroup, "v1"), "/")
	if !hasVersion && group == "v1" {
		group = ""
	}
	s.kind = schema.GroupKind{Group: group, Kind: spec.ResourceRef.Kind}
	if s.selector = spec.Selector; s.selector != nil {
		for _, e := range spec.Selector.MatchExpressions {
			q := v1alpha1.SelectorJQ{Key: e.Key, Operator: e.Operator, Values: e.Values} //nolint:staticcheck // Stages of before KWOK v0.8 have it.
			if e.JQ != nil {
				q = *e.JQ
			} else if e.CEL != nil {
				q = v1alpha1.SelectorJQ{Operator: v1alpha1.SelectorOpIn, Values: []string{"true"}}
				if q.Key, err = fromCEL(e.CEL.Expression); err != nil {
					return s, err
				}
			}
			switch q.Operator {
			case v1alpha1.SelectorOpIn, v1alpha1.SelectorOpNotIn, v1alpha1.SelectorOpExists, v1alpha1.SelectorOpDoesNotExist:
			default:
				return s, fmt.Errorf("operator %q (allowed: In, NotIn, Exists, DoesNotExist)", q.Operator)
			}
			key, err := compile(q.Key)
			if err != nil {
				return s, err
			}
			s.match = append(s.match, requirement{key, q.Operator, q.Values})
		}
	}
	if s.weight, err = newSource(new(int64(spec.Weight)), spec.WeightFrom); err != nil {
		return s, err
	}
	if s.delay, err = newSource(new(number(delay.DurationMilliseconds)), delay.DurationFrom); err != nil {
		return s, err
	}
	if s.upTo, err = newSource(delay.JitterDurationMilliseconds, delay.JitterDurationFrom); err != nil {
		return s, err
	}
	for _, one := range steps(spec) {
		st := step{StageStep: one}
		if p := one.Patch; p != nil {
			st.patch, err = newTemplate(p.Template, p.Type)
		}
		if a := one.Apply; a != nil && err == nil {
			st.apply, err = newTemplate(a.Template, a.Type)
		}
		if err != nil {
			return s, err
		}
		s.steps = append(s.steps, st)
	}
	return s, nil
}

// steps are the steps of a stage, or those that its next stands for.
func steps(spec *v1alpha1.StageSpec) (all []v1alpha1.StageStep) {
	n := spec.Next //nolint:staticcheck // Stages of before KWOK v0.8 have it.
	if n == nil || len(spec.Steps) > 0 {
		return spec.Steps
	}
	if n.StatusTemplate != "" && len(n.Patches) == 0 { //nolint:staticcheck // the same
		n.Patches = []v1alpha1.StagePatch{{Subresource: ptr.Deref(n.StatusSubresource, "status"), Root: "status", Template: n.StatusTemplate}} //nolint:staticcheck // the same
	}
	all = append(all, v1alpha1.StageStep{Event: n.Event, Finalizers: n.Finalizers})
	for i := range n.Patches {
		all = append(all, v1alpha1.StageStep{Patch: &n.Patches[i]})
	}
	return append(all, v1alpha1.StageStep{Delete: n.Delete})
}

var patchTypes = map[v1alpha1.StagePatchType]types.PatchType{
	v1alpha1.StagePatchTypeJSONPatch: types.JSONPatchType, v1alpha1.StagePatchTypeMergePatch: types.MergePatchType,
	v1alpha1.StagePatchTypeStrategicMergePatch: types.StrategicMergePatchType, v1alpha1.StagePatchTypeApply: types.ApplyPatchType,
}

func newTemplate(text string, kind *v1alpha1.StagePatchType) (*template.Template, error) {
	if kind != nil && patchTypes[*kind] == "" {
		return nil, fmt.Errorf("type of a patch %q (allowed: json, merge, strategic, apply)", *kind)
	}
	return template.New("template").Funcs(new(Cluster).functions()).Parse(strings.TrimSpace(text))
}

func newSource(n *int64, f *v1alpha1.ExpressionFrom) (s source, err error) {
	s.number = ptr.Deref(n, -1)
	var text string
	switch {
	case f == nil:
		return s, nil
	case f.JQ != nil:
		text = f.JQ.Expression
	case f.CEL != nil:
		text, err = fromCEL(f.CEL.Expression)
	default:
		text = f.ExpressionFrom //nolint:staticcheck // the same
	}
	if err == nil {
		s.from, err = compile(text)
	}
	return s, err
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
	all := func(wanted, have labels.Set) bool { return wanted.AsSelectorPreValidated().Matches(have) }
	if s.selector == nil || !all(s.selector.MatchLabels, o.meta.GetLabels()) || !all(s.selector.MatchAnnotations, o.meta.GetAnnotations()) {
		return false
	}
	for _, r := range s.match {
		values := results(r.key, content)
		among := slices.ContainsFunc(values, func(v string) bool { return slices.Contains(r.values, v) })
		if ok := map[string]bool{"In": among, "NotIn": !among, "Exists": len(values) > 0, "DoesNotExist": len(values) == 0}[string(r.operator)]; !ok {
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
	matching := slices.DeleteFunc(slices.Clone(stages), func(s *Stage) bool { return !s.matches(o, fields) })
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
	d, known := s.delay.wait(fields)
	if upTo, jitter := s.upTo.wait(fields); known && jitter {
		if d = min(d, upTo); upTo > d {
			d += time.Duration(c.rng.Int64N(int64(upTo - d)))
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
			left := slices.DeleteFunc(slices.Clone(old), func(have string) bool {
				return f.Empty || slices.Contains(f.Remove, v1alpha1.FinalizerItem{Value: have})
			})
			for _, add := range f.Add {
				if !slices.Contains(left, add.Value) {
					left = append(left, add.Value)
				}
			}
			if !slices.Equal(left, old) {
				if err := c.patchMeta(ctx, o, "", "finalizers", left); err != nil {
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

// patch patches the object. Without a type, lists of a pod or a node merge, and others are replaced.
func (c *Cluster) patch(ctx context.Context, o *object, p *v1alpha1.StagePatch, t *template.Template) error {
	data, err := c.render(o, t)
	if err != nil {
		return err
	}
	kind := cmp.Or(patchTypes[ptr.Deref(p.Type, "")], types.MergePatchType)
	if p.Type == nil && (o.kind.GroupKind() == podKind || o.kind.GroupKind() == nodeKind) {
		kind = types.StrategicMergePatchType
	}
	switch {
	case p.Root == "":
	case kind == types.JSONPatchType:
		var operations []map[string]any
		if err := json.Unmarshal(data, &operations); err != nil {
			return fmt.Errorf("template: %w", err)
		}
		for _, op := range operations {
			op["path"] = fmt.Sprint("/", p.Root, op["path"])
		}
		data, err = json.Marshal(operations)
	default:
		data, err = json.Marshal(map[string]json.RawMessage{p.Root: data})
	}
	if err == nil {
		_, err = c.resource(o).Patch(ctx, o.meta.GetName(), kind, data, metav1.PatchOptions{}, p.Subresource) // which may be empty
	}
	return err
}

// applyOther creates or changes another object.
func (c *Cluster) applyOther(ctx context.Context, o *object, a *v1alpha1.StageApply, t *template.Template) error {
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
	if a.Subresource == "" {
		if _, err := client.Create(ctx, other, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	opts, how := metav1.PatchOptions{}, cmp.Or(patchTypes[ptr.Deref(a.Type, "")], types.ApplyPatchType)
	if how == types.ApplyPatchType {
		opts.FieldManager, opts.Force = "kwok", new(true)
	}
	if data, err = other.MarshalJSON(); err == nil {
		_, err = client.Patch(ctx, other.GetName(), how, data, opts, a.Subresource) // which may be empty
	}
	return err
}
