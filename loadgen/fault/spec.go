package fault

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Name says what goes wrong.
type Name string

// The faults. "The watches" are those that are open when it happens, or a share
// of them ([Spec.Share]); where it says "for a while", that is [Spec.Duration].
const (
	// Disconnect ends the watches in mid-stream, as a dying proxy does: the
	// client reads an unexpected end of file, never half a frame.
	Disconnect Name = "disconnect"
	// Gone ends the watches with an ERROR event 410 Expired, and answers
	// HTTP 410, for a while, to watches that want to go on from a version and to
	// lists that want to go on with a token.
	Gone Name = "gone"
	// Drip sends what the watches have to say in small pieces with pauses in
	// between, for a while.
	Drip Name = "drip"
	// Stall sends nothing to the watches for a while; then all that waited.
	Stall Name = "stall"
	// HalfFrame sends a part of one of the next frames and ends the watch as
	// Disconnect does. It waits for a frame for a while at most.
	HalfFrame Name = "half-frame"
	// Malformed sends something that is no frame (JSON that doesn't parse, or
	// what is broken in the same way in protobuf and CBOR) and ends the watch.
	Malformed Name = "malformed"
	// ErrorEvent ends the watches with an ERROR event 500 InternalError.
	ErrorEvent Name = "error-event"
	// Throttle ends the watches and answers 429 with Retry-After to all requests
	// for a while.
	Throttle Name = "throttle"
	// InternalError ends the watches and answers 500 to all requests for a while.
	InternalError Name = "internal-error"
	// Reset ends the watches with a TCP reset, so that the client loses what it
	// had not read. Without a TCP connection of its own (HTTP/2), a watch is
	// ended as by Disconnect.
	Reset Name = "reset"
	// DuplicateBookmark sends the watches a bookmark of where they are, twice;
	// to a watch that is sending its initial state, or has sent nothing yet, the
	// next bookmark of the server, if one comes in a while.
	DuplicateBookmark Name = "duplicate-bookmark"
	// Relist compacts everything: all watches end with an ERROR event
	// 410 Expired, and no watch can ever go on from a version that is older than
	// the newest of now, so that every client has to list again.
	Relist Name = "relist"
)

// traits of a fault: what it takes to be specified.
type traits struct {
	name     Name
	duration time.Duration
	frames   bool
}

var all = []traits{
	{name: Disconnect, frames: true},
	{name: Gone, duration: time.Second, frames: true},
	{name: Drip, duration: 2 * time.Second, frames: true},
	{name: Stall, duration: 2 * time.Second, frames: true},
	{name: HalfFrame, duration: 5 * time.Second, frames: true},
	{name: Malformed, frames: true},
	{name: ErrorEvent, frames: true},
	{name: Throttle, duration: time.Second},
	{name: InternalError, duration: time.Second},
	{name: Reset, frames: true},
	{name: DuplicateBookmark, duration: 5 * time.Second, frames: true},
	{name: Relist},
}

// Names returns all faults.
func Names() []Name {
	names := make([]Name, len(all))
	for i, t := range all {
		names[i] = t.name
	}
	return names
}

func (n Name) traits() (traits, bool) {
	i := slices.IndexFunc(all, func(t traits) bool { return t.name == n })
	if i < 0 {
		return traits{}, false
	}
	return all[i], true
}

var (
	// ErrSpec is wrapped by the error for a fault that is not well specified.
	ErrSpec = errors.New("invalid fault")
	// ErrUnknown is wrapped by the error for a name that is no fault. Such an
	// error wraps ErrSpec too.
	ErrUnknown = errors.New("unknown fault")
)

// Duration is a time.Duration that is written as text ("1m30s") in JSON and
// YAML.
type Duration time.Duration

// String returns it as [time.Duration] does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what [time.ParseDuration] does.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 1m30s", text)
	}
	*d = Duration(v)
	return nil
}

// Spec says what goes wrong, and when. Times count from [Injector.Start].
//
// A fault happens once, at At; with Every, again and again; with Frames, when a
// watch has sent so many frames, wherever that is. It stops after Count times
// or at Until, whichever comes first; with Every or Frames and neither of both
// it goes on until the injector is stopped, so that nothing ever settles.
//
// In text (see [Parse]) a fault is its name and its fields:
// disconnect:every=2s,count=10
type Spec struct {
	Name        Name     `json:"name" yaml:"name"`
	At          Duration `json:"at,omitzero" yaml:"at,omitempty"`
	Every       Duration `json:"every,omitzero" yaml:"every,omitempty"`
	Frames      int      `json:"frames,omitzero" yaml:"frames,omitempty"`
	Count       int      `json:"count,omitzero" yaml:"count,omitempty"`
	Until       Duration `json:"until,omitzero" yaml:"until,omitempty"`
	Duration    Duration `json:"duration,omitzero" yaml:"duration,omitempty"`
	Probability float64  `json:"probability,omitzero" yaml:"probability,omitempty"`
	Share       float64  `json:"share,omitzero" yaml:"share,omitempty"`
}

// Validate checks that the fault can be injected. The error wraps [ErrSpec],
// names the field and says what is allowed.
func (s Spec) Validate() error {
	t, known := s.Name.traits()
	if !known {
		return fmt.Errorf("%w: %w %q (allowed: %s)", ErrSpec, ErrUnknown, string(s.Name), join(Names()))
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrSpec, s.Name, fmt.Sprintf(format, args...))
	}
	for _, d := range []struct {
		field string
		d     Duration
	}{{"at", s.At}, {"every", s.Every}, {"until", s.Until}, {"duration", s.Duration}} {
		switch {
		case d.d < 0:
			return fail("%s=%v is negative", d.field, d.d)
		case d.d > maxDuration:
			return fail("%s=%v is more than a year", d.field, d.d)
		}
	}
	for _, p := range []struct {
		field string
		p     float64
	}{{"probability", s.Probability}, {"share", s.Share}} {
		if math.IsNaN(p.p) || p.p < 0 || p.p > 1 {
			return fail("%s=%v (allowed: above 0, up to 1)", p.field, p.p)
		}
	}
	switch {
	case s.Frames < 0:
		return fail("frames=%d is negative", s.Frames)
	case s.Count < 0:
		return fail("count=%d is negative", s.Count)
	case s.Frames > 0 && !t.frames:
		return fail("it takes no frames: it isn't a single watch's")
	case s.Frames > 0 && s.Every > 0:
		return fail("frames and every exclude each other")
	case s.Frames > 0 && s.Share > 0:
		return fail("frames and share exclude each other (there is probability)")
	case s.Share > 0 && s.Name == Relist:
		return fail("it takes no share: everybody lists again")
	case s.Count > 1 && s.Every == 0 && s.Frames == 0:
		return fail("count=%d needs every or frames", s.Count)
	case s.Duration > 0 && t.duration == 0:
		return fail("it takes no duration: it doesn't last")
	case s.Until > 0 && s.Until <= s.first():
		return fail("until=%v is not after its first time, %v", s.Until, s.first())
	case s.Every > 0 && s.Every < Duration(time.Millisecond):
		return fail("every=%v is less than 1ms", s.Every)
	}
	return nil
}

// first is when it happens first, where that depends on time.
func (s Spec) first() Duration {
	if s.At == 0 && s.Frames == 0 {
		return s.Every
	}
	return s.At
}

// Ends reports whether the fault stops by itself.
func (s Spec) Ends() bool {
	return s.Count > 0 || s.Until > 0 || s.Every == 0 && s.Frames == 0
}

// Horizon returns when the fault is over for good, the time that it lasts
// included, and false where time alone doesn't end it: it goes on, or depends
// on frames. The spec must be valid.
func (s Spec) Horizon() (time.Duration, bool) {
	lasts := time.Duration(s.complete().Duration)
	switch {
	case s.Until > 0:
		end := time.Duration(s.Until) + lasts
		if s.Count > 0 && s.Every > 0 {
			end = min(end, s.nth(s.Count)+lasts)
		}
		return end, true
	case s.Frames > 0:
		return 0, false
	case s.Every == 0:
		return time.Duration(s.At) + lasts, true
	case s.Count > 0:
		return s.nth(s.Count) + lasts, true
	default:
		return 0, false
	}
}

// nth is when it happens for the nth time, counted from 1; beyond centuries it
// stays where it is.
func (s Spec) nth(n int) time.Duration {
	first, every := time.Duration(s.first()), time.Duration(s.Every)
	if n <= 1 || every == 0 {
		return first
	}
	return first + time.Duration(min(int64(n-1), math.MaxInt64/2/int64(every)))*every
}

// maxDuration is the longest time that is allowed, so that sums don't overflow.
const maxDuration = Duration(365 * 24 * time.Hour)

// complete fills in the defaults, but for those parts that 0 stands for.
func (s Spec) complete() Spec {
	if s.Duration == 0 {
		t, _ := s.Name.traits()
		s.Duration = Duration(t.duration)
	}
	if s.Count == 0 && s.Every == 0 && s.Frames == 0 {
		s.Count = 1
	}
	return s
}

// draw decides by chance: with a part of 0, which means 1, always.
func draw(part float64, rng *rand.Rand) bool { return part == 0 || rng.Float64() < part }

// String returns the text that [Parse] reads.
func (s Spec) String() string {
	var parts []string
	duration := func(field string, d Duration) {
		if d != 0 {
			parts = append(parts, field+"="+d.String())
		}
	}
	number := func(field string, n int) {
		if n != 0 {
			parts = append(parts, field+"="+strconv.Itoa(n))
		}
	}
	part := func(field string, p float64) {
		if p != 0 {
			parts = append(parts, field+"="+strconv.FormatFloat(p, 'g', -1, 64))
		}
	}
	duration("at", s.At)
	duration("every", s.Every)
	number("frames", s.Frames)
	number("count", s.Count)
	duration("until", s.Until)
	duration("duration", s.Duration)
	part("probability", s.Probability)
	part("share", s.Share)
	if len(parts) == 0 {
		return string(s.Name)
	}
	return string(s.Name) + ":" + strings.Join(parts, ",")
}

// Parse reads a fault as a flag has it: a name, and after a colon its fields as
// name=value, with commas in between.
//
//	gone
//	disconnect:every=2s,count=10
//	stall:at=5s,duration=3s,share=0.5
//
// The spec is valid. The error wraps [ErrSpec] and says what is allowed.
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
func (s *Spec) parse(fields string, colon bool) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrSpec, s.Name, fmt.Sprintf(format, args...))
	}
	if !colon {
		return nil
	}
	seen := map[string]bool{}
	for _, field := range strings.Split(fields, ",") {
		key, value, ok := strings.Cut(field, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok {
			return fail("%q is not field=value", field)
		}
		if seen[key] {
			return fail("%s stands there twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "at":
			err = s.At.UnmarshalText([]byte(value))
		case "every":
			err = s.Every.UnmarshalText([]byte(value))
		case "until":
			err = s.Until.UnmarshalText([]byte(value))
		case "duration":
			err = s.Duration.UnmarshalText([]byte(value))
		case "frames":
			s.Frames, err = parseInt(value)
		case "count":
			s.Count, err = parseInt(value)
		case "probability":
			s.Probability, err = parsePart(value)
		case "share":
			s.Share, err = parsePart(value)
		default:
			return fail("unknown field %q (allowed: at, every, frames, count, until, duration, probability, share)", key)
		}
		if err != nil {
			return fail("%s: %v", key, err)
		}
	}
	return nil
}

func parseInt(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number below 2^31", text)
	}
	return int(n), nil
}

func parsePart(text string) (float64, error) {
	p, err := strconv.ParseFloat(text, 64)
	if err != nil || !(p > 0 && p <= 1) {
		return 0, fmt.Errorf("%q is not a number above 0, up to 1", text)
	}
	return p, nil
}

// ParseAll reads several faults, each as [Parse] does, with semicolons or line
// ends in between. The word all stands for [Tour], and takes every, count and
// until: all:every=1s,count=3. The error names the fault by its place.
func ParseAll(text string) ([]Spec, error) {
	var specs []Spec
	split := strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' })
	n := 0
	for _, one := range split {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		n++
		more, err := parseOne(one)
		if err != nil {
			return nil, fmt.Errorf("fault %d (%s): %w", n, one, err)
		}
		specs = append(specs, more...)
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("%w: none is named (allowed: all, %s)", ErrSpec, join(Names()))
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
	specs := Tour(time.Duration(s.Every), s.Count)
	for i := range specs {
		specs[i].Until = s.Until
		if err := specs[i].Validate(); err != nil {
			return nil, err
		}
	}
	return specs, nil
}

// Tour returns every fault, one after the other, a period apart, and all over
// again, rounds times; 0 rounds go on for ever.
func Tour(period time.Duration, rounds int) []Spec {
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

func join(names []Name) string {
	text := make([]string, len(names))
	for i, n := range names {
		text[i] = string(n)
	}
	return strings.Join(text, ", ")
}
