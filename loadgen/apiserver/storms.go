package apiserver

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// Prepared is an encoded storm for any number of servers. It is immutable.
type Prepared struct {
	storm      *storm.Storm
	recording  *store.Recording
	budget     *store.Budget
	kind       *wire.Kind
	namespaced bool
	namespaces []string // of the objects, sorted
	renumber   bool     // the versions are not those of the storm if that would make one 0
}

// Prepare encodes the storm's events, within [store.DefaultBudget]. Other events and forms are
// encoded on demand. The error wraps [storm.ErrInvalid] or is that of an object that cannot be
// encoded. If members is true, each event is compressed in advance, too. Time and, up to the budget, memory are
// O(bytes of the encoded storm).
func Prepare(s *storm.Storm, media wire.Media, members bool) (*Prepared, error) {
	p, err := PrepareWith(s, store.NewBudget(0))
	if err != nil {
		return nil, err
	}
	p.renumber = false
	if err := p.recording.Encode(wire.FormOf(media, wire.Object), members); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}
	return p, nil
}

// PrepareSet prepares the storms of a set, within one budget; see [PrepareWith].
func PrepareSet(set *storm.Set) (all []*Prepared, err error) {
	budget := store.NewBudget(0)
	for _, s := range set.Storms {
		p, err := PrepareWith(s, budget)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// PrepareWith validates the storm. All events are encoded on demand within the budget. No list has the version 0: a
// storm that begins empty gets other versions than its sequence numbers. O(events).
func PrepareWith(s *storm.Storm, budget *store.Budget) (*Prepared, error) {
	fail := func(err error) (*Prepared, error) {
		return nil, fmt.Errorf("apiserver: storm %s: %w", s.Name, err)
	}
	if err := s.Validate(); err != nil {
		return fail(err)
	}
	// Without events, the resource is namespaced.
	p := &Prepared{storm: s, budget: budget, namespaced: len(s.Events) == 0, renumber: true}
	namespaces := map[string]struct{}{}
	untyped := !scheme.Scheme.Recognizes(s.Kind)
	for i := range s.Events {
		e := &s.Events[i]
		// The key is cheaper than the object's metadata.
		namespace, _, has := strings.Cut(e.Key, "/")
		if i > 0 && has != p.namespaced {
			return fail(fmt.Errorf("%w: event %d: %s: objects with and without a namespace", storm.ErrInvalid, i+1, e.Key))
		}
		if p.namespaced = has; has {
			namespaces[namespace] = struct{}{}
		}
		if _, is := e.Object.(runtime.Unstructured); is {
			untyped = true
		}
	}
	p.namespaces = slices.Sorted(maps.Keys(namespaces))
	p.kind = wire.NewKind(s.Kind, s.Kind.Kind+"List", untyped, wire.ColumnsOf(s.Kind))
	p.recording = store.NewRecording(s, p.kind, budget)
	return p, nil
}

// add serves a storm's resource from its recording.
func (s *Server) add(p *Prepared) error {
	fail := func(err error) error {
		return fmt.Errorf("apiserver: storm %s: %w", p.storm.Name, err)
	}
	res, err := s.resourceOf(p)
	if err != nil {
		return fail(err)
	}
	log := p.recording.Play(&s.revision, s.opts.Retain, p.renumber)
	if other, has := s.collections[keyOf(res)]; has && other.storm.Resource == res.GVR {
		return fail(fmt.Errorf("%s has a storm already", res))
	} else if has { // Another version of the same objects is not served.
		s.storms = append(s.storms, &collection{log: log, storm: p.storm})
		return nil
	}
	c := &collection{stored: res, storm: p.storm, kind: p.kind, encoder: p.kind, log: log}
	if stored := s.storedOf(res); stored != res { // recorded in another version
		c = newCollection(stored, log, math.MaxUint64)
		c.storm = p.storm
	}
	s.watching.follow(c.log)
	s.collections[keyOf(res)] = c
	s.storms = append(s.storms, c)
	s.namespaces = append(s.namespaces, p.namespaces...)
	if s.budget == nil {
		s.budget = p.budget
	}
	return nil
}

// resourceOf returns the resource of a storm. It defines a custom resource if it is unknown.
func (s *Server) resourceOf(p *Prepared) (*resources.Resource, error) {
	gvr, gvk := p.storm.Resource, p.storm.Kind
	res, ok := s.registry.Lookup(gvr.Group, gvr.Version, gvr.Resource)
	if !ok && s.registry.Serve(gvr.GroupVersion()) {
		res, ok = s.registry.Lookup(gvr.Group, gvr.Version, gvr.Resource)
	}
	if !ok {
		scope := apiextensionsv1.ClusterScoped
		if p.namespaced {
			scope = apiextensionsv1.NamespaceScoped
		}
		keeps := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
		if _, err := s.registry.Define(nil, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: gvr.Resource + "." + gvr.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: gvr.Group, Scope: scope,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gvr.Resource, Kind: gvk.Kind},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: gvr.Version, Served: true, Storage: true,
					Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
					Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: keeps},
				}},
			},
		}); err != nil {
			return nil, err
		}
		res, ok = s.registry.Lookup(gvr.Group, gvr.Version, gvr.Resource)
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("%s is not served", gvr)
	case res.GVK != gvk:
		return nil, fmt.Errorf("%s are of the kind %s, not %s", res, res.GVK, gvk)
	case len(p.storm.Events) > 0 && res.Namespaced != p.namespaced:
		return nil, fmt.Errorf("%s with and without a namespace", res)
	}
	return res, nil
}

// Play releases the events of all storms at their intended times, divided by speed. It is an open loop: it never waits
// for a watch, and releases all due events together. The error is ctx's.
func (s *Server) Play(ctx context.Context, speed float64) error {
	began := time.Now()
	due := func(at time.Duration) time.Time { return began.Add(time.Duration(float64(at) / speed)) }
	timer := time.NewTimer(0)
	defer timer.Stop()
	for released := make([]int, len(s.storms)); ; {
		var next time.Time // zero if all events are released
		now := time.Now()
		for i, c := range s.storms {
			events, n := c.storm.Events, max(released[i], c.storm.Initial)
			for n < len(events) && !due(events[n].At).After(now) {
				n++
			}
			c.log.Release(uint64(n), due)
			if released[i] = n; n < len(events) && (next.IsZero() || due(events[n].At).Before(next)) {
				next = due(events[n].At)
			}
		}
		if next.IsZero() {
			return nil
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Release makes the events of the first storm up to seq visible. It blocks briefly at
// most. An earlier seq has no effect; a seq beyond the storm releases all of it.
func (s *Server) Release(seq uint64) {
	if len(s.storms) > 0 {
		s.storms[0].log.Release(seq, nil)
	}
}
