package storm

import (
	"time"

	"watchlab/loadgen/pace"
)

// The lives of pods. Gaps are those of a cluster in health; see
// exemplars/README.md for where they were seen.
var (
	// birth of a Deployment's pod, until it is ready: 5 events.
	birth = []beat{
		{0, Added, podCreated},
		{10 * time.Millisecond, Modified, podScheduled},
		{500 * time.Millisecond, Modified, podAssigned},
		{1500 * time.Millisecond, Modified, podInitialized},
		{2 * time.Second, Modified, podRunning},
	}
	// death of a Deployment's pod: 3 events.
	death = []beat{
		{0, Modified, podTerminating},
		{2 * time.Second, Modified, podTerminated},
		{20 * time.Millisecond, Deleted, podTerminated},
	}
)

// spread puts pods onto nodes in turn, blocks of them one node after the other.
func spread(nodes int) func(int) int    { return func(i int) int { return i % nodes } }
func blocks(n, nodes int) func(int) int { return func(i int) int { return i * nodes / max(n, 1) } }

// deployed is how many pods a Deployment has.
const deployed = 100

// Steady is a healthy cluster at the size that SIG Scalability supports: 5,000
// nodes, 150,000 pods, at most 20 pods a second that go and come, a lease
// renewal of each node every 10 s, a node status every 5 minutes.
//
// Resources: pods, leases, nodes.
type Steady struct {
	Cluster `yaml:",inline"`

	ChurnPerSecond float64 `yaml:"churnPerSecond"`

	LeasePeriod time.Duration `yaml:"leasePeriod"`
}

// DefaultSteady returns the profile steady with its defaults.
func DefaultSteady() *Steady {
	return &Steady{
		Cluster:        defaultCluster(5_000, 150_000, 0, time.Minute, 5*time.Second),
		ChurnPerSecond: 20, LeasePeriod: 10 * time.Second,
	}
}

// Name returns "steady".
func (s *Steady) Name() string { return "steady" }

// Summary says what happens.
func (s *Steady) Summary() string {
	return "a healthy cluster: a little churn, status updates, leases, node heartbeats"
}

// Validate checks the parameters.
func (s *Steady) Validate() error {
	c := s.check(s.Name(), 1)
	c.rate("churnPerSecond", s.ChurnPerSecond)
	c.duration("leasePeriod", s.LeasePeriod, time.Millisecond)
	if n := s.ChurnPerSecond * s.Storm.Seconds(); n > float64(s.Pods) {
		c.fail("churnPerSecond", s.ChurnPerSecond, "all pods once in the storm phase")
	}
	return c.err
}

func (s *Steady) rates() []*float64 { return []*float64{&s.ChurnPerSecond} }

func (s *Steady) plan(names namer, seed uint64) *plan {
	churn := int(s.ChurnPerSecond * s.Storm.Seconds())
	cast := newPods(names, seed, s.PodBytes,
		podGroup{n: s.Pods, app: "web", each: deployed, node: spread(s.Nodes), revision: 1},
		podGroup{first: s.Pods, n: churn, app: "web", each: deployed, node: spread(s.Nodes), revision: 2},
	)
	p := &plan{
		streams: []*stream{
			{cast: cast, keys: s.Pods + churn, initial: s.Pods, settled: podRunning},
			{cast: newLeases(names, mix(seed+1), mix(seed+2)), keys: s.Nodes, initial: s.Nodes},
			{cast: newNodes(names, mix(seed+2)), keys: s.Nodes, initial: s.Nodes},
		},
		draws: []draw{
			s.background(0, 0, s.Pods-churn, podUnready, podRunning),
			s.renewals(1, 0, s.Nodes, s.LeasePeriod),
			s.heartbeats(2, 0, s.Nodes),
		},
		phases: s.phases(), end: s.length(),
	}
	if churn > 0 {
		starts := pace.Rate(s.ChurnPerSecond)
		p.lives = []life{
			{first: int32(s.Pods - churn), n: int32(churn), from: s.stormFrom(), starts: starts, script: death, jitter: 0.25},
			{first: int32(s.Pods), n: int32(churn), from: s.stormFrom() + 100*time.Millisecond, starts: starts, script: birth, jitter: 0.25},
		}
	}
	return p
}

// Rollout is a rolling update of every Deployment: new pods at a steady rate, an
// old one deleted for each that is ready; 8 events for the two of them. Each
// change of readiness sends the EndpointSlice of its service anew.
//
// Resources: pods, endpointslices.
type Rollout struct {
	Cluster `yaml:",inline"`

	PodsPerSecond float64 `yaml:"podsPerSecond"`
}

// DefaultRollout returns the profile rollout with its defaults: 100 pods a
// second.
func DefaultRollout() *Rollout {
	return &Rollout{
		Cluster:       defaultCluster(500, 10_000, 5*time.Second, 100*time.Second, 15*time.Second),
		PodsPerSecond: 100,
	}
}

// Name returns "rollout".
func (r *Rollout) Name() string { return "rollout" }

// Summary says what happens.
func (r *Rollout) Summary() string {
	return "a rolling update of every Deployment: new pods at a steady rate, old ones deleted"
}

// Validate checks the parameters.
func (r *Rollout) Validate() error {
	c := r.check(r.Name(), 1)
	c.positive("podsPerSecond", r.PodsPerSecond)
	return c.err
}

func (r *Rollout) rates() []*float64 { return []*float64{&r.PodsPerSecond} }

func (r *Rollout) plan(names namer, seed uint64) *plan {
	renewed := min(r.Pods, max(1, int(r.PodsPerSecond*r.Storm.Seconds())))
	slices := newEndpoints(names, (r.Pods+deployed-1)/deployed, min(r.Pods, deployed), 100, mix(seed+1))
	starts := pace.Rate(r.PodsPerSecond)
	ready := time.Duration(0)
	for _, b := range birth {
		ready += b.after
	}
	return &plan{
		streams: []*stream{
			{
				cast: newPods(names, seed, r.PodBytes,
					podGroup{n: r.Pods, app: "web", each: deployed, node: spread(r.Nodes), revision: 1},
					podGroup{first: r.Pods, n: renewed, app: "web", each: deployed, node: spread(r.Nodes), revision: 2},
				),
				keys: r.Pods + renewed, initial: r.Pods, settled: podRunning,
			},
			{cast: slices, keys: len(slices.keys), initial: len(slices.keys)},
		},
		lives: []life{
			{first: int32(r.Pods), n: int32(renewed), from: r.stormFrom(), starts: starts, script: birth, jitter: 0.25},
			{first: int32(r.Pods - renewed), n: int32(renewed), from: r.stormFrom() + ready, starts: starts, script: death, jitter: 0.25},
		},
		draws: []draw{
			r.background(0, 0, r.Pods-renewed, podUnready, podRunning),
			{
				stream: 1, n: int32(len(slices.keys)), from: r.stormFrom() + ready, to: r.stormTo() + ready,
				perSecond: 2 * r.PodsPerSecond, poisson: true, states: []uint8{1, 2, 3, 0},
			},
		},
		phases: r.phases(), end: r.length(),
	}
}

// Gang is a cluster that is filled with Jobs whose pods all start together:
// 65,000 pods within 150 s, as GKE showed it on 65,000 nodes, 8 events each until
// they are finished and removed.
//
// Nodes have one pod of a DaemonSet's kind from the beginning; Pods are those
// of the Jobs. Resources: pods, jobs.
type Gang struct {
	Cluster `yaml:",inline"`

	JobSize int `yaml:"jobSize"`

	PodsPerSecond float64 `yaml:"podsPerSecond"`

	Work time.Duration `yaml:"work"`
}

// DefaultGang returns the profile gang with its defaults: 65,000 pods in 150 s.
func DefaultGang() *Gang {
	return &Gang{
		Cluster: defaultCluster(5_000, 65_000, 5*time.Second, 150*time.Second, 45*time.Second),
		JobSize: 100, PodsPerSecond: 434, Work: 10 * time.Second,
	}
}

// Name returns "gang".
func (g *Gang) Name() string { return "gang" }

// Summary says what happens.
func (g *Gang) Summary() string {
	return "a cluster filled with Jobs: pods created in gangs, run, finished, removed"
}

// Validate checks the parameters.
func (g *Gang) Validate() error {
	c := g.check(g.Name(), 1)
	c.number("jobSize", g.JobSize, 1, maxPods)
	c.positive("podsPerSecond", g.PodsPerSecond)
	c.duration("work", g.Work, time.Millisecond)
	return c.err
}

func (g *Gang) rates() []*float64 { return []*float64{&g.PodsPerSecond} }

func (g *Gang) plan(names namer, seed uint64) *plan {
	each := min(g.JobSize, g.Pods)
	cast := newPods(names, seed, g.PodBytes,
		podGroup{n: g.Nodes, app: "agent", each: deployed, node: spread(g.Nodes), revision: 1},
		podGroup{first: g.Nodes, n: g.Pods, app: "train", each: each, job: true, node: spread(g.Nodes), revision: 1},
	)
	jobs := newJobs(cast, 1, mix(seed+1))
	n := len(jobs.keys)
	// A gang's pods are created at once; the gangs follow each other at the
	// rate of all pods.
	gangs := pace.Rate(g.PodsPerSecond / float64(each))
	return &plan{
		streams: []*stream{
			{cast: cast, keys: g.Nodes + g.Pods, initial: g.Nodes, settled: podRunning},
			{cast: jobs, keys: n},
		},
		lives: []life{
			{first: int32(g.Nodes), n: int32(g.Pods), from: g.stormFrom() + 50*time.Millisecond, starts: inGangs{gangs, each}, jitter: 0.25, script: []beat{
				{100 * time.Millisecond, Added, workerCreated},
				{10 * time.Millisecond, Modified, workerScheduled},
				{1500 * time.Millisecond, Modified, workerStarting},
				{2 * time.Second, Modified, workerRunning},
				{g.Work, Modified, workerSucceeded},
				{10 * time.Second, Modified, workerFinished},
				{5 * time.Second, Modified, workerTerminating},
				{5 * time.Millisecond, Deleted, workerTerminating},
			}},
			{stream: 1, n: int32(n), from: g.stormFrom(), starts: gangs, script: []beat{
				{0, Added, jobCreated},
				{200 * time.Millisecond, Modified, jobStarted},
				{4*time.Second + g.Work, Modified, jobRunning},
				{2 * time.Second, Modified, jobSucceeded},
				{12 * time.Second, Modified, jobComplete},
				{5 * time.Second, Deleted, jobComplete},
			}},
		},
		draws:  []draw{g.background(0, 0, g.Nodes, podUnready, podRunning)},
		phases: g.phases(), end: g.length(),
	}
}

// inGangs starts so many at once, where its schedule starts one.
type inGangs struct {
	pace.Schedule
	each int
}

func (s inGangs) Intended(i int) time.Duration { return s.Schedule.Intended(i / s.each) }

// Leases is nothing but the renewals of node leases: 5,000 nodes every 10 s are
// 500 a second, 130,000 are 13,000. Pods play no part.
//
// Resources: leases.
type Leases struct {
	Cluster `yaml:",inline"`

	LeasePeriod time.Duration `yaml:"leasePeriod"`
}

// DefaultLeases returns the profile leases with its defaults.
func DefaultLeases() *Leases {
	l := &Leases{Cluster: defaultCluster(5_000, 0, 0, time.Minute, 0), LeasePeriod: 10 * time.Second}
	l.UpdatesPerSecond = 0
	return l
}

// Name returns "leases".
func (l *Leases) Name() string { return "leases" }

// Summary says what happens.
func (l *Leases) Summary() string { return "every node renews its lease every ten seconds" }

// Validate checks the parameters.
func (l *Leases) Validate() error {
	c := l.check(l.Name(), 0)
	c.duration("leasePeriod", l.LeasePeriod, time.Millisecond)
	return c.err
}

func (l *Leases) rates() []*float64 { return nil }

func (l *Leases) plan(names namer, seed uint64) *plan {
	return &plan{
		streams: []*stream{{cast: newLeases(names, seed, mix(seed+2)), keys: l.Nodes, initial: l.Nodes}},
		draws:   []draw{l.renewals(0, 0, l.Nodes, l.LeasePeriod)},
		phases:  l.phases(), end: l.length(),
	}
}

// NodeLoss is a part of a cluster's nodes that is lost at once, full of pods: 110
// on each. Its pods become NotReady, are evicted and deleted, and are created
// again; those find no room, and wait until the nodes are back, when they are
// scheduled and run. 9 events for each pod that was there.
//
// Resources: pods, nodes, leases. The lost nodes are the first by name.
type NodeLoss struct {
	Cluster `yaml:",inline"`

	Lost float64 `yaml:"lost"`

	WritesPerSecond float64 `yaml:"writesPerSecond"`

	Toleration time.Duration `yaml:"toleration"`

	LeasePeriod time.Duration `yaml:"leasePeriod"`
}

// DefaultNodeLoss returns the profile nodeloss with its defaults: 200 of 1,000
// nodes with 110 pods each.
func DefaultNodeLoss() *NodeLoss {
	return &NodeLoss{
		Cluster: defaultCluster(1_000, 110_000, 5*time.Second, 30*time.Second, 25*time.Second),
		Lost:    0.2, WritesPerSecond: 10_000, Toleration: 10 * time.Second, LeasePeriod: 10 * time.Second,
	}
}

// Name returns "nodeloss".
func (l *NodeLoss) Name() string { return "nodeloss" }

// Summary says what happens.
func (l *NodeLoss) Summary() string {
	return "a part of the nodes is lost at once: pods NotReady, evicted, deleted, created again"
}

// Validate checks the parameters.
func (l *NodeLoss) Validate() error {
	c := l.check(l.Name(), 1)
	c.share("lost", l.Lost)
	c.positive("writesPerSecond", l.WritesPerSecond)
	c.duration("toleration", l.Toleration, time.Millisecond)
	c.duration("leasePeriod", l.LeasePeriod, time.Millisecond)
	return c.err
}

func (l *NodeLoss) rates() []*float64 { return []*float64{&l.WritesPerSecond} }

func (l *NodeLoss) plan(names namer, seed uint64) *plan {
	lostNodes := max(1, int(l.Lost*float64(l.Nodes)))
	on := blocks(l.Pods, l.Nodes)
	lost := 0
	for lost < l.Pods && on(lost) < lostNodes {
		lost++
	}
	outage, back := l.stormFrom(), l.stormTo()
	wave := pace.Rate(l.WritesPerSecond)
	alive := l.Nodes - lostNodes
	return &plan{
		streams: []*stream{
			{
				cast: newPods(names, seed, l.PodBytes,
					podGroup{n: l.Pods, app: "web", each: deployed, node: on, revision: 1},
					podGroup{first: l.Pods, n: lost, app: "web", each: deployed, node: on, revision: 1 << 8},
				),
				keys: l.Pods + lost, initial: l.Pods, settled: podRunning,
			},
			{cast: newNodes(names, mix(seed+2)), keys: l.Nodes, initial: l.Nodes},
			{cast: newLeases(names, mix(seed+1), mix(seed+2)), keys: l.Nodes, initial: l.Nodes},
		},
		lives: []life{
			{n: int32(lost), from: outage, starts: wave, jitter: 0.1, script: []beat{
				{50 * time.Millisecond, Modified, podNodeLost},
				{l.Toleration, Modified, podEvicted},
				{time.Second, Deleted, podEvicted},
			}},
			{first: int32(l.Pods), n: int32(lost), from: outage + l.Toleration, starts: wave, jitter: 0.1, script: []beat{
				{time.Second, Added, podCreated},
				{10 * time.Millisecond, Modified, podUnschedulable},
			}},

			{first: int32(l.Pods), n: int32(lost), from: max(back, outage+l.Toleration+3*time.Second), starts: wave, jitter: 0.1, script: []beat{
				{time.Second, Modified, podScheduled},
				{500 * time.Millisecond, Modified, podAssigned},
				{1500 * time.Millisecond, Modified, podInitialized},
				{2 * time.Second, Modified, podRunning},
			}},
			{stream: 1, n: int32(lostNodes), from: outage, starts: wave, script: []beat{{0, Modified, nodeNotReady}}},
			{stream: 1, n: int32(lostNodes), from: back, starts: wave, script: []beat{{0, Modified, nodeReady}}},
		},
		draws: []draw{
			l.background(0, lost, l.Pods-lost, podUnready, podRunning),
			l.heartbeats(1, lostNodes, alive),
			l.renewals(2, lostNodes, alive, l.LeasePeriod),
		},
		phases: l.phases(), end: l.length(),
	}
}

// Relist is a large cluster whose watch expires in the middle of an update storm:
// 410 Gone, then a Replace of 150,000 objects.
//
// Resources: pods. The storm has marks, [MarkRelist].
type Relist struct {
	Cluster `yaml:",inline"`

	Relists int `yaml:"relists"`
}

// DefaultRelist returns the profile relist with its defaults.
func DefaultRelist() *Relist {
	r := &Relist{Cluster: defaultCluster(5_000, 150_000, 5*time.Second, 20*time.Second, 5*time.Second), Relists: 1}
	r.UpdatesPerSecond = 1_000
	return r
}

// Name returns "relist".
func (r *Relist) Name() string { return "relist" }

// Summary says what happens.
func (r *Relist) Summary() string {
	return "410 Gone in mid-storm, then a Replace of everything"
}

// Validate checks the parameters.
func (r *Relist) Validate() error {
	c := r.check(r.Name(), 1)
	c.positive("updatesPerSecond", r.UpdatesPerSecond)
	c.number("relists", r.Relists, 1, 1000)
	return c.err
}

func (r *Relist) rates() []*float64 { return nil }

func (r *Relist) plan(names namer, seed uint64) *plan {
	p := updates(&r.Cluster, names, seed)
	for i := range r.Relists {
		at := r.stormFrom() + r.Storm*time.Duration(2*i+1)/time.Duration(2*r.Relists)
		p.marks = append(p.marks, planMark{kind: RelistStep, at: at})
	}
	return p
}

// updates is the plan of pods that do nothing but report their status.
func updates(cl *Cluster, names namer, seed uint64) *plan {
	return &plan{
		streams: []*stream{{
			cast: newPods(names, seed, cl.PodBytes, podGroup{n: cl.Pods, app: "web", each: deployed, node: spread(cl.Nodes), revision: 1}),
			keys: cl.Pods, initial: cl.Pods, settled: podRunning,
		}},
		draws:  []draw{cl.background(0, 0, cl.Pods, podUnready, podRunning)},
		phases: cl.phases(), end: cl.length(),
	}
}

// HotKey is a few objects that change all the time beside many that hardly do:
// the leases by which controllers elect their leaders, in zipf's distribution,
// and one huge EndpointSlice.
//
// Resources: leases, endpointslices. UpdatesPerSecond and Skew are the leases'.
type HotKey struct {
	Cluster `yaml:",inline"`

	Leases int `yaml:"leases"`

	Endpoints int `yaml:"endpoints"`

	SliceUpdatesPerSecond float64 `yaml:"sliceUpdatesPerSecond"`
}

// DefaultHotKey returns the profile hotkey with its defaults: zipf with
// exponent 1.1 over 1,000 leases.
func DefaultHotKey() *HotKey {
	h := &HotKey{
		Cluster: defaultCluster(1_000, 0, 0, 30*time.Second, 0),
		Leases:  1_000, Endpoints: 1_000, SliceUpdatesPerSecond: 20,
	}
	h.UpdatesPerSecond, h.Skew = 1_000, Zipf(1.1)
	return h
}

// Name returns "hotkey".
func (h *HotKey) Name() string { return "hotkey" }

// Summary says what happens.
func (h *HotKey) Summary() string {
	return "few objects change all the time: leader-election leases by zipf, one huge EndpointSlice"
}

// Validate checks the parameters.
func (h *HotKey) Validate() error {
	c := h.check(h.Name(), 0)
	c.positive("updatesPerSecond", h.UpdatesPerSecond)
	c.number("leases", h.Leases, 1, maxPods)
	c.number("endpoints", h.Endpoints, 1, 10_000)
	c.rate("sliceUpdatesPerSecond", h.SliceUpdatesPerSecond)
	return c.err
}

func (h *HotKey) rates() []*float64 { return []*float64{&h.SliceUpdatesPerSecond} }
func (h *HotKey) counts() []*int    { return []*int{&h.Leases, &h.Endpoints} }

func (h *HotKey) plan(names namer, seed uint64) *plan {
	slice := newEndpoints(names, 1, h.Endpoints, h.Endpoints, mix(seed+1))
	return &plan{
		streams: []*stream{
			{cast: newLeaders(names, h.Leases, seed), keys: h.Leases, initial: h.Leases},
			{cast: slice, keys: 1, initial: 1},
		},
		draws: []draw{
			h.background(0, 0, h.Leases, 1, 2, 3, 0),
			{
				stream: 1, n: 1, from: h.stormFrom(), to: h.stormTo(),
				perSecond: h.SliceUpdatesPerSecond, poisson: true, states: []uint8{1, 2, 3, 0},
			},
		},
		phases: h.phases(), end: h.length(),
	}
}

// Endpoints is services with 250 endpoints each whose readiness changes; each
// change sends the slice that the endpoint is in, up to 100 of them, anew.
//
// Resources: endpointslices. Pods are the endpoints of all services;
// UpdatesPerSecond goes on in all phases, Skew says which slices change.
type Endpoints struct {
	Cluster `yaml:",inline"`

	PerService int `yaml:"perService"`

	PerSlice int `yaml:"perSlice"`

	ChangesPerSecond float64 `yaml:"changesPerSecond"`
}

// DefaultEndpoints returns the profile endpoints with its defaults.
func DefaultEndpoints() *Endpoints {
	e := &Endpoints{
		Cluster:    defaultCluster(500, 10_000, 2*time.Second, 30*time.Second, 2*time.Second),
		PerService: 250, PerSlice: 100, ChangesPerSecond: 200,
	}
	e.UpdatesPerSecond = 10
	return e
}

// Name returns "endpoints".
func (e *Endpoints) Name() string { return "endpoints" }

// Summary says what happens.
func (e *Endpoints) Summary() string {
	return "services of 250 endpoints, whose EndpointSlices are sent anew at each change"
}

// Validate checks the parameters.
func (e *Endpoints) Validate() error {
	c := e.check(e.Name(), 1)
	c.number("perService", e.PerService, 1, 100_000)
	c.number("perSlice", e.PerSlice, 1, 1000)
	c.positive("changesPerSecond", e.ChangesPerSecond)
	return c.err
}

func (e *Endpoints) rates() []*float64 { return []*float64{&e.ChangesPerSecond} }

func (e *Endpoints) plan(names namer, seed uint64) *plan {
	each := min(e.PerService, e.Pods)
	cast := newEndpoints(names, (e.Pods+each-1)/each, each, e.PerSlice, seed)
	n := len(cast.keys)
	states := []uint8{1, 2, 3, 0}
	return &plan{
		streams: []*stream{{cast: cast, keys: n, initial: n}},
		draws: []draw{
			e.background(0, 0, n, states...),
			{
				n: int32(n), skew: e.Skew, from: e.stormFrom(), to: e.stormTo(),
				perSecond: e.ChangesPerSecond, poisson: true, states: states,
			},
		},
		phases: e.phases(), end: e.length(),
	}
}

// Resync is an informer with a resync period: every known object is
// handed to the handlers again and again while updates arrive.
//
// Resources: pods. The storm has marks, [MarkResync].
type Resync struct {
	Cluster `yaml:",inline"`

	Period time.Duration `yaml:"period"`
}

// DefaultResync returns the profile resync with its defaults.
func DefaultResync() *Resync {
	r := &Resync{Cluster: defaultCluster(1_000, 30_000, 2*time.Second, 30*time.Second, 2*time.Second), Period: 10 * time.Second}
	r.UpdatesPerSecond = 1_000
	return r
}

// Name returns "resync".
func (r *Resync) Name() string { return "resync" }

// Summary says what happens.
func (r *Resync) Summary() string {
	return "every known object is handed over again while updates arrive"
}

// Validate checks the parameters.
func (r *Resync) Validate() error {
	c := r.check(r.Name(), 1)
	c.positive("updatesPerSecond", r.UpdatesPerSecond)
	c.duration("period", r.Period, time.Millisecond)
	return c.err
}

func (r *Resync) rates() []*float64 { return nil }

func (r *Resync) plan(names namer, seed uint64) *plan {
	p := updates(&r.Cluster, names, seed)
	for at := r.stormFrom() + r.Period/2; at < r.stormTo(); at += r.Period {
		p.marks = append(p.marks, planMark{kind: ResyncStep, at: at})
	}
	return p
}

// Ceiling is as many updates as there are, all of them at once: what can be done
// at most. Unpaced it is the same as any update storm; at its own times it is
// a queue that is full from the beginning.
//
// Resources: pods. Phases are of no account.
type Ceiling struct {
	Cluster `yaml:",inline"`

	Events float64 `yaml:"events"`
}

// DefaultCeiling returns the profile ceiling with its defaults.
func DefaultCeiling() *Ceiling {
	c := &Ceiling{Cluster: defaultCluster(100, 10_000, 0, time.Second, 0), Events: 200_000}
	c.UpdatesPerSecond = 0
	return c
}

// Name returns "ceiling".
func (c *Ceiling) Name() string { return "ceiling" }

// Summary says what happens.
func (c *Ceiling) Summary() string { return "updates of every pod, all due at once: unpaced" }

// Validate checks the parameters.
func (c *Ceiling) Validate() error {
	ch := c.check(c.Name(), 1)
	if !(c.Events >= 1) || c.Events > maxEvents {
		ch.fail("events", c.Events, "1 to 100000000")
	}
	return ch.err
}

func (c *Ceiling) rates() []*float64 { return []*float64{&c.Events} }

func (c *Ceiling) plan(names namer, seed uint64) *plan {
	p := updates(&c.Cluster, names, seed)
	p.draws = []draw{{n: int32(c.Pods), skew: c.Skew, atOnce: int(c.Events), states: []uint8{podUnready, podRunning}}}
	return p
}
