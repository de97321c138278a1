package storm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Profile generates storms of one kind. Its parameters and a seed decide what it
// generates, and nothing else does. [NewProfile] returns one with its defaults;
// every field may be changed afterwards.
//
// The first group of fields is common to all profiles. Each of the others belongs
// to the profiles that document it, and is ignored by the rest.
type Profile struct {
	kind *profileKind

	Nodes int `yaml:"nodes"`
	Pods  int `yaml:"pods"`
	// PodBytes are the sizes of pods as JSON; Deployments and Jobs use them in turn.
	PodBytes []int `yaml:"podBytes,flow"`
	// UpdatesPerSecond is the rate of background updates in all phases; Skew
	// says which keys they update.
	UpdatesPerSecond float64 `yaml:"updatesPerSecond"`
	Skew             Skew    `yaml:"skew"`
	// The lengths of the three phases.
	Baseline time.Duration `yaml:"baseline"`
	Storm    time.Duration `yaml:"storm"`
	Drain    time.Duration `yaml:"drain"`

	ChurnPerSecond float64       `yaml:"churnPerSecond"`
	LeasePeriod    time.Duration `yaml:"leasePeriod"`

	PodsPerSecond float64       `yaml:"podsPerSecond"`
	JobSize       int           `yaml:"jobSize"`
	Work          time.Duration `yaml:"work"` // run time of a Job's pod

	Lost            float64       `yaml:"lost"` // fraction of the nodes
	WritesPerSecond float64       `yaml:"writesPerSecond"`
	Toleration      time.Duration `yaml:"toleration"` // from NotReady to eviction

	Relists int `yaml:"relists"`

	Leases                int     `yaml:"leases"`
	Endpoints             int     `yaml:"endpoints"`
	SliceUpdatesPerSecond float64 `yaml:"sliceUpdatesPerSecond"`

	PerService       int     `yaml:"perService"` // endpoints of a service
	PerSlice         int     `yaml:"perSlice"`   // endpoints of an EndpointSlice
	ChangesPerSecond float64 `yaml:"changesPerSecond"`

	Period time.Duration `yaml:"period"`

	Events float64 `yaml:"events"`
}

// profileKind is a row of the table of profiles.
type profileKind struct {
	name, summary string
	// params are the names of its parameters besides those of all profiles.
	params   []string
	defaults Profile
	// noPods allows 0 pods; updates requires background updates.
	noPods, updates bool
	plan            func(p *Profile, names namer, seed uint64) *plan
}

// ErrUnknownProfile is wrapped by the error for a name that is no profile.
var ErrUnknownProfile = errors.New("unknown profile")

// Names returns the names of all profiles.
func Names() []string {
	var names []string
	for i := range profileKinds {
		names = append(names, profileKinds[i].name)
	}
	return names
}

// Profiles returns all profiles with their defaults.
func Profiles() []*Profile {
	var all []*Profile
	for i := range profileKinds {
		k := &profileKinds[i]
		p := k.defaults
		p.kind, p.PodBytes = k, []int{2_000, 10_000, 20_000}
		all = append(all, &p)
	}
	return all
}

// NewProfile returns the profile of that name with its defaults. The error wraps
// [ErrUnknownProfile] and lists the names.
func NewProfile(name string) (*Profile, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, fmt.Errorf("%w %q (allowed: %s)", ErrUnknownProfile, name, strings.Join(Names(), ", "))
	}
	return Profiles()[i], nil
}

// Name returns the profile's name.
func (p *Profile) Name() string { return p.kind.name }

// Summary describes the storm in one line.
func (p *Profile) Summary() string { return p.kind.summary }

// Length returns the length of all phases together.
func (p *Profile) Length() time.Duration { return p.Baseline + p.Storm + p.Drain }

// Resize sets the numbers of nodes and pods, where they are not 0, and then
// multiplies both by scale, where that is not 0. A number that is not given
// follows the one that is, and so do rates: a cluster of half the nodes has half
// the pods and half the events per second. Phases keep their lengths.
func (p *Profile) Resize(nodes, pods int, scale float64) {
	factor := 1.0
	switch {
	case pods > 0 && p.Pods > 0:
		factor = float64(pods) / float64(p.Pods)
	case nodes > 0:
		factor = float64(nodes) / float64(p.Nodes)
	}
	if nodes == 0 {
		nodes = grown(p.Nodes, factor)
	}
	if pods == 0 {
		pods = grown(p.Pods, factor)
	}
	if scale > 0 {
		nodes, pods = grown(nodes, scale), grown(pods, scale)
		factor *= scale
	}
	p.Nodes, p.Pods = nodes, pods
	for _, n := range []*int{&p.Leases, &p.Endpoints} {
		*n = grown(*n, factor)
	}
	for _, rate := range []*float64{
		&p.UpdatesPerSecond, &p.ChurnPerSecond, &p.PodsPerSecond, &p.WritesPerSecond,
		&p.SliceUpdatesPerSecond, &p.ChangesPerSecond, &p.Events,
	} {
		*rate = sixDigits(*rate * factor)
	}
}

// grown returns n times the factor, and at least 1 unless n is 0.
func grown(n int, factor float64) int {
	v := math.Round(float64(n) * factor)
	return int(min(max(v, float64(min(n, 1))), math.MaxInt32))
}

// sixDigits rounds to six significant digits, so that figures stay readable.
func sixDigits(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	unit := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*unit) / unit
}

// ParamError is the error for a parameter that is not allowed.
type ParamError struct {
	// Profile that it is of.
	Profile string
	Param   string
	Value   any
	Allowed string
}

// ErrParam is wrapped by every [*ParamError].
var ErrParam = errors.New("invalid parameter")

// Error returns one line such as
//
//	profile gang: jobSize: -1 (allowed: 1 to 5000000)
func (e *ParamError) Error() string {
	return fmt.Sprintf("profile %s: %s: %v (allowed: %s)", e.Profile, e.Param, e.Value, e.Allowed)
}

// Unwrap returns [ErrParam].
func (e *ParamError) Unwrap() error { return ErrParam }

// The limits of parameters. Beyond them numbers overflow or memory runs out.
const (
	maxNodes  = 1_000_000
	maxPods   = 5_000_000
	maxRate   = 10_000_000
	maxPhase  = 24 * time.Hour
	minBytes  = 2_000
	maxBytes  = 100_000
	maxEvents = 100_000_000
)

// checks keeps the first parameter that is not allowed.
type checks struct {
	kind *profileKind
	err  error
}

// applies reports whether the profile has the parameter: all profiles have those
// that no profile has for itself.
func (k *profileKind) applies(param string) bool {
	return slices.Contains(k.params, param) ||
		!slices.ContainsFunc(profileKinds, func(o profileKind) bool { return slices.Contains(o.params, param) })
}

func (c *checks) fail(param string, value any, allowed string) {
	if c.err == nil && c.kind.applies(param) {
		c.err = &ParamError{Profile: c.kind.name, Param: param, Value: value, Allowed: allowed}
	}
}

func (c *checks) number(param string, v, low, high int) {
	if v < low || v > high {
		c.fail(param, v, fmt.Sprintf("%d to %d", low, high))
	}
}

func (c *checks) rate(param string, v float64) {
	if !(v >= 0) || v > maxRate {
		c.fail(param, v, fmt.Sprintf("0 to %d a second", maxRate))
	}
}

func (c *checks) positive(param string, v float64) {
	if !(v > 0) || v > maxRate {
		c.fail(param, v, fmt.Sprintf("above 0, up to %d a second", maxRate))
	}
}

func (c *checks) duration(param string, v, low time.Duration) {
	if v < low || v > maxPhase {
		c.fail(param, v, fmt.Sprintf("%v to %v", low, maxPhase))
	}
}

// Validate checks the parameters. The error is a [*ParamError].
func (p *Profile) Validate() error {
	c := &checks{kind: p.kind}
	minPods := 1
	if p.kind.noPods {
		minPods = 0
	}
	c.number("nodes", p.Nodes, 1, maxNodes)
	c.number("pods", p.Pods, minPods, maxPods)
	if len(p.PodBytes) == 0 || len(p.PodBytes) > 100 {
		c.fail("podBytes", p.PodBytes, "1 to 100 sizes")
	}
	for _, b := range p.PodBytes {
		c.number("podBytes", b, minBytes, maxBytes)
	}
	c.rate("updatesPerSecond", p.UpdatesPerSecond)
	if p.kind.updates {
		c.positive("updatesPerSecond", p.UpdatesPerSecond)
	}
	if e := p.Skew.exponent; !(e >= 0) || e > 10 {
		c.fail("skew", p.Skew, "uniform, or zipf:EXPONENT up to 10")
	}
	c.duration("baseline", p.Baseline, 0)
	c.duration("storm", p.Storm, time.Millisecond)
	c.duration("drain", p.Drain, 0)
	if events := p.UpdatesPerSecond * p.Length().Seconds(); events > maxEvents {
		c.fail("updatesPerSecond", p.UpdatesPerSecond, fmt.Sprintf("%d events in all", maxEvents))
	}

	c.rate("churnPerSecond", p.ChurnPerSecond)
	if n := p.ChurnPerSecond * p.Storm.Seconds(); n > float64(p.Pods) {
		c.fail("churnPerSecond", p.ChurnPerSecond, "all pods once in the storm phase")
	}
	c.duration("leasePeriod", p.LeasePeriod, time.Millisecond)
	c.positive("podsPerSecond", p.PodsPerSecond)
	c.number("jobSize", p.JobSize, 1, maxPods)
	c.duration("work", p.Work, time.Millisecond)
	if !(p.Lost > 0) || p.Lost > 1 {
		c.fail("lost", p.Lost, "above 0, up to 1")
	}
	c.positive("writesPerSecond", p.WritesPerSecond)
	c.duration("toleration", p.Toleration, time.Millisecond)
	c.number("relists", p.Relists, 1, 1000)
	c.number("leases", p.Leases, 1, maxPods)
	c.number("endpoints", p.Endpoints, 1, 10_000)
	c.rate("sliceUpdatesPerSecond", p.SliceUpdatesPerSecond)
	c.number("perService", p.PerService, 1, 100_000)
	c.number("perSlice", p.PerSlice, 1, 1000)
	c.positive("changesPerSecond", p.ChangesPerSecond)
	c.duration("period", p.Period, time.Millisecond)
	if !(p.Events >= 1) || p.Events > maxEvents {
		c.fail("events", p.Events, fmt.Sprintf("1 to %d", maxEvents))
	}
	return c.err
}

// stormFrom and stormTo are the ends of the storm phase.
func (p *Profile) stormFrom() time.Duration { return p.Baseline }
func (p *Profile) stormTo() time.Duration   { return p.Baseline + p.Storm }

func (p *Profile) phases() []Phase {
	var out []Phase
	for _, ph := range []Phase{
		{"baseline", 0, p.stormFrom()}, {"storm", p.stormFrom(), p.stormTo()}, {"drain", p.stormTo(), p.Length()},
	} {
		if ph.To > ph.From {
			out = append(out, ph)
		}
	}
	return out
}
