package lifecycle

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/itchyny/gojq"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	match  []requirement
	labels map[string]string
	notes  map[string]string // annotations
	weight int
	delay  time.Duration
	upTo   time.Duration // with jitter; 0 for none
	from   *gojq.Code    // a time or a duration in place of delay; nil for none
	status *template.Template
	drop   []string // finalizers
	empty  bool     // drop all finalizers
	delete bool
}

type requirement struct {
	key      *gojq.Code
	operator string
	values   []string
}

// The form of a file: a subset of KWOK's Stage, kwok.x-k8s.io/v1alpha1 (KWOK v0.8, pkg/apis/v1alpha1).
type (
	stageForm struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Spec       specForm          `json:"spec"`
	}
	specForm struct {
		ResourceRef struct {
			APIGroup string `json:"apiGroup"`
			Kind     string `json:"kind"`
		} `json:"resourceRef"`
		Selector struct {
			MatchLabels      map[string]string `json:"matchLabels"`
			MatchAnnotations map[string]string `json:"matchAnnotations"`
			MatchExpressions []struct {
				Key      string   `json:"key"`
				Operator string   `json:"operator"`
				Values   []string `json:"values"`
			} `json:"matchExpressions"`
		} `json:"selector"`
		Weight int `json:"weight"`
		Delay  struct {
			Milliseconds int64 `json:"durationMilliseconds"`
			Jitter       int64 `json:"jitterDurationMilliseconds"`
			From         struct {
				Expression string `json:"expressionFrom"`
			} `json:"durationFrom"`
		} `json:"delay"`
		Next struct {
			StatusTemplate string `json:"statusTemplate"`
			Finalizers     struct {
				Remove []struct {
					Value string `json:"value"`
				} `json:"remove"`
				Empty bool `json:"empty"`
			} `json:"finalizers"`
			Delete bool           `json:"delete"`
			Event  map[string]any `json:"event"`
		} `json:"next"`
		ImmediateNextStage bool `json:"immediateNextStage"`
	}
)

// ReadStages reads the stages of YAML files; without a file, the built-in stages of pods. The fields are
// those of KWOK's Stage: resourceRef, selector, weight, delay with durationMilliseconds,
// jitterDurationMilliseconds (the longest delay) and durationFrom.expressionFrom, and next with
// statusTemplate, finalizers (remove, empty) and delete. event and immediateNextStage have no effect; other
// fields are errors. Templates have the functions Now, Quote, NodeIP and PodIP. An error is a [*manifest.Error].
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
	forms, err := manifest.StrictAll[stageForm](file, data)
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
	case spec.Delay.Milliseconds < 0 || spec.Delay.Jitter < 0 || spec.Weight < 0:
		return s, errors.New("a delay or the weight is negative")
	}
	group, _, hasVersion := strings.Cut(spec.ResourceRef.APIGroup, "/")
	if !hasVersion && group == "v1" {
		group = ""
	}
	s.kind = schema.GroupKind{Group: group, Kind: spec.ResourceRef.Kind}
	s.labels, s.notes, s.weight = spec.Selector.MatchLabels, spec.Selector.MatchAnnotations, spec.Weight
	s.delay, s.upTo = time.Duration(spec.Delay.Milliseconds)*time.Millisecond, time.Duration(spec.Delay.Jitter)*time.Millisecond
	for _, e := range spec.Selector.MatchExpressions {
		if !slices.Contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, e.Operator) {
			return s, fmt.Errorf("operator %q (allowed: In, NotIn, Exists, DoesNotExist)", e.Operator)
		}
		key, err := compile(e.Key)
		if err != nil {
			return s, err
		}
		s.match = append(s.match, requirement{key, e.Operator, e.Values})
	}
	if text := spec.Delay.From.Expression; text != "" {
		if s.from, err = compile(text); err != nil {
			return s, err
		}
	}
	if text := spec.Next.StatusTemplate; text != "" {
		if s.status, err = template.New(s.Name).Funcs(functions).Parse(text); err != nil {
			return s, err
		}
	}
	for _, r := range spec.Next.Finalizers.Remove {
		s.drop = append(s.drop, r.Value)
	}
	s.empty, s.delete = spec.Next.Finalizers.Empty, spec.Next.Delete
	return s, nil
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

// functions are those of the templates.
var functions = template.FuncMap{
	"Now":    func() string { return time.Now().UTC().Format(time.RFC3339Nano) },
	"Quote":  func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
	"NodeIP": func() string { return "10.0.0.1" },
	"PodIP":  func() string { return "10.1.0.1" },
}

// results are the first values of an expression that are not null, as texts. An expression that takes longer
// than a second, or returns more than 1,000 values, is cut off.
func results(code *gojq.Code, content map[string]any) (out []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	iter := code.RunWithContext(ctx, content)
	for range 1000 {
		v, ok := iter.Next()
		if !ok {
			break
		}
		if _, failed := v.(error); v == nil || failed {
			continue
		}
		if text, is := v.(string); is {
			out = append(out, text)
			continue
		}
		text, _ := gojq.Marshal(v)
		out = append(out, string(text))
	}
	return out
}

func (s *Stage) matches(o *object, content map[string]any) bool {
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

// content is an object in the form of JSON, with numbers as gojq takes them.
func content(o runtime.Object) (map[string]any, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(data, &out)
}

// advance plans the next stage of an object. A stage that still matches keeps its time.
func (c *Cluster) advance(o *object) {
	stages := c.stages[o.kind.GroupKind()]
	if len(stages) == 0 {
		return
	}
	fields, err := content(o.object)
	if err != nil {
		return
	}
	var matching []*Stage
	total := 0
	for _, s := range stages {
		if s.matches(o, fields) {
			matching = append(matching, s)
			total += max(s.weight, 1)
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
	draw := c.rng.IntN(total)
	for _, s := range matching {
		if draw -= max(s.weight, 1); draw < 0 {
			o.stage = s
			break
		}
	}
	s := o.stage
	c.plan(o, s.action(), c.delayOf(s, fields), func(ctx context.Context) error {
		o.stage = nil
		return c.apply(ctx, o, s)
	})
}

// action is the name of the stage's action.
func (s *Stage) action() string { return "stage " + s.Name }

// delayOf follows KWOK: what the expression finds replaces the delay, and the jitter may be below it.
func (c *Cluster) delayOf(s *Stage, fields map[string]any) time.Duration {
	d := s.delay
	if s.from != nil {
		if found := results(s.from, fields); len(found) > 0 {
			if at, err := time.Parse(time.RFC3339, found[0]); err == nil {
				d = max(0, time.Until(at))
			} else if lasts, err := time.ParseDuration(found[0]); err == nil {
				d = max(0, lasts)
			}
		}
	}
	switch {
	case s.upTo > d:
		d += time.Duration(c.rng.Int64N(int64(s.upTo - d)))
	case s.upTo > 0:
		d = s.upTo
	}
	return d
}

// apply makes the changes of a stage.
func (c *Cluster) apply(ctx context.Context, o *object, s *Stage) error {
	if len(s.drop) > 0 || s.empty {
		left := slices.DeleteFunc(slices.Clone(o.meta.GetFinalizers()), func(f string) bool { return s.empty || slices.Contains(s.drop, f) })
		if len(left) < len(o.meta.GetFinalizers()) {
			if err := c.patchMeta(ctx, o, "finalizers", left); err != nil {
				return err
			}
		}
	}
	if s.status != nil {
		fields, err := content(o.object)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := s.status.Execute(&text, fields); err != nil {
			return fmt.Errorf("statusTemplate: %w", err)
		}
		status, err := yaml.YAMLToJSON(text.Bytes())
		if err != nil {
			return fmt.Errorf("statusTemplate: %w", err)
		}
		patch := append(append([]byte(`{"status":`), status...), '}')
		if _, err := c.resource(o).Patch(ctx, o.meta.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	if s.delete {
		return c.resource(o).Delete(ctx, o.meta.GetName(), metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: new(o.meta.GetUID())},
		})
	}
	return nil
}
