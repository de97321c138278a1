package storm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Profile is a kind of storm with its parameters. The ten of this package are
// structs, each made with its defaults by a Default function ([DefaultSteady],
// [DefaultRollout], …) and free to be changed.
//
// What a profile makes depends on its parameters and the seed only.
type Profile interface {
	Name() string

	Summary() string

	Validate() error

	cluster() *Cluster

	rates() []*float64

	plan(names namer, seed uint64) *plan
}

// Cluster is what profiles have in common: how large the cluster is, what its
// objects are like, and how long each phase takes.
type Cluster struct {
	Nodes int `yaml:"nodes"`

	Pods int `yaml:"pods"`

	PodBytes []int `yaml:"podBytes,flow"`

	UpdatesPerSecond float64 `yaml:"updatesPerSecond"`

	Skew Skew `yaml:"skew"`

	Baseline time.Duration `yaml:"baseline"`
	Storm    time.Duration `yaml:"storm"`
	Drain    time.Duration `yaml:"drain"`
}

// ParamError is a parameter that is not allowed.
type ParamError struct {
	Profile string

	Param string

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

// The bounds of parameters: beyond them numbers overflow, or nobody's memory
// suffices.
const (
	maxNodes  = 1_000_000
	maxPods   = 5_000_000
	maxRate   = 10_000_000
	maxPhase  = 24 * time.Hour
	minBytes  = 2_000
	maxBytes  = 100_000
	maxEvents = 100_000_000
)

// checks gathers the first parameter that is not allowed.
type checks struct {
	profile string
	err     error
}

func (c *checks) fail(param string, value any, allowed string) {
	if c.err == nil {
		c.err = &ParamError{Profile: c.profile, Param: param, Value: value, Allowed: allowed}
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

// positive is a rate at which something must happen.
func (c *checks) positive(param string, v float64) {
	if !(v > 0) || v > maxRate {
		c.fail(param, v, fmt.Sprintf("above 0, up to %d a second", maxRate))
	}
}

func (c *checks) share(param string, v float64) {
	if !(v > 0) || v > 1 {
		c.fail(param, v, "above 0, up to 1")
	}
}

func (c *checks) duration(param string, v, low time.Duration) {
	if v < low || v > maxPhase {
		c.fail(param, v, fmt.Sprintf("%v to %v", low, maxPhase))
	}
}

// check looks at what all profiles have.
func (cl *Cluster) check(profile string, minPods int) *checks {
	c := &checks{profile: profile}
	c.number("nodes", cl.Nodes, 1, maxNodes)
	c.number("pods", cl.Pods, minPods, maxPods)
	if len(cl.PodBytes) == 0 || len(cl.PodBytes) > 100 {
		c.fail("podBytes", cl.PodBytes, "1 to 100 sizes")
	}
	for _, b := range cl.PodBytes {
		c.number("podBytes", b, minBytes, maxBytes)
	}
	c.rate("updatesPerSecond", cl.UpdatesPerSecond)
	if e := cl.Skew.exponent; !(e >= 0) || e > 10 {
		c.fail("skew", cl.Skew, "uniform, or zipf:EXPONENT up to 10")
	}
	c.duration("baseline", cl.Baseline, 0)
	c.duration("storm", cl.Storm, time.Millisecond)
	c.duration("drain", cl.Drain, 0)
	if events := cl.UpdatesPerSecond * cl.length().Seconds(); events > maxEvents {
		c.fail("updatesPerSecond", cl.UpdatesPerSecond, fmt.Sprintf("%d events in all", maxEvents))
	}
	return c
}

func (cl *Cluster) cluster() *Cluster { return cl }

func (cl *Cluster) length() time.Duration { return cl.Baseline + cl.Storm + cl.Drain }

// stormFrom and stormTo are the ends of the storm phase.
func (cl *Cluster) stormFrom() time.Duration { return cl.Baseline }
func (cl *Cluster) stormTo() time.Duration   { return cl.Baseline + cl.Storm }

func (cl *Cluster) phases() []Phase {
	var out []Phase
	at := time.Duration(0)
	for _, p := range []struct {
		name string
		d    time.Duration
	}{{"baseline", cl.Baseline}, {"storm", cl.Storm}, {"drain", cl.Drain}} {
		if p.d > 0 {
			out = append(out, Phase{Name: p.name, From: at, To: at + p.d})
		}
		at += p.d
	}
	return out
}

// background is the draw of the pods' own updates.
func (cl *Cluster) background(stream uint8, first, n int, states ...uint8) draw {
	return draw{
		stream: stream, first: int32(first), n: int32(n), skew: cl.Skew, to: cl.length(),
		perSecond: cl.UpdatesPerSecond, poisson: true, states: states,
	}
}

// renewals is the draw of node leases: each node once in ten seconds.
func (cl *Cluster) renewals(stream uint8, first, n int, every time.Duration) draw {
	return draw{
		stream: stream, first: int32(first), n: int32(n), inTurn: true, to: cl.length(),
		perSecond: float64(n) / every.Seconds(), states: []uint8{1, 2, 3, 0},
	}
}

// heartbeats is the draw of node status: each node once in five minutes.
func (cl *Cluster) heartbeats(stream uint8, first, n int) draw {
	d := cl.renewals(stream, first, n, 5*time.Minute)
	d.states = []uint8{nodeHeartbeat, nodeReady}
	return d
}

// Skew, PodBytes and so on that most profiles begin with.
func defaultCluster(nodes, pods int, baseline, storm, drain time.Duration) Cluster {
	return Cluster{
		Nodes: nodes, Pods: pods, PodBytes: []int{2_000, 10_000, 20_000}, UpdatesPerSecond: 100,
		Baseline: baseline, Storm: storm, Drain: drain,
	}
}

// ErrUnknownProfile is wrapped by the error for a name that is no profile.
var ErrUnknownProfile = errors.New("unknown profile")

// Profiles returns all profiles with their defaults.
func Profiles() []Profile {
	return []Profile{
		DefaultSteady(), DefaultRollout(), DefaultGang(), DefaultLeases(), DefaultNodeLoss(),
		DefaultRelist(), DefaultHotKey(), DefaultEndpoints(), DefaultResync(), DefaultCeiling(),
	}
}

// Names returns the names of all profiles.
func Names() []string {
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name())
	}
	return names
}

// NewProfile returns the profile of that name with its defaults. The error wraps
// [ErrUnknownProfile] and says which there are.
func NewProfile(name string) (Profile, error) {
	all := Profiles()
	if i := slices.IndexFunc(all, func(p Profile) bool { return p.Name() == name }); i >= 0 {
		return all[i], nil
	}
	return nil, fmt.Errorf("%w %q (allowed: %s)", ErrUnknownProfile, name, strings.Join(Names(), ", "))
}

// Resize makes the profile's cluster so many nodes and pods, where these are not
// 0, and then scale times as large, where that is not 0. What isn't given
// follows what is, as do the rates: a cluster of half the nodes has half the
// pods and half the events a second. Phases keep their lengths.
func Resize(p Profile, nodes, pods int, scale float64) {
	cl := p.cluster()
	factor := 1.0
	switch {
	case pods > 0 && cl.Pods > 0:
		factor = float64(pods) / float64(cl.Pods)
	case nodes > 0:
		factor = float64(nodes) / float64(cl.Nodes)
	}
	if nodes == 0 {
		nodes = grown(cl.Nodes, factor)
	}
	if pods == 0 {
		pods = grown(cl.Pods, factor)
	}
	if scale > 0 {
		nodes, pods = grown(nodes, scale), grown(pods, scale)
		factor *= scale
	}
	cl.Nodes, cl.Pods = nodes, pods
	cl.UpdatesPerSecond = rounded(cl.UpdatesPerSecond * factor)
	for _, r := range p.rates() {
		*r = rounded(*r * factor)
	}
	if c, ok := p.(interface{ counts() []*int }); ok {
		for _, n := range c.counts() {
			*n = grown(*n, factor)
		}
	}
}

// Skewed gives the profile's background updates another skew.
func Skewed(p Profile, s Skew) { p.cluster().Skew = s }

// Size says how large a profile is.
type Size struct {
	Nodes, Pods int

	Length time.Duration
}

// SizeOf returns how large a profile is.
func SizeOf(p Profile) Size {
	cl := p.cluster()
	return Size{Nodes: cl.Nodes, Pods: cl.Pods, Length: cl.length()}
}

// grown returns n times the factor; at least 1 where there was one before.
func grown(n int, factor float64) int {
	v := math.Round(float64(n) * factor)
	return int(min(max(v, float64(min(n, 1))), math.MaxInt32))
}

// rounded keeps figures readable: six digits.
func rounded(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	unit := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*unit) / unit
}
