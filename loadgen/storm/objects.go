package storm

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

type objects interface {
	len() int
	key(k int32) string // namespace/name
	// object returns a new struct without a resourceVersion, which shares what it points to.
	object(k int32, state uint8) runtime.Object
}

type resource struct {
	gvr schema.GroupVersionResource
	gvk schema.GroupVersionKind
}

var (
	podResource   = resourceOf(v1.SchemeGroupVersion, "pods", "Pod")
	nodeResource  = resourceOf(v1.SchemeGroupVersion, "nodes", "Node")
	leaseResource = resourceOf(coordinationv1.SchemeGroupVersion, "leases", "Lease")
	sliceResource = resourceOf(discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice")
	jobResource   = resourceOf(batchv1.SchemeGroupVersion, "jobs", "Job")
)

func resourceOf(v schema.GroupVersion, name, kind string) resource {
	return resource{v.WithResource(name), v.WithKind(kind)}
}

// memo computes the value of each number once.
type memo[T any] struct {
	compute func(i int) T
	values  []*T
}

func newMemo[T any](n int, compute func(i int) T) memo[T] {
	return memo[T]{compute, make([]*T, n)}
}

func (m *memo[T]) at(i int) T {
	if m.values[i] == nil {
		m.values[i] = new(m.compute(i))
	}
	return *m.values[i]
}

// identities has the keys and UIDs of a stream's objects. The seed decides the UIDs.
type identities struct {
	seed uint64
	keys memo[string]
	uids memo[types.UID]
}

func newIdentities(n int, seed uint64, newKey func(k int) string) identities {
	newUID := func(k int) types.UID { return uid(seed, uint64(k)) }
	return identities{seed: seed, keys: newMemo(n, newKey), uids: newMemo(n, newUID)}
}

func (d *identities) len() int              { return len(d.keys.values) }
func (d *identities) key(k int32) string    { return d.keys.at(int(k)) }
func (d *identities) uid(k int32) types.UID { return d.uids.at(int(k)) }

func uid(seed, k uint64) types.UID {
	a, b := mix(seed^k<<1), mix(seed^k<<1^1)
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff))
}

const nameLetters = "bcdfghjklmnpqrstvwxz2456789" // letters of names that Kubernetes generates

func suffix(x uint64, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = nameLetters[x%uint64(len(nameLetters))]
		x = mix(x)
	}
	return string(b)
}

// base27 writes a number in the letters of generated names, n of them or more.
func base27(x uint64, n int) string {
	var b [16]byte
	at := len(b)
	for x > 0 || len(b)-at < n {
		at--
		b[at] = nameLetters[x%uint64(len(nameLetters))]
		x /= uint64(len(nameLetters))
	}
	return string(b[at:])
}

// uniqueSuffix returns the name suffix of key k. Five random letters give 14 million names, so
// random suffixes would collide. Keys are therefore numbered from a random start.
func (d *identities) uniqueSuffix(k uint64) string { return base27(k+mix(d.seed)%1_000_000, 5) }

// namer names the objects of a profile.
type namer struct{ nodes int }

func (n namer) node(i int) string      { return "node-" + padded(i, n.nodes) }
func (n namer) namespace(i int) string { return "shop-" + strconv.Itoa(i%10+1) }

func padded(i, n int) string {
	return fmt.Sprintf("%0*d", max(3, len(strconv.Itoa(max(n-1, 0)))), i)
}

func ip(net, i int) string {
	return fmt.Sprintf("%d.%d.%d.%d", net, 16+i>>16&0x7f, i>>8&0xff, i&0xff)
}

// controlledBy returns the owner references of a controller's object.
func controlledBy(apiVersion, kind, name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: new(true), BlockOwnerDeletion: new(true),
	}}
}

// States of pods; the first is that of initial pods. Workers are pods of Jobs; the other states
// belong to pods of Deployments.
const (
	podRunning uint8 = iota
	podCreated
	podScheduled
	podAssigned
	podInitialized
	podUnready
	podNodeLost
	podTerminating
	podTerminated
	podEvicted
	podUnschedulable
	workerCreated
	workerScheduled
	workerStarting
	workerRunning
	workerSucceeded
	workerFinished
	workerTerminating
	podStates
)

type podTemplates [podStates]*v1.Pod // the pods of one size, by state

func newPodTemplates(bytes int) *podTemplates {
	web, worker := fitPods("pod-web", bytes), fitPods("pod-worker", bytes)
	return &podTemplates{
		podCreated: web["created"], podScheduled: web["scheduled"], podAssigned: web["assigned"],
		podInitialized: web["initialized"], podRunning: web["running"], podTerminating: web["terminating"],
		podTerminated: web["terminated"], podEvicted: web["evicted"],
		podUnready:       withCondition(web["running"], v1.PodReady, "ContainersNotReady", "containers with unready status: [web]"),
		podNodeLost:      withCondition(web["running"], v1.PodReady, "NodeStatusUnknown", "the node has not posted its status"),
		podUnschedulable: withCondition(web["created"], v1.PodScheduled, v1.PodReasonUnschedulable, "0/1 nodes are available: 1 Insufficient pods"),
		workerCreated:    worker["created"], workerScheduled: worker["scheduled"], workerStarting: worker["starting"],
		workerRunning: worker["running"], workerSucceeded: worker["succeeded"], workerFinished: worker["finished"],
		workerTerminating: worker["terminating"],
	}
}

// podGroup is a range of keys with similar pods.
type podGroup struct {
	first, n    int
	app         string          // prefix of the workloads' names
	perWorkload int             // number of pods of each workload
	job         bool            // adjacent keys; Deployments' keys are interleaved
	node        func(i int) int // returns the node number of pod first+i
	revision    int             // revision of the workload, part of the pod names
}

func (g *podGroup) workloads() int { return max(1, (g.n+g.perWorkload-1)/g.perWorkload) }

func (g *podGroup) workload(i int) int {
	if g.job {
		return i / g.perWorkload
	}
	return i % g.workloads()
}

// workload is the shared part of the pods of one ReplicaSet or Job.
type workload struct {
	namespace, generateName string
	labels                  map[string]string
	owners                  []metav1.OwnerReference
	templates               *podTemplates
}

type pods struct {
	identities
	names     namer
	groups    []podGroup
	workloads []memo[*workload] // by group and workload number
	sizes     []*podTemplates
	ips       []v1.PodIP
	hosts     memo[host]
}

type host struct {
	name string
	ips  []v1.HostIP
}

func newPods(names namer, seed uint64, bytes []int, groups ...podGroup) *pods {
	p := &pods{names: names, groups: groups}
	p.hosts = newMemo(names.nodes, func(i int) host { return host{names.node(i), []v1.HostIP{{IP: ip(172, i)}}} })
	n := 0
	for _, g := range groups {
		n = max(n, g.first+g.n)
		p.workloads = append(p.workloads, newMemo(g.workloads(), func(number int) *workload { return p.workload(&g, number) }))
	}
	for _, b := range bytes {
		p.sizes = append(p.sizes, newPodTemplates(b))
	}
	p.identities, p.ips = newIdentities(n, seed, p.newKey), make([]v1.PodIP, n)
	return p
}

// place returns the group of a key, the key's index in the group, and its workload.
func (p *pods) place(k int32) (g *podGroup, i int, w *workload) {
	at := 0
	for int(k) >= p.groups[at].first+p.groups[at].n {
		at++
	}
	g = &p.groups[at]
	i = int(k) - g.first
	return g, i, p.workloads[at].at(g.workload(i))
}

func (p *pods) workload(g *podGroup, number int) *workload {
	app := g.app + "-" + strconv.Itoa(number+1)
	random := mix(p.seed ^ uint64(number)<<16 ^ uint64(g.revision)<<8)
	owner := uid(random, 0)
	w := &workload{namespace: p.names.namespace(number), templates: p.sizes[number%len(p.sizes)]}
	if g.job {
		w.generateName, w.owners = app+"-", controlledBy("batch/v1", "Job", app, owner)
		w.labels = map[string]string{
			"batch.kubernetes.io/controller-uid": string(owner), "batch.kubernetes.io/job-name": app, "queue": "gang",
		}
		return w
	}
	hash := suffix(random, 10)
	w.generateName, w.owners = app+"-"+hash+"-", controlledBy("apps/v1", "ReplicaSet", app+"-"+hash, owner)
	w.labels = map[string]string{
		"app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop",
		"app.kubernetes.io/version": "1." + strconv.Itoa(g.revision) + ".0", "pod-template-hash": hash,
		"team": "team-" + strconv.Itoa(number%10+1), "topology.kubernetes.io/region": "r1",
	}
	return w
}

func (p *pods) newKey(k int) string {
	g, i, w := p.place(int32(k))
	name := w.generateName
	if g.job {
		name += strconv.Itoa(i%g.perWorkload) + "-"
	}
	return ObjectKey(w.namespace, name+p.uniqueSuffix(uint64(i)))
}

func (p *pods) object(k int32, state uint8) runtime.Object {
	g, i, w := p.place(k)
	pod := *w.templates[state]
	key := p.key(k)
	pod.Namespace, pod.Name = w.namespace, key[len(w.namespace)+1:]
	pod.GenerateName, pod.UID = w.generateName, p.uid(k)
	pod.Labels, pod.OwnerReferences = w.labels, w.owners
	pod.Spec.NodeName = ""
	if state != podCreated && state != podUnschedulable && state != workerCreated {
		host := p.hosts.at(g.node(i))
		pod.Spec.NodeName = host.name
		if pod.Status.HostIP != "" {
			pod.Status.HostIP, pod.Status.HostIPs = host.ips[0].IP, host.ips
		}
	}
	if pod.Status.PodIP != "" {
		if p.ips[k].IP == "" {
			p.ips[k].IP = ip(10, int(k))
		}
		pod.Status.PodIP, pod.Status.PodIPs = p.ips[k].IP, p.ips[k:k+1:k+1]
	}
	return &pod
}

const (
	nodeReady uint8 = iota
	nodeHeartbeat
	nodeNotReady
	nodeStates
)

type nodes struct {
	identities
	states [nodeStates]*v1.Node
	labels memo[map[string]string]
}

const nodeBytes = 13_000 // size of a node object after some time in use

func newNodes(names namer, seed uint64) *nodes {
	ready := fitNode(sample[*v1.Node]("node", "ready"), nodeBytes)
	heartbeat, lost := ready.DeepCopy(), ready.DeepCopy()
	for i := range heartbeat.Status.Conditions {
		c := &heartbeat.Status.Conditions[i]
		c.LastHeartbeatTime = metav1.Time{Time: c.LastHeartbeatTime.Add(5 * time.Minute)}
		c = &lost.Status.Conditions[i]
		if c.Type == v1.NodeReady || c.Type == v1.NodeMemoryPressure || c.Type == v1.NodeDiskPressure || c.Type == v1.NodePIDPressure {
			c.Status, c.Reason, c.Message = v1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
		}
	}
	lost.Spec.Taints = []v1.Taint{
		{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule},
		{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute},
	}
	return &nodes{
		identities: newIdentities(names.nodes, seed, names.node),
		labels: newMemo(names.nodes, func(i int) map[string]string {
			labels := maps.Clone(ready.Labels)
			labels[v1.LabelHostname] = names.node(i)
			return labels
		}),
		states: [nodeStates]*v1.Node{nodeReady: ready, nodeHeartbeat: heartbeat, nodeNotReady: lost},
	}
}

func (n *nodes) object(k int32, state uint8) runtime.Object {
	node := *n.states[state]
	node.Name, node.UID, node.Labels = n.key(k), n.uid(k), n.labels.at(int(k))
	return &node
}

const leaseStates = 4 // number of different renewals of a lease

// leases generates the leases of nodes or of elected leaders.
type leases struct {
	identities
	namespace string
	states    [leaseStates]coordinationv1.LeaseSpec
	template  coordinationv1.Lease
	owners    memo[[]metav1.OwnerReference] // only set for leases of nodes
}

// newNodeLeases returns the leases of nodes. Each lease is owned by its node.
func newNodeLeases(names namer, seed, nodeSeed uint64) *leases {
	l := newLeases("kube-node-lease", names.nodes, seed, names.node)
	l.owners = newMemo(names.nodes, func(i int) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: names.node(i), UID: uid(nodeSeed, uint64(i))}}
	})
	return l
}

func newLeases(namespace string, n int, seed uint64, name func(int) string) *leases {
	newKey := func(k int) string { return ObjectKey(namespace, name(k)) }
	l := &leases{identities: newIdentities(n, seed, newKey), namespace: namespace, template: *sample[*coordinationv1.Lease]("lease-node", "renewed")}
	// Without managed fields a lease has 0.5 kB, as in large clusters.
	l.template.ManagedFields, l.template.OwnerReferences = nil, nil
	for i := range l.states {
		l.states[i] = *l.template.Spec.DeepCopy()
		l.states[i].RenewTime = &metav1.MicroTime{Time: l.template.Spec.RenewTime.Add(time.Duration(i) * 10 * time.Second)}
	}
	return l
}

func (l *leases) object(k int32, state uint8) runtime.Object {
	lease := l.template
	lease.Namespace, lease.Name = l.namespace, l.key(k)[len(l.namespace)+1:]
	lease.UID, lease.Spec = l.uid(k), l.states[state]
	if l.owners.compute != nil {
		lease.OwnerReferences = l.owners.at(int(k))
	}
	return &lease
}

// sliceStates is the number of different versions of an EndpointSlice: all
// endpoints are ready, or all but one.
const sliceStates = 4

type endpointSlices struct {
	identities
	names    namer
	states   [][sliceStates][]discoveryv1.Endpoint // by number of the slice within its service
	services memo[service]
	template *discoveryv1.EndpointSlice
}

type service struct {
	name   string
	labels map[string]string
	owners []metav1.OwnerReference
}

// newEndpointSlices returns the slices of services with the given number of
// endpoints each, at most perSlice in a slice.
func newEndpointSlices(names namer, services, endpoints, perSlice int, seed uint64) *endpointSlices {
	e := &endpointSlices{names: names, template: sample[*discoveryv1.EndpointSlice]("endpointslice", "one")}
	for first := 0; first < endpoints; first += perSlice {
		n := min(endpoints-first, perSlice)
		var states [sliceStates][]discoveryv1.Endpoint
		for state := range states {
			for i := range n {
				ep := *e.template.Endpoints[0].DeepCopy()
				number := first + i
				ep.Addresses = []string{ip(10, number)}
				ep.NodeName = new(names.node(number % max(names.nodes, 1)))
				ep.TargetRef.Name = "web-" + suffix(mix(uint64(number)), 10) + "-" + base27(uint64(number), 5)
				if state > 0 && i == (state*7)%n {
					ep.Conditions.Ready = new(false)
				}
				states[state] = append(states[state], ep)
			}
		}
		e.states = append(e.states, states)
	}
	e.identities = newIdentities(services*len(e.states), seed, e.newKey)
	e.services = newMemo(services, func(number int) service {
		name := "web-" + strconv.Itoa(number+1)
		return service{
			name:   name,
			labels: map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", discoveryv1.LabelServiceName: name},
			owners: controlledBy("v1", "Service", name, uid(mix(seed^uint64(number)), 0)),
		}
	})
	return e
}

func (e *endpointSlices) newKey(k int) string {
	number := k / len(e.states)
	return ObjectKey(e.names.namespace(number), e.services.at(number).name+"-"+e.uniqueSuffix(uint64(k)))
}

func (e *endpointSlices) object(k int32, state uint8) runtime.Object {
	number, at := int(k)/len(e.states), int(k)%len(e.states)
	svc, slice := e.services.at(number), *e.template
	slice.Namespace = e.names.namespace(number)
	slice.Name = e.key(k)[len(slice.Namespace)+1:]
	slice.GenerateName, slice.UID = svc.name+"-", e.uid(k)
	slice.Labels, slice.OwnerReferences = svc.labels, svc.owners
	slice.Endpoints = e.states[at][state]
	return &slice
}

const (
	jobCreated uint8 = iota
	jobStarted
	jobRunning
	jobSucceeded
	jobComplete
	jobStates
)

type jobs struct {
	identities
	pods   *pods
	group  *podGroup
	states [jobStates]*batchv1.Job
}

func newJobs(p *pods, group int) *jobs {
	j := &jobs{pods: p, group: &p.groups[group]}
	j.identities = newIdentities(j.group.workloads(), 0, j.newKey)
	for i, state := range []string{"created", "started", "running", "succeeded", "complete"} {
		j.states[i] = sample[*batchv1.Job]("job", state)
	}
	return j
}

func (j *jobs) workload(k int32) *workload {
	_, _, w := j.pods.place(int32(j.group.first + int(k)*j.group.perWorkload))
	return w
}

func (j *jobs) newKey(k int) string {
	w := j.workload(int32(k))
	return ObjectKey(w.namespace, w.owners[0].Name)
}

func (j *jobs) object(k int32, state uint8) runtime.Object {
	w, job := j.workload(k), *j.states[state]
	job.Namespace, job.Name, job.UID = w.namespace, w.owners[0].Name, w.owners[0].UID
	return &job
}
