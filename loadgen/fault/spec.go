package fault

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Name is the kind of a fault.
type Name string

// The faults. "The watches" are the open watches, or those that the fault is aimed at.
// "For a while" means [Spec.Duration].
const (
	// Disconnect ends the watches between two frames, as a dying proxy does: the
	// client reads an unexpected end of file.
	Disconnect Name = "disconnect"
	// Gone ends the watches with an ERROR event 410 Expired. For a while it answers
	// HTTP 410 to watches from a version and to lists with a continue token.
	Gone Name = "gone"
	// Drip sends the frames in small pieces with pauses, for a while.
	Drip Name = "drip"
	// Stall holds back all frames for a while.
	Stall Name = "stall"
	// HalfFrame sends a part of one of the next frames and disconnects. It waits for a
	// frame for a while at most.
	HalfFrame Name = "half-frame"
	// Malformed sends a frame that does not parse and ends the watch.
	Malformed Name = "malformed"
	// ErrorEvent ends the watches with an ERROR event 500 InternalError.
	ErrorEvent Name = "error-event"
	// Throttle ends the watches and answers 429 with Retry-After to all requests
	// for a while; InternalError answers 500.
	Throttle      Name = "throttle"
	InternalError Name = "internal-error"
	// Reset ends the watches with a TCP reset; the client loses unread bytes. On
	// HTTP/2, where watches share a connection, it acts like Disconnect.
	Reset Name = "reset"
	// DuplicateBookmark sends a bookmark twice after one of the next frames, when the
	// initial state is complete. It waits for a frame for a while at most.
	DuplicateBookmark Name = "duplicate-bookmark"
	// Relist compacts the history: all watches end with an ERROR event 410 Expired and
	// older versions are gone for good, so that every client has to list again.
	Relist Name = "relist"
)

// The faults that a Spec has to aim; [Names] leaves them out.
const (
	// Skip holds back all frames for a while and then ends the watches with an ERROR event 410 Expired: the client
	// never sees the states in between.
	Skip Name = "skip"
	// OldView serves the state at its begin to lists that take any version or one so old, and nothing newer to the watches
	// that begin there, for a while, as a second API server does that lags behind. It has no WatchList, which is consistent.
	OldView Name = "old-view"
	// Crash kills the program whose write triggers it, or Client, and starts it again after a while.
	Crash Name = "crash"
	// Terminate asks that program to end (SIGTERM) and starts it again after a while. The write is answered.
	Terminate Name = "terminate"
	// LostAnswer answers 504 to a write that has taken effect. Conflict answers 409 to an update, a patch or a
	// deletion in place of it. Both hit one request, within a while.
	LostAnswer Name = "lost-answer"
	Conflict   Name = "conflict"
	// Latency delays requests, for a while, by 100 ms.
	Latency Name = "latency"
	// Close ends the watches without a word, as a server does at their timeout.
	Close Name = "close"
	// Duplicate sends one of the next frames twice. It waits for one for a while at most.
	Duplicate Name = "duplicate"
	// NoWatchList answers 422, for a while, to watches that ask for the initial state, as a server without WatchList.
	NoWatchList Name = "no-watchlist"
)

// traits are the properties of a fault. It acts on a watch in one of three ways: it ends
// the watch, changes the frames for a while, or writes frames of its own.
type traits struct {
	name Name
	// duration is the default of [Spec.Duration]; 0 for a fault without duration.
	duration time.Duration
	// timed: only time triggers the fault, not frames.
	timed bool
	// ends is the way the fault ends a watch without writing to it.
	ends ending
	// lasts: the fault changes the watch's frames for a while.
	lasts bool
	// event makes the ERROR event that ends a watch; nil for none.
	event func(rest time.Duration) failure
	// answer makes the answer to requests for a while; nil for none.
	answer func(rest time.Duration) failure
	// window: it hits requests for a while; once: the first one only.
	window, once bool
}

var all = []traits{
	{name: Disconnect, ends: endAbort},
	{name: Gone, duration: time.Second, event: gone, answer: gone},
	{name: Drip, duration: 2 * time.Second, lasts: true},
	{name: Stall, duration: 2 * time.Second, lasts: true},
	{name: HalfFrame, duration: 5 * time.Second, lasts: true},
	{name: Malformed},
	{name: ErrorEvent, event: internal},
	{name: Throttle, duration: time.Second, timed: true, ends: endClean, answer: throttled},
	{name: InternalError, duration: time.Second, timed: true, ends: endClean, answer: internal},
	{name: Reset, ends: endReset},
	{name: DuplicateBookmark, duration: 5 * time.Second, lasts: true},
	{name: Relist, timed: true, event: gone},
}

// aimed are the faults that a Spec has to aim.
var aimed = []traits{
	{name: Skip, duration: 2 * time.Second, lasts: true, event: gone},
	{name: OldView, duration: 5 * time.Second, timed: true, window: true},
	{name: Crash, duration: 200 * time.Millisecond, timed: true},
	{name: Terminate, duration: 200 * time.Millisecond, timed: true},
	{name: LostAnswer, duration: 10 * time.Second, timed: true, window: true, once: true, answer: lost},
	{name: Conflict, duration: 10 * time.Second, timed: true, window: true, once: true, answer: conflict},
	{name: Latency, duration: 2 * time.Second, timed: true, window: true},
	{name: Close, ends: endClean},
	{name: Duplicate, duration: 5 * time.Second, lasts: true},
	{name: NoWatchList, duration: time.Minute, timed: true, window: true, answer: withoutWatchList},
}

// Names returns the faults that need no aim.
func Names() []Name {
	names := make([]Name, len(all))
	for i, t := range all {
		names[i] = t.name
	}
	return names
}

func (n Name) is(f *fault) bool { return f.Name == n }

func (n Name) traits() (traits, bool) {
	for _, t := range slices.Concat(all, aimed) {
		if t.name == n {
			return t, true
		}
	}
	return traits{}, false
}

// ErrSpec means that a fault is not valid.
var ErrSpec = errors.New("invalid fault")

// Duration is a time.Duration that is text ("1m30s") in JSON and YAML.
type Duration time.Duration

func (d Duration) String() string               { return time.Duration(d).String() }
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses with [time.ParseDuration].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 1m30s", text)
	}
	*d = Duration(v)
	return nil
}

// Spec is a fault and its schedule. Times count from [Injector.Start].
//
// A fault occurs once, at At; with Every, periodically; with Frames, whenever a watch has sent that
// many frames. It stops after Count occurrences or at Until, whichever comes first. With Every or
// Frames and without both it lasts until the injector stops.
//
// With Before or After, a write triggers it, in place of a time. Resource, Client and Verb aim it.
//
// Its text (see [Parse]) is the name and the fields: disconnect:every=2s,count=10
type Spec struct {
	Name Name `json:"name" yaml:"name"` // kind of the fault
	// At is the time of the first occurrence. 0 means the start, or one period with
	// Every. With Frames, no occurrence comes before it.
	At Duration `json:"at,omitzero" yaml:"at,omitempty"`
	// Every is the period of a repeated fault, at least 1 ms; 0 means no repetition.
	Every Duration `json:"every,omitzero" yaml:"every,omitempty"`
	// Frames is a period in frames: the fault hits a watch after every so many frames. One client
	// meets it at the same places of the stream in each run. 0 means that time triggers the fault.
	// It excludes Every. Throttle, InternalError and Relist do not support it.
	Frames int `json:"frames,omitzero" yaml:"frames,omitempty"`
	// Count is the maximum number of occurrences. 0 means 1 without Every and Frames,
	// else no limit.
	Count int `json:"count,omitzero" yaml:"count,omitempty"`
	// Until is the time from which no occurrence starts; 0 means no limit.
	Until Duration `json:"until,omitzero" yaml:"until,omitempty"`
	// Duration is the length of an occurrence. 0 means the default: 2 s for Stall and
	// Drip, 1 s for Gone, Throttle and InternalError. HalfFrame, Duplicate and DuplicateBookmark
	// wait so long for a frame, by default 5 s. Other faults have no duration.
	Duration Duration `json:"duration,omitzero" yaml:"duration,omitempty"`
	// Resource limits it to the watches of and the requests for one resource, as in pods or deployments.apps; Client to
	// those of one program, as in controller-1; Verb, as in RBAC, to those requests.
	Resource string `json:"resource,omitzero" yaml:"resource,omitempty"`
	Client   string `json:"client,omitzero" yaml:"client,omitempty"`
	Verb     string `json:"verb,omitzero" yaml:"verb,omitempty"`
	// Before and After name the write that triggers it, as in "create pods" or "write jobs/status": when the Nth such
	// write of the client arrives, or when it has taken effect and before it is answered. Nth is 1 by default.
	Before string `json:"before,omitzero" yaml:"before,omitempty"`
	After  string `json:"after,omitzero" yaml:"after,omitempty"`
	Nth    int    `json:"nth,omitzero" yaml:"nth,omitempty"`
}

// fields lists the fields of a spec in the order of its text: a *Duration, *int or *string each.
func (s *Spec) fields() []field {
	return []field{
		{"at", &s.At}, {"every", &s.Every}, {"frames", &s.Frames}, {"count", &s.Count},
		{"until", &s.Until}, {"duration", &s.Duration},
		{"resource", &s.Resource}, {"client", &s.Client}, {"verb", &s.Verb}, {"before", &s.Before}, {"after", &s.After}, {"nth", &s.Nth},
	}
}

type field struct {
	name  string
	value any
}

// Validate checks the fault. The error wraps [ErrSpec], names the field and says what is allowed.
func (s Spec) Validate() error {
	t, known := s.Name.traits()
	if !known {
		return fmt.Errorf("%w: unknown fault %q (allowed: %s)", ErrSpec, string(s.Name), allowed())
	}
	for _, f := range s.fields() {
		switch v := f.value.(type) {
		case *Duration:
			if *v < 0 {
				return s.fail("%s=%v is negative", f.name, *v)
			}
			if *v > maxDuration {
				return s.fail("%s=%v is more than a year", f.name, *v)
			}
		case *int:
			if *v < 0 {
				return s.fail("%s=%d is negative", f.name, *v)
			}
		}
	}
	triggers := 0
	for _, text := range []string{s.Before, s.After} {
		if text == "" {
			continue
		}
		triggers++
		if verb, resource, ok := strings.Cut(text, " "); !ok || !slices.Contains(triggering, verb) || strings.ContainsAny(resource, " ,;") {
			return s.fail("%q is no write such as \"create pods\" (verbs: %s)", text, strings.Join(triggering, ", "))
		}
	}
	for _, text := range []string{s.Resource, s.Client, s.Verb} {
		if strings.ContainsAny(text, " ,;=") {
			return s.fail("%q is no name", text)
		}
	}
	switch {
	case triggers > 1:
		return s.fail("before and after exclude each other")
	case triggers > 0 && (s.At > 0 || s.Every > 0 || s.Frames > 0 || s.Count > 1 || s.Until > 0):
		return s.fail("a write or a time triggers it, not both")
	case triggers == 0 && s.Nth > 0:
		return s.fail("nth=%d needs before or after", s.Nth)
	case s.Name == Relist && (s.Resource != "" || s.Client != "" || s.Verb != ""):
		return s.fail("it takes no aim: all clients list again")
	case s.Frames > 0 && t.timed:
		return s.fail("it takes no frames: it is not a single watch's")
	case s.Frames > 0 && s.Every > 0:
		return s.fail("frames and every exclude each other")
	case s.Count > 1 && s.Every == 0 && s.Frames == 0:
		return s.fail("count=%d needs every or frames", s.Count)
	case s.Duration > 0 && t.duration == 0:
		return s.fail("it takes no duration: it does not last")
	case s.Until > 0 && s.Until <= s.first():
		return s.fail("until=%v is not after its first time, %v", s.Until, s.first())
	case s.Every > 0 && s.Every < Duration(time.Millisecond):
		return s.fail("every=%v is less than 1ms", s.Every)
	}
	return nil
}

func (s Spec) fail(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrSpec, s.Name, fmt.Sprintf(format, args...))
}

// triggering are the verbs of Before and After.
var triggering = []string{"write", "create", "update", "patch", "delete", "deletecollection"}

// Triggered reports whether a write triggers the fault, not a time.
func (s Spec) Triggered() bool { return s.Before != "" || s.After != "" }

// first is the time of the first occurrence, if it depends on time.
func (s Spec) first() Duration {
	if s.At == 0 && s.Frames == 0 {
		return s.Every
	}
	return s.At
}

// nth is the time of the nth occurrence, counted from 1, without overflow.
func (s Spec) nth(n int) time.Duration {
	first, every := time.Duration(s.first()), time.Duration(s.Every)
	if n <= 1 || every == 0 {
		return first
	}
	return first + time.Duration(min(int64(n-1), math.MaxInt64/2/int64(every)))*every
}

// maxDuration bounds times, so that sums do not overflow.
const maxDuration = Duration(365 * 24 * time.Hour)

// complete fills in the default duration and count.
func (s Spec) complete() Spec {
	s.Duration = Duration(s.Lasts())
	if s.Count == 0 && s.Every == 0 && s.Frames == 0 {
		s.Count = 1
	}
	return s
}

// Lasts is the length of an occurrence, by default that of the fault.
func (s *Spec) Lasts() time.Duration {
	t, _ := s.Name.traits()
	return cmp.Or(time.Duration(s.Duration), t.duration)
}

// String returns the text that [Parse] reads.
func (s Spec) String() string {
	var parts []string
	for _, f := range s.fields() {
		if v := reflect.ValueOf(f.value).Elem(); !v.IsZero() {
			parts = append(parts, fmt.Sprintf("%s=%v", f.name, v))
		}
	}
	return strings.TrimSuffix(string(s.Name)+":"+strings.Join(parts, ","), ":")
}

// Parse reads a fault from text: a name and, after a colon, fields as name=value,
// separated by commas.
//
//	gone
//	disconnect:every=2s,count=10
//	stall:at=5s,duration=3s,resource=pods
//
// The error wraps [ErrSpec] and says what is allowed.
func Parse(text string) (Spec, error) {
	name, fields, colon := strings.Cut(text, ":")
	s := Spec{Name: Name(strings.TrimSpace(name))}
	if _, known := s.Name.traits(); !known {
		return Spec{}, s.Validate()
	}
	if err := s.parse(fields, colon); err != nil {
		return Spec{}, err
	}
	return s, s.Validate()
}

// parse reads the fields into the spec.
func (s *Spec) parse(text string, colon bool) error {
	if !colon {
		return nil
	}
	seen := map[string]bool{}
	for _, part := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok {
			return s.fail("%q is not field=value", part)
		}
		if seen[key] {
			return s.fail("%s is given twice", key)
		}
		seen[key] = true
		fields := s.fields()
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			return s.fail("unknown field %q (allowed: at, every, frames, count, until, duration, resource, client, verb, before, after, nth)", key)
		}
		var err error
		switch v := fields[i].value.(type) {
		case *Duration:
			err = v.UnmarshalText([]byte(value))
		case *int:
			var n int64
			if n, err = strconv.ParseInt(value, 10, 32); err != nil {
				err = fmt.Errorf("%q is not a whole number below 2^31", value)
			}
			*v = int(n)
		case *string:
			if *v = value; value == "" {
				err = errors.New("it is empty")
			}
		}
		if err != nil {
			return s.fail("%s: %v", key, err)
		}
	}
	return nil
}

// ParseAll reads faults of texts as [Parse] does, separated by semicolons or newlines. The word
// all stands for [Cycle] and takes every, count and until: all:every=1s,count=3. The
// error has the fault's position. A text without a fault is an error.
func ParseAll(texts ...string) ([]Spec, error) {
	var specs []Spec
	n := 0
	for _, text := range texts {
		before := len(specs)
		for one := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
			if one = strings.TrimSpace(one); one == "" {
				continue
			}
			n++
			more, err := parseOne(one)
			if err != nil {
				return nil, fmt.Errorf("fault %d (%s): %w", n, one, err)
			}
			specs = append(specs, more...)
		}
		if len(specs) == before {
			return nil, fmt.Errorf("%w: none is named (allowed: all, %s)", ErrSpec, allowed())
		}
	}
	return specs, nil
}

func parseOne(text string) ([]Spec, error) {
	name, fields, colon := strings.Cut(text, ":")
	if strings.TrimSpace(name) != "all" {
		s, err := Parse(text)
		return []Spec{s}, err
	}
	s := Spec{Name: "all"}
	if err := s.parse(fields, colon); err != nil {
		return nil, err
	}
	if plain := (Spec{Name: s.Name, Every: s.Every, Count: s.Count, Until: s.Until}); s != plain {
		return nil, fmt.Errorf("%w: all takes every, count and until only", ErrSpec)
	}
	if s.Every == 0 {
		s.Every = Duration(time.Second)
	}
	specs := Cycle(time.Duration(s.Every), s.Count)
	for i := range specs {
		specs[i].Until = s.Until
		if err := specs[i].Validate(); err != nil {
			return nil, err
		}
	}
	return specs, nil
}

// Cycle returns all faults in turn, a period apart, for a number of rounds; 0 means no end.
func Cycle(period time.Duration, rounds int) []Spec {
	specs := make([]Spec, len(all))
	for i, t := range all {
		specs[i] = Spec{
			Name:  t.name,
			At:    Duration(period * time.Duration(i+1)),
			Every: Duration(period * time.Duration(len(all))),
			Count: rounds,
		}
	}
	return specs
}

// Occurrences returns faults as single occurrences up to a time, in order of time. A fault that is triggered
// by frames stays as it is; so does what a write triggers.
func Occurrences(specs []Spec, upto time.Duration) []Spec {
	var out []Spec
	for _, s := range specs {
		if s.Frames > 0 || s.Every == 0 || s.Triggered() {
			out = append(out, s)
			continue
		}
		for n := 1; s.Count == 0 || n <= s.Count; n++ {
			at := s.nth(n)
			if at > upto || s.Until > 0 && at >= time.Duration(s.Until) {
				break
			}
			one := s
			one.At, one.Every, one.Count, one.Until = Duration(at), 0, 0, 0
			out = append(out, one)
		}
	}
	slices.SortStableFunc(out, func(a, b Spec) int { return cmp.Compare(a.At, b.At) })
	return out
}

// allowed lists all faults, for an error.
func allowed() string {
	var names []string
	for _, t := range slices.Concat(all, aimed) {
		names = append(names, string(t.name))
	}
	return strings.Join(names, ", ")
}
