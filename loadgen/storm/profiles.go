package storm

import (
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/pace"
)

// profileKinds lists the profiles. The comment of each plan function describes its storm and
// the order of its resources.
var profileKinds = []profileKind{
	{
		name: "steady", summary: "a healthy cluster: a little churn, status updates, leases, node heartbeats",
		plan: steady,
		defaults: Profile{
			Nodes: 5_000, Pods: 150_000, UpdatesPerSecond: 100, Storm: time.Minute, Drain: 5 * time.Second,
			ChurnPerSecond: 20, LeasePeriod: 10 * time.Second,
		},
	},
	{
		name: "rollout", summary: "a rolling update of every Deployment: new pods at a steady rate, old ones deleted",
		plan: rollout,
		defaults: Profile{
			Nodes: 500, Pods: 10_000, UpdatesPerSecond: 100, Baseline: 5 * time.Second, Storm: 100 * time.Second, Drain: 15 * time.Second,
			PodsPerSecond: 100,
		},
	},
	{
		name: "gang", summary: "a cluster filled with Jobs: pods created in gangs, run, finished, removed",
		plan: gang,
		defaults: Profile{
			Nodes: 5_000, Pods: 65_000, UpdatesPerSecond: 100, Baseline: 5 * time.Second, Storm: 150 * time.Second, Drain: 45 * time.Second,
			JobSize: 100, PodsPerSecond: 434, Work: 10 * time.Second,
		},
	},
	{
		name: "leases", summary: "every node renews its lease every ten seconds",
		noPods: true, plan: leasesOnly,
		defaults: Profile{Nodes: 5_000, Storm: time.Minute, LeasePeriod: 10 * time.Second},
	},
	{
		name: "nodeloss", summary: "a part of the nodes is lost at once: pods NotReady, evicted, deleted, created again",
		plan: nodeLoss,
		defaults: Profile{
			Nodes: 1_000, Pods: 110_000, UpdatesPerSecond: 100, Baseline: 5 * time.Second, Storm: 30 * time.Second, Drain: 25 * time.Second,
			Lost: 0.2, WritesPerSecond: 10_000, Toleration: 10 * time.Second, LeasePeriod: 10 * time.Second,
		},
	},
	{
		name: "relist", summary: "410 Gone in mid-storm, then a Replace of everything",
		plan: relist,
		defaults: Profile{
			Nodes: 5_000, Pods: 150_000, UpdatesPerSecond: 1_000, Baseline: 5 * time.Second, Storm: 20 * time.Second, Drain: 5 * time.Second,
			Relists: 1,
		},
	},
	{
		name: "hotkey", summary: "few objects change all the time: leader-election leases by zipf, one huge EndpointSlice",
		noPods: true, plan: hotKey,
		defaults: Profile{
			Nodes: 1_000, UpdatesPerSecond: 1_000, Skew: 1.1, Storm: 30 * time.Second,
			Leases: 1_000, Endpoints: 1_000, SliceUpdatesPerSecond: 20,
		},
	},
	{
		name: "endpoints", summary: "services of 250 endpoints, whose EndpointSlices are rewritten at each change",
		plan: endpointChanges,
		defaults: Profile{
			Nodes: 500, Pods: 10_000, UpdatesPerSecond: 10, Baseline: 2 * time.Second, Storm: 30 * time.Second, Drain: 2 * time.Second,
			PerService: 250, PerSlice: 100, ChangesPerSecond: 200,
		},
	},
	{
		name: "resync", summary: "every known object is handed over again while updates arrive",
		plan: resync,
		defaults: Profile{
			Nodes: 1_000, Pods: 30_000, UpdatesPerSecond: 1_000, Baseline: 2 * time.Second, Storm: 30 * time.Second, Drain: 2 * time.Second,
			Period: 10 * time.Second,
		},
	},
	{
		name: "ceiling", summary: "updates of every pod, all due at once: unpaced",
		plan:     ceiling,
		defaults: Profile{Nodes: 100, Pods: 10_000, Storm: time.Second, Events: 200_000},
	},
}

// Pod lifecycles with the delays of a healthy cluster; samples/README.md names the recordings.
var (
	// podStart takes a Deployment's pod from creation to ready: 5 events.
	podStart = []transition{
		{0, watch.Added, podCreated},
		{10 * time.Millisecond, watch.Modified, podScheduled},
		{500 * time.Millisecond, watch.Modified, podAssigned},
		{1500 * time.Millisecond, watch.Modified, podInitialized},
		{2 * time.Second, watch.Modified, podRunning},
	}
	untilReady = 4010 * time.Millisecond // total duration of podStart
	// podEnd deletes a Deployment's pod: 3 events.
	podEnd = []transition{
		{0, watch.Modified, podTerminating},
		{2 * time.Second, watch.Modified, podTerminated},
		{20 * time.Millisecond, watch.Deleted, podTerminated},
	}
)

// spread assigns pods to nodes round-robin; packed fills one node after the other.
func spread(nodes int) func(int) int    { return func(i int) int { return i % nodes } }
func packed(n, nodes int) func(int) int { return func(i int) int { return i * nodes / max(n, 1) } }

const deployed = 100 // number of pods of a Deployment

func (p *Profile) webPods(first, n, revision int) podGroup {
	return podGroup{first: first, n: n, app: "web", perWorkload: deployed, node: spread(p.Nodes), revision: revision}
}

// background returns the background updates of n keys.
func (p *Profile) background(first, n int, states ...uint8) updates {
	return updates{
		first: int32(first), n: int32(n), skew: p.Skew, to: p.Length(),
		perSecond: p.UpdatesPerSecond, poisson: true, states: states,
	}
}

// inTurn returns updates of n keys, each once in a period.
func (p *Profile) inTurn(stream uint8, first, n int, period time.Duration, states ...uint8) updates {
	return updates{
		stream: stream, first: int32(first), n: int32(n), inTurn: true, to: p.Length(),
		perSecond: float64(n) / period.Seconds(), states: states,
	}
}

func (p *Profile) renewals(stream uint8, first, n int) updates {
	return p.inTurn(stream, first, n, p.LeasePeriod, 1, 2, 3, 0)
}

// heartbeats returns the node status updates: each node once in five minutes.
func (p *Profile) heartbeats(stream uint8, first, n int) updates {
	return p.inTurn(stream, first, n, 5*time.Minute, nodeHeartbeat, nodeReady)
}

// steady is a healthy cluster at the size that SIG Scalability supports: 5,000 nodes and
// 150,000 pods. Up to 20 pods per second are deleted and replaced. Each node renews its lease
// every 10 s and reports its status every 5 min. Resources: pods, leases, nodes.
func steady(p *Profile, names namer, seed uint64) *plan {
	churn := min(int(p.ChurnPerSecond*p.Storm.Seconds()), p.Pods)
	pl := &plan{
		streams: []*stream{
			{resource: podResource, objects: newPods(names, seed, p.PodBytes, p.webPods(0, p.Pods, 1), p.webPods(p.Pods, churn, 2)), initial: p.Pods},
			{resource: leaseResource, objects: newNodeLeases(names, mix(seed+1), mix(seed+2)), initial: p.Nodes},
			{resource: nodeResource, objects: newNodes(names, mix(seed+2)), initial: p.Nodes},
		},
		updates: []updates{
			p.background(0, p.Pods-churn, podUnready, podRunning), p.renewals(1, 0, p.Nodes), p.heartbeats(2, 0, p.Nodes),
		},
	}
	if churn > 0 {
		starts := pace.Rate(p.ChurnPerSecond)
		pl.lifecycles = []lifecycle{
			{first: int32(p.Pods - churn), n: int32(churn), from: p.stormFrom(), starts: starts, script: podEnd, jitter: 0.25},
			{first: int32(p.Pods), n: int32(churn), from: p.stormFrom() + 100*time.Millisecond, starts: starts, script: podStart, jitter: 0.25},
		}
	}
	return pl
}

// rollout is a rolling update of every Deployment. It creates PodsPerSecond new pods and
// deletes one old pod for each new pod that is ready: 8 events per replacement. Each change of
// readiness updates the EndpointSlice of the service. Resources: pods, endpointslices.
func rollout(p *Profile, names namer, seed uint64) *plan {
	renewed := min(p.Pods, max(1, int(p.PodsPerSecond*p.Storm.Seconds())))
	slices := newEndpointSlices(names, (p.Pods+deployed-1)/deployed, min(p.Pods, deployed), 100, mix(seed+1))
	starts := pace.Rate(p.PodsPerSecond)
	return &plan{
		streams: []*stream{
			{resource: podResource, objects: newPods(names, seed, p.PodBytes, p.webPods(0, p.Pods, 1), p.webPods(p.Pods, renewed, 2)), initial: p.Pods},
			{resource: sliceResource, objects: slices, initial: slices.len()},
		},
		lifecycles: []lifecycle{
			{first: int32(p.Pods), n: int32(renewed), from: p.stormFrom(), starts: starts, script: podStart, jitter: 0.25},
			{first: int32(p.Pods - renewed), n: int32(renewed), from: p.stormFrom() + untilReady, starts: starts, script: podEnd, jitter: 0.25},
		},
		updates: []updates{
			p.background(0, p.Pods-renewed, podUnready, podRunning),
			{
				stream: 1, n: int32(slices.len()), from: p.stormFrom() + untilReady, to: p.stormTo() + untilReady,
				perSecond: 2 * p.PodsPerSecond, poisson: true, states: []uint8{1, 2, 3, 0},
			},
		},
	}
}

// gang fills a cluster with Jobs of JobSize pods each. All pods of a Job start together:
// 65,000 pods within 150 s, as GKE demonstrated on 65,000 nodes. Each pod has 8 events from
// creation to removal. Pods counts the pods of the Jobs. Each node also has one DaemonSet pod
// from the start. Resources: pods, jobs.
func gang(p *Profile, names namer, seed uint64) *plan {
	size := min(p.JobSize, p.Pods)
	agents := p.webPods(0, p.Nodes, 1)
	agents.app = "agent"
	pods := newPods(names, seed, p.PodBytes, agents,
		podGroup{first: p.Nodes, n: p.Pods, app: "train", perWorkload: size, job: true, node: spread(p.Nodes), revision: 1})
	jobs := newJobs(pods, 1)
	// The pods of a gang are created at once. The rate of gangs gives the rate of pods.
	gangs := pace.Rate(p.PodsPerSecond / float64(size))
	ofGang := pace.Func(func(i int) time.Duration { return gangs.Intended(i / size) })
	return &plan{
		streams: []*stream{
			{resource: podResource, objects: pods, initial: p.Nodes},
			{resource: jobResource, objects: jobs},
		},
		lifecycles: []lifecycle{
			{first: int32(p.Nodes), n: int32(p.Pods), from: p.stormFrom() + 50*time.Millisecond, starts: ofGang, jitter: 0.25, script: []transition{
				{100 * time.Millisecond, watch.Added, workerCreated},
				{10 * time.Millisecond, watch.Modified, workerScheduled},
				{1500 * time.Millisecond, watch.Modified, workerStarting},
				{2 * time.Second, watch.Modified, workerRunning},
				{p.Work, watch.Modified, workerSucceeded},
				{10 * time.Second, watch.Modified, workerFinished},
				{5 * time.Second, watch.Modified, workerTerminating},
				{5 * time.Millisecond, watch.Deleted, workerTerminating},
			}},
			{stream: 1, n: int32(jobs.len()), from: p.stormFrom(), starts: gangs, script: []transition{
				{0, watch.Added, jobCreated},
				{200 * time.Millisecond, watch.Modified, jobStarted},
				{4*time.Second + p.Work, watch.Modified, jobRunning},
				{2 * time.Second, watch.Modified, jobSucceeded},
				{12 * time.Second, watch.Modified, jobComplete},
				{5 * time.Second, watch.Deleted, jobComplete},
			}},
		},
		updates: []updates{p.background(0, p.Nodes, podUnready, podRunning)},
	}
}

// leasesOnly has only renewals of node leases: 5,000 nodes renew 500 leases per second,
// 130,000 nodes renew 13,000. Resources: leases.
func leasesOnly(p *Profile, names namer, seed uint64) *plan {
	return &plan{
		streams: []*stream{{resource: leaseResource, objects: newNodeLeases(names, seed, mix(seed+2)), initial: p.Nodes}},
		updates: []updates{p.renewals(0, 0, p.Nodes)},
	}
}

// nodeLoss fails a fraction of the nodes at once: the first by name, with 110 pods each. Their
// pods become NotReady, are evicted after Toleration, deleted and recreated. The new pods stay
// unschedulable until the nodes are back; then they are scheduled and run. WritesPerSecond is
// the rate of each step; a pod has 9 events. Resources: pods, nodes, leases.
func nodeLoss(p *Profile, names namer, seed uint64) *plan {
	lostNodes := max(1, int(p.Lost*float64(p.Nodes)))
	old := p.webPods(0, p.Pods, 1)
	old.node = packed(p.Pods, p.Nodes)
	lost := 0
	for lost < p.Pods && old.node(lost) < lostNodes {
		lost++
	}
	again := old
	again.first, again.n, again.revision = p.Pods, lost, 1<<8
	outage, back := p.stormFrom(), p.stormTo()
	wave := pace.Rate(p.WritesPerSecond)
	alive := p.Nodes - lostNodes
	return &plan{
		streams: []*stream{
			{resource: podResource, objects: newPods(names, seed, p.PodBytes, old, again), initial: p.Pods},
			{resource: nodeResource, objects: newNodes(names, mix(seed+2)), initial: p.Nodes},
			{resource: leaseResource, objects: newNodeLeases(names, mix(seed+1), mix(seed+2)), initial: p.Nodes},
		},
		lifecycles: []lifecycle{
			{n: int32(lost), from: outage, starts: wave, jitter: 0.1, script: []transition{
				{50 * time.Millisecond, watch.Modified, podNodeLost},
				{p.Toleration, watch.Modified, podEvicted},
				{time.Second, watch.Deleted, podEvicted},
			}},
			{first: int32(p.Pods), n: int32(lost), from: outage + p.Toleration, starts: wave, jitter: 0.1, script: []transition{
				{time.Second, watch.Added, podCreated},
				{10 * time.Millisecond, watch.Modified, podUnschedulable},
			}},
			// The same pods, once the nodes are back.
			{first: int32(p.Pods), n: int32(lost), from: max(back, outage+p.Toleration+3*time.Second), starts: wave, jitter: 0.1, script: []transition{
				{time.Second, watch.Modified, podScheduled},
				{500 * time.Millisecond, watch.Modified, podAssigned},
				{1500 * time.Millisecond, watch.Modified, podInitialized},
				{2 * time.Second, watch.Modified, podRunning},
			}},
			{stream: 1, n: int32(lostNodes), from: outage, starts: wave, script: []transition{{0, watch.Modified, nodeNotReady}}},
			{stream: 1, n: int32(lostNodes), from: back, starts: wave, script: []transition{{0, watch.Modified, nodeReady}}},
		},
		updates: []updates{
			p.background(lost, p.Pods-lost, podUnready, podRunning), p.heartbeats(1, lostNodes, alive), p.renewals(2, lostNodes, alive),
		},
	}
}

func statusUpdates(p *Profile, names namer, seed uint64) *plan {
	return &plan{
		streams: []*stream{{resource: podResource, objects: newPods(names, seed, p.PodBytes, p.webPods(0, p.Pods, 1)), initial: p.Pods}},
		updates: []updates{p.background(0, p.Pods, podUnready, podRunning)},
	}
}

// relist is a large cluster whose watch expires Relists times during updates. Each time the server
// answers 410 Gone and a Replace of 150,000 objects follows. Resources: pods, with [MarkRelist].
func relist(p *Profile, names namer, seed uint64) *plan {
	pl := statusUpdates(p, names, seed)
	for i := range p.Relists {
		at := p.stormFrom() + p.Storm*time.Duration(2*i+1)/time.Duration(2*p.Relists)
		pl.marks = append(pl.marks, timedMark{at, MarkRelist})
	}
	return pl
}

// resync is an informer with a resync period: once per Period it passes every known object to
// the handlers while updates arrive. Resources: pods, with [MarkResync].
func resync(p *Profile, names namer, seed uint64) *plan {
	pl := statusUpdates(p, names, seed)
	for at := p.stormFrom() + p.Period/2; at < p.stormTo(); at += p.Period {
		pl.marks = append(pl.marks, timedMark{at, MarkResync})
	}
	return pl
}

// ceiling has Events updates, all due at once: it measures maximum throughput. Unpaced, it
// equals any other update storm. At its own times the queue is full from the start. Phases
// have no effect. Resources: pods.
func ceiling(p *Profile, names namer, seed uint64) *plan {
	pl := statusUpdates(p, names, seed)
	pl.updates = []updates{{n: int32(p.Pods), skew: p.Skew, atOnce: int(p.Events), states: []uint8{podUnready, podRunning}}}
	return pl
}

// hotKey has few objects with constant updates: leader-election leases and one EndpointSlice with
// many endpoints. UpdatesPerSecond and Skew apply to the leases. Resources: leases, endpointslices.
func hotKey(p *Profile, names namer, seed uint64) *plan {
	leader := func(i int) string { return "controller-" + padded(i, p.Leases) }
	return &plan{
		streams: []*stream{
			{resource: leaseResource, objects: newLeases("kube-system", p.Leases, seed, leader), initial: p.Leases},
			{resource: sliceResource, objects: newEndpointSlices(names, 1, p.Endpoints, p.Endpoints, mix(seed+1)), initial: 1},
		},
		updates: []updates{
			p.background(0, p.Leases, 1, 2, 3, 0),
			{
				stream: 1, n: 1, from: p.stormFrom(), to: p.stormTo(),
				perSecond: p.SliceUpdatesPerSecond, poisson: true, states: []uint8{1, 2, 3, 0},
			},
		},
	}
}

// endpointChanges has services of PerService endpoints whose readiness changes. Each change
// sends the endpoint's whole EndpointSlice, with up to PerSlice endpoints. Pods counts the
// endpoints of all services. Skew selects the slices that change. Resources: endpointslices.
func endpointChanges(p *Profile, names namer, seed uint64) *plan {
	each := min(p.PerService, p.Pods)
	slices := newEndpointSlices(names, (p.Pods+each-1)/each, each, p.PerSlice, seed)
	n := slices.len()
	slow := p.background(0, n, 1, 2, 3, 0)
	fast := slow
	fast.from, fast.to, fast.perSecond = p.stormFrom(), p.stormTo(), p.ChangesPerSecond
	return &plan{
		streams: []*stream{{resource: sliceResource, objects: slices, initial: n}},
		updates: []updates{slow, fast},
	}
}
