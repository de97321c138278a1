package storm

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Profile generates storms of one kind. The result depends only on the parameters and a seed.
// [NewProfile] returns the defaults, [Profile.Resize] changes the size. Callers may change every field.
//
// The tag "of" names the profiles that have a field, if not all; others ignore it.
type Profile struct {
	kind *profileKind

	// Nodes is the number of nodes: 1 to 1,000,000.
	Nodes int
	// Pods is the number of pods: up to 5,000,000. Each profile defines which pods it counts.
	Pods     int
	PodBytes []int // sizes of pods in bytes of JSON; workloads use them in turn
	// UpdatesPerSecond is the rate of random status updates outside the storm: of pods, in hotkey of leases.
	UpdatesPerSecond float64
	Skew             Skew // distribution of these updates over keys: uniform or zipf
	// Lengths of the phases. The drain has background updates and the end of what the storm started.
	Baseline time.Duration
	Storm    time.Duration
	Drain    time.Duration

	// ChurnPerSecond is the rate of deleted pods in the storm phase, and of their replacements.
	ChurnPerSecond float64 `of:"steady"`
	// LeasePeriod is the time between two renewals of a node lease.
	LeasePeriod time.Duration `of:"steady leases nodeloss"`
	// PodsPerSecond is the rate of new pods.
	PodsPerSecond float64 `of:"rollout gang"`
	// JobSize is the number of pods of a Job.
	JobSize int `of:"gang"`
	// Work is the run time of a Job's pod.
	Work time.Duration `of:"gang"`
	// Lost is the fraction of the nodes that fail: above 0, up to 1.
	Lost float64 `of:"nodeloss"`
	// WritesPerSecond is the write rate of the control plane in each step.
	WritesPerSecond float64 `of:"nodeloss"`
	// Toleration is the time from NotReady to eviction. Kubernetes' default, 300 s, only lengthens the storm.
	Toleration time.Duration `of:"nodeloss"`
	// Relists is the number of relists in the storm phase, at equal intervals.
	Relists int `of:"relist"`
	// Leases is the number of leader-election leases.
	Leases int `of:"hotkey"`
	// Endpoints is the number of endpoints of the EndpointSlice.
	Endpoints int `of:"hotkey"`
	// SliceUpdatesPerSecond is the update rate of the slice in the storm phase.
	SliceUpdatesPerSecond float64 `of:"hotkey"`
	// PerService is the number of endpoints of a service.
	PerService int `of:"endpoints"`
	// PerSlice is the maximum number of endpoints of a slice. The controller's default is 100.
	PerSlice int `of:"endpoints"`
	// ChangesPerSecond is the rate of readiness changes in the storm phase.
	ChangesPerSecond float64 `of:"endpoints"`
	// Period is the time between two resyncs in the storm phase.
	Period time.Duration `of:"resync"`
	// Events is the number of updates.
	Events float64 `of:"ceiling"`
}

type profileKind struct {
	name, summary string
	defaults      Profile
	noPods        bool                                             // Pods may be 0
	plan          func(p *Profile, names namer, seed uint64) *plan // expects a valid profile
}

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

// NewProfile returns the profile of that name with its defaults. The error lists the names.
func NewProfile(name string) (*Profile, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, fmt.Errorf("unknown profile %q (allowed: %s)", name, strings.Join(Names(), ", "))
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

// Params returns the parameters of the profile, each as "name: value".
func (p *Profile) Params() (out []string) {
	v := reflect.ValueOf(p).Elem()
	for _, f := range reflect.VisibleFields(v.Type())[1:] {
		if of := f.Tag.Get("of"); of == "" || slices.Contains(strings.Fields(of), p.Name()) {
			out = append(out, fmt.Sprintf("%s%s: %v", strings.ToLower(f.Name[:1]), f.Name[1:], v.FieldByIndex(f.Index).Interface()))
		}
	}
	return out
}

// Printable quotes a text that would not be one line of printable characters, such as an error with
// a part of a file.
func Printable(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// Maximum sizes. Larger ones exhaust memory.
const (
	maxNodes     = 1_000_000
	maxPods      = 5_000_000
	maxEndpoints = 10_000      // of a slice
	maxEvents    = 100_000_000 // of a storm
)

// Validate checks the size. The error is one line such as
//
//	profile gang: pods: 0 (allowed: 1 to 5000000)
func (p *Profile) Validate() error {
	fewest := 1
	if p.kind.noPods {
		fewest = 0
	}
	events := int(min(p.UpdatesPerSecond*p.Length().Seconds()+p.Events, math.MaxInt32))
	for _, size := range []struct {
		name             string
		value, low, high int
	}{
		{"nodes", p.Nodes, 1, maxNodes}, {"pods", p.Pods, fewest, maxPods}, {"leases", p.Leases, 0, maxPods},
		{"endpoints", p.Endpoints, 0, maxEndpoints}, {"events", events, 0, maxEvents},
	} {
		if size.value < size.low || size.value > size.high {
			return fmt.Errorf("profile %s: %s: %d (allowed: %d to %d)", p.Name(), size.name, size.value, size.low, size.high)
		}
	}
	return nil
}

// stormFrom and stormTo are the start and the end of the storm phase.
func (p *Profile) stormFrom() time.Duration { return p.Baseline }
func (p *Profile) stormTo() time.Duration   { return p.Baseline + p.Storm }
