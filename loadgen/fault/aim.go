package fault

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Hooks connect an injector with the programs whose requests it sees.
type Hooks struct {
	// Client names the program that sent a request, by its context; nil if all are one, without a name.
	Client func(context.Context) string
	// Crash kills a program, empty for the first one, and starts it again after a time. It returns when the program is
	// dead. Terminate asks it to end and returns at once.
	Crash, Terminate func(client string, down time.Duration)
}

// matches reports whether a resource, as in pods or deployments.apps, is that of a text, whose group may be missing.
func matches(text string, r schema.GroupVersionResource) bool {
	return text == "" || text == r.Resource || text == r.GroupResource().String()
}

// Withholds reports whether the fault keeps changes from clients for a while.
func (s *Spec) Withholds() bool {
	return s.Name == Stall || s.Name == Skip || s.Name == OldView || s.Name == Drip
}

// Ends reports whether the fault ends a program and starts it again.
func (s *Spec) Ends() bool { return s.Name == Crash || s.Name == Terminate }

// Aims reports whether the fault is aimed at a resource, or at all.
func (s *Spec) Aims(r schema.GroupVersionResource) bool { return matches(s.Resource, r) }

// aims reports whether the fault is aimed at a request.
func (f *fault) aims(r *request) bool {
	return (f.Client == "" || f.Client == r.client) && matches(f.Resource, r.Resource) && (f.Verb == "" || f.Verb == r.Verb)
}

// writes reports whether a request is a write that takes effect.
func (r *request) writes() bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Query.Get("dryRun") == ""
}

// is reports whether a request is one such as "create pods" or "write pods/status".
func (r *request) is(text string) bool {
	verb, of, _ := strings.Cut(text, " ")
	resource, subresource, _ := strings.Cut(of, "/")
	return r.writes() && (verb == "write" || verb == r.Verb) && matches(resource, r.Resource) && subresource == r.Subresource
}

// trigger counts a write and strikes with the faults that are due before or after it. It returns the fault among them
// that keeps the client from its answer; nil for none.
func (i *Injector) trigger(r *request, of func(*Spec) string) (crash *fault) {
	if !r.writes() {
		return nil
	}
	for k := range i.faults {
		f := &i.faults[k]
		text := of(&f.Spec)
		if text == "" || f.Client != "" && f.Client != r.client || !r.is(text) {
			continue
		}
		i.mu.Lock()
		due := i.active()
		if due {
			f.seen++
			due = f.seen == max(f.Nth, 1)
		}
		i.mu.Unlock()
		if !due {
			continue
		}
		if i.happen(k, r.client); f.Name == Crash {
			crash = f
		}
	}
	return crash
}

// write serves a write: the faults before and after it, and those that change its answer.
func (i *Injector) write(h http.Handler, rw http.ResponseWriter, r *request) {
	if i.trigger(r, func(s *Spec) string { return s.Before }) != nil {
		panic(http.ErrAbortHandler)
	}
	if !i.answers {
		h.ServeHTTP(rw, r.http)
		return
	}
	// The answer waits for what happens after the write.
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r.http)
	if answer.Code < http.StatusMultipleChoices && i.trigger(r, func(s *Spec) string { return s.After }) != nil {
		panic(http.ErrAbortHandler)
	}
	if f, hit := i.hit(r, LostAnswer.is); hit && answer.Code < http.StatusMultipleChoices {
		f.write(rw, r)
		return
	}
	maps.Copy(rw.Header(), answer.Header())
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// crash kills the program of a fault, or else that of the request which triggered it.
func (i *Injector) crash(k int, s injection, client string) {
	f := &i.faults[k]
	client = cmp.Or(f.Client, client)
	i.mu.Lock()
	verb, end := "kill ", i.hooks.Crash
	if f.Name == Terminate {
		verb, end = "terminate ", i.hooks.Terminate
	}
	i.note(Injection{Spec: k, Occurrence: s.occurrence, Detail: strings.TrimSpace(verb + client)})
	i.mu.Unlock()
	end(client, time.Duration(f.Duration))
}

// old answers a list as a server that lags behind: with the state at the freeze, if the client takes any version or one so
// old. It refuses a watch with the initial state, as a server without WatchList does, so that the client lists. A list
// without a version is consistent (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions). It
// returns the request to serve.
func (i *Injector) old(r *request) (*request, *failure) {
	if r.http.Method != http.MethodGet || r.Name != "" || r.Query.Get("continue") != "" {
		return r, nil
	}
	i.mu.Lock()
	version := i.collections[r.Resource].frozen
	i.mu.Unlock()
	initial := r.initial()
	if consistent := r.Query.Get("resourceVersion") == ""; version == 0 || !initial && (r.Verb == "watch" || consistent || r.version > version) {
		return r, nil
	}
	if _, hit := i.hit(r, OldView.is); !hit {
		return r, nil
	}
	if initial {
		f := withoutWatchList(0)
		return r, &f
	}
	changed := r.http.Clone(r.http.Context())
	query := maps.Clone(r.Query)
	query.Set("resourceVersion", strconv.FormatUint(version, 10))
	query.Set("resourceVersionMatch", "Exact")
	changed.URL = &url.URL{Path: r.http.URL.Path, RawQuery: query.Encode()}
	out := *r
	out.http, out.Query, out.version = changed, query, version
	return &out, nil
}

// hit returns the answer of the first fault that lasts, is aimed at the request, and is as asked for.
func (i *Injector) hit(r *request, is func(*fault) bool) (failure, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	k := slices.IndexFunc(i.faults, func(f fault) bool { return f.until > now && f.aims(r) && is(&f) })
	if k < 0 || !i.active() {
		return failure{}, false
	}
	f := &i.faults[k]
	var answer failure
	if f.answer != nil {
		answer = f.answer(f.until - now)
	}
	i.note(Injection{Spec: k, Occurrence: f.occurrences, Path: r.http.URL.Path, Detail: answer.detail})
	if f.once {
		f.until = 0
	}
	return answer, true
}
