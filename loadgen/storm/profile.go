package storm

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Profile generates storms of one kind. The result depends only on the parameters and a seed.
// [NewProfile] returns the defaults; callers may change every field.
//
// The tag "of" names the profiles that have a field, if not all; others ignore it. The tag
// "allowed" has the limits. Larger values overflow or exhaust memory.
type Profile struct {
	kind *profileKind

	// Nodes is the number of nodes: 1 to 1,000,000.
	Nodes int `name:"nodes" allowed:"1 to 1000000"`
	// Pods is the number of pods: up to 5,000,000. Each profile defines which pods it counts.
	Pods     int   `name:"pods" allowed:"0 to 5000000"`
	PodBytes []int `name:"podBytes"` // sizes of pods in bytes of JSON; workloads use them in turn
	// UpdatesPerSecond is the rate of random status updates outside the storm: of pods, in hotkey of leases.
	UpdatesPerSecond float64 `name:"updatesPerSecond" allowed:"0 to 10000000 a second"`
	Skew             Skew    `name:"skew"` // distribution of these updates over keys: uniform or zipf
	// Lengths of the phases. The drain has background updates and the end of what the storm started.
	Baseline time.Duration `name:"baseline" allowed:"0s to 24h0m0s"`
	Storm    time.Duration `name:"storm" allowed:"1ms to 24h0m0s"`
	Drain    time.Duration `name:"drain" allowed:"0s to 24h0m0s"`

	// ChurnPerSecond is the rate of deleted pods in the storm phase, and of their replacements.
	ChurnPerSecond float64 `name:"churnPerSecond" of:"steady" allowed:"0 to 10000000 a second"`
	// LeasePeriod is the time between two renewals of a node lease.
	LeasePeriod time.Duration `name:"leasePeriod" of:"steady leases nodeloss" allowed:"1ms to 24h0m0s"`
	// PodsPerSecond is the rate of new pods.
	PodsPerSecond float64 `name:"podsPerSecond" of:"rollout gang" allowed:"above 0, up to 10000000 a second"`
	// JobSize is the number of pods of a Job.
	JobSize int `name:"jobSize" of:"gang" allowed:"1 to 5000000"`
	// Work is the run time of a Job's pod.
	Work time.Duration `name:"work" of:"gang" allowed:"1ms to 24h0m0s"`
	// Lost is the fraction of the nodes that fail: above 0, up to 1.
	Lost float64 `name:"lost" of:"nodeloss" allowed:"above 0, up to 1"`
	// WritesPerSecond is the write rate of the control plane in each step.
	WritesPerSecond float64 `name:"writesPerSecond" of:"nodeloss" allowed:"above 0, up to 10000000 a second"`
	// Toleration is the time from NotReady to eviction. Kubernetes' default, 300 s, only lengthens the storm.
	Toleration time.Duration `name:"toleration" of:"nodeloss" allowed:"1ms to 24h0m0s"`
	// Relists is the number of relists in the storm phase, at equal intervals.
	Relists int `name:"relists" of:"relist" allowed:"1 to 1000"`
	// Leases is the number of leader-election leases.
	Leases int `name:"leases" of:"hotkey" allowed:"1 to 5000000"`
	// Endpoints is the number of endpoints of the EndpointSlice.
	Endpoints int `name:"endpoints" of:"hotkey" allowed:"1 to 10000"`
	// SliceUpdatesPerSecond is the update rate of the slice in the storm phase.
	SliceUpdatesPerSecond float64 `name:"sliceUpdatesPerSecond" of:"hotkey" allowed:"0 to 10000000 a second"`
	// PerService is the number of endpoints of a service.
	PerService int `name:"perService" of:"endpoints" allowed:"1 to 100000"`
	// PerSlice is the maximum number of endpoints of a slice. The controller's default is 100.
	PerSlice int `name:"perSlice" of:"endpoints" allowed:"1 to 1000"`
	// ChangesPerSecond is the rate of readiness changes in the storm phase.
	ChangesPerSecond float64 `name:"changesPerSecond" of:"endpoints" allowed:"above 0, up to 10000000 a second"`
	// Period is the time between two resyncs in the storm phase.
	Period time.Duration `name:"period" of:"resync" allowed:"1ms to 24h0m0s"`
	// Events is the number of updates.
	Events float64 `name:"events" of:"ceiling" allowed:"1 to 100000000"`
}

type profileKind struct {
	name, summary string
	defaults      Profile
	// noPods allows Pods to be 0; updates requires UpdatesPerSecond above 0.
	noPods, updates bool
	plan            func(p *Profile, names namer, seed uint64) *plan // expects a valid profile
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

var params = sync.OnceValue(func() map[string]reflect.StructTag {
	all := map[string]reflect.StructTag{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Profile]()) {
		all[f.Tag.Get("name")] = f.Tag
	}
	return all
})

func (k *profileKind) applies(param string) bool {
	of := params()[param].Get("of")
	return of == "" || slices.Contains(strings.Fields(of), k.name)
}

// Params returns the parameters of the profile, each as "name: value".
func (p *Profile) Params() (out []string) {
	v := reflect.ValueOf(p).Elem()
	for _, f := range reflect.VisibleFields(v.Type())[1:] {
		if name := f.Tag.Get("name"); p.kind.applies(name) {
			out = append(out, fmt.Sprintf("%s: %v", name, v.FieldByIndex(f.Index).Interface()))
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

type checks struct {
	kind *profileKind
	err  error
}

func (c *checks) fail(param string, value any, allowed string) {
	if c.err == nil && c.kind.applies(param) {
		c.err = fmt.Errorf("profile %s: %s: %v (allowed: %s)", c.kind.name, param, value, allowed)
	}
}

// limits matches the tag "allowed" of a number or a duration.
var limits = regexp.MustCompile(`^(above )?([^ ,]+)(?:, up)? to ([^ ]+)`)

// within checks a number or a duration against limits.
func (c *checks) within(param string, value any, allowed string) {
	number := func(text string) float64 {
		if d, err := time.ParseDuration(text); err == nil {
			return float64(d)
		}
		v, _ := strconv.ParseFloat(text, 64) // A number in a tag.
		return v
	}
	m := limits.FindStringSubmatch(allowed)
	v, low := number(fmt.Sprint(value)), number(m[2])
	if !(v >= low && v <= number(m[3])) || m[1] != "" && v == low {
		c.fail(param, value, allowed)
	}
}

const maxEvents = 100_000_000 // maximum number of events of a storm

// Validate checks the parameters. The error is one line such as
//
//	profile gang: jobSize: -1 (allowed: 1 to 5000000)
func (p *Profile) Validate() error {
	c := &checks{kind: p.kind}
	v := reflect.ValueOf(p).Elem()
	for _, f := range reflect.VisibleFields(v.Type())[1:] {
		name, allowed := f.Tag.Get("name"), f.Tag.Get("allowed")
		switch {
		case name == "pods" && !p.kind.noPods:
			allowed = "1 to 5000000"
		case name == "updatesPerSecond" && p.kind.updates:
			allowed = "above 0, up to 10000000 a second"
		}
		if value := v.FieldByIndex(f.Index).Interface(); allowed != "" {
			c.within(name, value, allowed)
		}
	}
	if len(p.PodBytes) == 0 || len(p.PodBytes) > 100 {
		c.fail("podBytes", p.PodBytes, "1 to 100 sizes")
	}
	for _, b := range p.PodBytes {
		c.within("podBytes", b, "2000 to 100000")
	}
	if events := p.UpdatesPerSecond * p.Length().Seconds(); events > maxEvents {
		c.fail("updatesPerSecond", p.UpdatesPerSecond, fmt.Sprintf("%d events in all", maxEvents))
	}
	if e := p.Skew.exponent; !(e >= 0) || e > 10 {
		c.fail("skew", p.Skew, "uniform, or zipf:EXPONENT up to 10")
	}
	if n := p.ChurnPerSecond * p.Storm.Seconds(); n > float64(p.Pods) {
		c.fail("churnPerSecond", p.ChurnPerSecond, "all pods once in the storm phase")
	}
	return c.err
}

// stormFrom and stormTo are the start and the end of the storm phase.
func (p *Profile) stormFrom() time.Duration { return p.Baseline }
func (p *Profile) stormTo() time.Duration   { return p.Baseline + p.Storm }
