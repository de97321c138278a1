package storm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Profile generates storms of one kind. The result depends only on the parameters and a seed.
// [NewProfile] returns the defaults; callers may change every field.
//
// The fields up to Drain are common to all profiles. Each other field belongs to the profiles
// that its comment names; the other profiles ignore it.
type Profile struct {
	kind *profileKind

	// Nodes is the number of nodes: 1 to 1,000,000.
	Nodes int `yaml:"nodes"`
	// Pods is the number of pods: up to 5,000,000. Each profile defines which pods it counts.
	Pods int `yaml:"pods"`
	// PodBytes are the sizes of pods in bytes of JSON: 2,000 to 100,000. Workloads use them
	// round-robin.
	PodBytes []int `yaml:"podBytes,flow"`
	// UpdatesPerSecond is the rate of background status updates, at random times in all
	// phases. Only pods outside the storm get them; in hotkey, leases do.
	UpdatesPerSecond float64 `yaml:"updatesPerSecond"`
	// Skew is the distribution of these updates over keys: uniform or zipf.
	Skew Skew `yaml:"skew"`
	// Baseline, Storm and Drain are the lengths of the three phases. Baseline and drain have
	// background updates only; the drain also has the end of events that the storm started.
	Baseline time.Duration `yaml:"baseline"`
	Storm    time.Duration `yaml:"storm"`
	Drain    time.Duration `yaml:"drain"`

	// ChurnPerSecond (steady) is the rate of deleted pods in the storm phase, and of the pods
	// that replace them.
	ChurnPerSecond float64 `yaml:"churnPerSecond"`
	// LeasePeriod (steady, leases, nodeloss) is the time between two renewals of a node lease.
	LeasePeriod time.Duration `yaml:"leasePeriod"`
	// PodsPerSecond (rollout, gang) is the rate of new pods.
	PodsPerSecond float64 `yaml:"podsPerSecond"`
	// JobSize (gang) is the number of pods of a Job.
	JobSize int `yaml:"jobSize"`
	// Work (gang) is the run time of a Job's pod.
	Work time.Duration `yaml:"work"`
	// Lost (nodeloss) is the fraction of the nodes that fail: above 0, up to 1.
	Lost float64 `yaml:"lost"`
	// WritesPerSecond (nodeloss) is the write rate of the control plane in each step.
	WritesPerSecond float64 `yaml:"writesPerSecond"`
	// Toleration (nodeloss) is the time from NotReady to eviction. Kubernetes' default of
	// 300 s only makes the storm longer.
	Toleration time.Duration `yaml:"toleration"`
	// Relists (relist) is the number of relists in the storm phase, at equal intervals.
	Relists int `yaml:"relists"`
	// Leases (hotkey) is the number of leader-election leases.
	Leases int `yaml:"leases"`
	// Endpoints (hotkey) is the number of endpoints of the EndpointSlice.
	Endpoints int `yaml:"endpoints"`
	// SliceUpdatesPerSecond (hotkey) is the update rate of the slice in the storm phase.
	SliceUpdatesPerSecond float64 `yaml:"sliceUpdatesPerSecond"`
	// PerService (endpoints) is the number of endpoints of a service.
	PerService int `yaml:"perService"`
	// PerSlice (endpoints) is the maximum number of endpoints of a slice. The EndpointSlice
	// controller's default is 100.
	PerSlice int `yaml:"perSlice"`
	// ChangesPerSecond (endpoints) is the rate of readiness changes in the storm phase.
	ChangesPerSecond float64 `yaml:"changesPerSecond"`
	// Period (resync) is the time between two resyncs in the storm phase.
	Period time.Duration `yaml:"period"`
	// Events (ceiling) is the number of updates.
	Events float64 `yaml:"events"`
}

// profileKind is one row of the table of profiles.
type profileKind struct {
	name, summary string
	// params are the names of its own parameters, without the common ones.
	params   []string
	defaults Profile
	// noPods allows Pods to be 0; updates requires UpdatesPerSecond above 0.
	noPods, updates bool
	// plan expects a valid profile.
	plan func(p *Profile, names namer, seed uint64) *plan
}

// ErrUnknownProfile is wrapped by the error for an unknown profile name.
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

// Name returns the profile's name, as --storm accepts it.
func (p *Profile) Name() string { return p.kind.name }

// Summary returns a description of the storm in one line.
func (p *Profile) Summary() string { return p.kind.summary }

// Length returns the length of all phases together.
func (p *Profile) Length() time.Duration { return p.Baseline + p.Storm + p.Drain }

// Resize sets the numbers of nodes and pods and multiplies both by scale. A value of 0 means
// unchanged. If only one number is given, the other scales with it. Rates scale too: half the
// nodes have half the pods and half the events per second. Phases keep their lengths.
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

// grown returns n times the factor, at least 1 unless n is 0.
func grown(n int, factor float64) int {
	v := math.Round(float64(n) * factor)
	return int(min(max(v, float64(min(n, 1))), math.MaxInt32))
}

// sixDigits rounds to six significant digits, for readable output.
func sixDigits(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	unit := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*unit) / unit
}

// ParamError is the error for an invalid parameter.
type ParamError struct {
	// Profile is the profile's name.
	Profile string
	// Param is the parameter's name in YAML.
	Param string
	// Value is the rejected value.
	Value any
	// Allowed describes the valid values.
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

// Limits of parameters. Larger values overflow or exhaust memory.
const (
	maxNodes  = 1_000_000
	maxPods   = 5_000_000
	maxRate   = 10_000_000
	maxPhase  = 24 * time.Hour
	minBytes  = 2_000
	maxBytes  = 100_000
	maxEvents = 100_000_000
)

// checks keeps the first invalid parameter.
type checks struct {
	kind *profileKind
	err  error
}

// applies reports whether the profile has the parameter. A parameter that no profile lists in
// params is common to all.
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

// stormFrom and stormTo are the start and the end of the storm phase.
func (p *Profile) stormFrom() time.Duration { return p.Baseline }
func (p *Profile) stormTo() time.Duration   { return p.Baseline + p.Storm }
