package storm

import (
	"fmt"
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

// resource is what a storm says it is of.
type resource struct {
	gvr schema.GroupVersionResource
	gvk schema.GroupVersionKind
}

func resourceOf(group, version, plural, kind string) resource {
	return resource{
		gvr: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
		gvk: schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
	}
}

// ids has a UID for each key, the same for the same names and seed.
type ids struct {
	seed uint64
	made []types.UID
}

func newIDs(n int, seed uint64) ids { return ids{seed: seed, made: make([]types.UID, n)} }

func (u ids) of(k int32) types.UID {
	if u.made[k] == "" {
		a, b := mix(u.seed^uint64(k)<<1), mix(u.seed^uint64(k)<<1^1)
		u.made[k] = types.UID(fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff))
	}
	return u.made[k]
}

// suffix makes the random part of a generated name, in the letters that
// Kubernetes uses.
func suffix(x uint64, n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[x%uint64(len(letters))]
		x = mix(x)
	}
	return string(b)
}

// The states of pods. A worker is a pod of a Job, the others are of
// Deployments.
const (
	podCreated uint8 = iota
	podScheduled
	podAssigned
	podInitialized
	podRunning
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

// podTemplates holds the pods of one size by state.
type podTemplates [podStates]*v1.Pod

func newPodTemplates(bytes int) *podTemplates {
	ex := loadExemplars()
	web := fitPods(ex.web, "running", bytes)
	worker := fitPods(ex.worker, "running", bytes)
	t := &podTemplates{
		podCreated: web["created"], podScheduled: web["scheduled"], podAssigned: web["assigned"],
		podInitialized: web["initialized"], podRunning: web["running"], podTerminating: web["terminating"],
		podTerminated: web["terminated"], podEvicted: web["evicted"],
		workerCreated: worker["created"], workerScheduled: worker["scheduled"], workerStarting: worker["starting"],
		workerRunning: worker["running"], workerSucceeded: worker["succeeded"], workerFinished: worker["finished"],
		workerTerminating: worker["terminating"],
	}
	t[podUnready] = with(t[podRunning], v1.PodReady, v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [web]")
	t[podNodeLost] = with(t[podRunning], v1.PodReady, v1.ConditionFalse, "NodeStatusUnknown", "the node has not posted its status")
	t[podUnschedulable] = with(t[podCreated], v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable, "0/1 nodes are available: 1 Insufficient pods")
	return t
}

// podGroup is a range of pods that are alike.
type podGroup struct {
	first, n int

	app string

	each int
	job  bool

	node func(i int) int

	revision int
}

func (g *podGroup) workloads() int { return max(1, (g.n+g.each-1)/g.each) }

func (g *podGroup) workload(i int) int {
	if g.job {
		return i / g.each
	}
	return i % g.workloads()
}

// workload is what the pods of one have in common.
type workload struct {
	namespace, generateName string
	labels                  map[string]string
	owners                  []metav1.OwnerReference
	templates               *podTemplates
}

// pods is the cast of pods.
type pods struct {
	names     namer
	seed      uint64
	groups    []podGroup
	workloads [][]*workload
	sizes     []*podTemplates
	keys      []string
	ids       ids
	ips       []v1.PodIP
	nodes     []string
	hosts     [][]v1.HostIP
}

// namer makes the names of one profile, different from those of others that
// play at the same time.
type namer struct {
	prefix string
	nodes  int
}

func (n namer) node(i int) string {
	return n.prefix + "node-" + padded(i, digits(n.nodes))
}

func (n namer) namespace(i int) string { return n.prefix + "shop-" + strconv.Itoa(i%10+1) }

func digits(n int) int { return max(3, len(strconv.Itoa(max(n-1, 0)))) }

func padded(i, width int) string {
	s := strconv.Itoa(i)
	for len(s) < width {
		s = "0" + s
	}
	return s
}

func newPods(names namer, seed uint64, bytes []int, groups ...podGroup) *pods {
	p := &pods{names: names, seed: seed, groups: groups, nodes: make([]string, names.nodes), hosts: make([][]v1.HostIP, names.nodes)}
	n := 0
	for _, g := range groups {
		n = max(n, g.first+g.n)
		p.workloads = append(p.workloads, make([]*workload, g.workloads()))
	}
	for _, b := range bytes {
		p.sizes = append(p.sizes, newPodTemplates(b))
	}
	p.keys, p.ids, p.ips = make([]string, n), newIDs(n, seed), make([]v1.PodIP, n)
	return p
}

func (p *pods) resource() resource { return resourceOf("", "v1", "pods", "Pod") }

// place returns the group of a key, which of it it is, and its workload.
func (p *pods) place(k int32) (g *podGroup, i int, w *workload) {
	at := 0
	for int(k) >= p.groups[at].first+p.groups[at].n {
		at++
	}
	g = &p.groups[at]
	i = int(k) - g.first
	number := g.workload(i)
	if p.workloads[at][number] == nil {
		p.workloads[at][number] = p.workload(g, number)
	}
	return g, i, p.workloads[at][number]
}

func (p *pods) workload(g *podGroup, number int) *workload {
	app := g.app + "-" + strconv.Itoa(number+1)
	random := mix(p.seed ^ uint64(number)<<16 ^ uint64(g.revision)<<8)
	w := &workload{namespace: p.names.namespace(number), templates: p.sizes[number%len(p.sizes)]}
	yes := true
	owner := metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: &yes, BlockOwnerDeletion: &yes,
		UID: newIDs(1, random).of(0),
	}
	if g.job {
		owner.APIVersion, owner.Kind, owner.Name = "batch/v1", "Job", app
		w.generateName = app + "-"
		w.labels = map[string]string{
			"batch.kubernetes.io/controller-uid": string(owner.UID), "batch.kubernetes.io/job-name": app, "queue": "gang",
		}
	} else {
		hash := suffix(random, 10)
		owner.Name = app + "-" + hash
		w.generateName = owner.Name + "-"
		w.labels = map[string]string{
			"app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop",
			"app.kubernetes.io/version": "1." + strconv.Itoa(g.revision) + ".0", "pod-template-hash": hash,
			"team": "team-" + strconv.Itoa(number%10+1), "topology.kubernetes.io/region": "r1",
		}
	}
	w.owners = []metav1.OwnerReference{owner}
	return w
}

func (p *pods) key(k int32) string {
	if p.keys[k] == "" {
		g, i, w := p.place(k)
		name := w.generateName
		if g.job {
			name += strconv.Itoa(i%g.each) + "-"
		}
		// Five letters give 14 million names, which is too few to be unique
		// among many; the number behind a random start is.
		p.keys[k] = ObjectKey(w.namespace, name+base27(uint64(i)+mix(p.seed)%1_000_000, 5))
	}
	return p.keys[k]
}

// base27 writes a number in the letters of generated names, n of them or more.
func base27(x uint64, n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	var b [16]byte
	at := len(b)
	for x > 0 || len(b)-at < n {
		at--
		b[at] = letters[x%uint64(len(letters))]
		x /= uint64(len(letters))
	}
	return string(b[at:])
}

func (p *pods) node(i int) string {
	if p.nodes[i] == "" {
		p.nodes[i] = p.names.node(i)
		p.hosts[i] = []v1.HostIP{{IP: ip(172, i)}}
	}
	return p.nodes[i]
}

func ip(net, i int) string {
	return fmt.Sprintf("%d.%d.%d.%d", net, 16+i>>16&0x7f, i>>8&0xff, i&0xff)
}

func (p *pods) object(k int32, state uint8) runtime.Object {
	g, i, w := p.place(k)
	pod := *w.templates[state]
	key := p.key(k)
	pod.Namespace, pod.Name = w.namespace, key[len(w.namespace)+1:]
	pod.GenerateName, pod.UID = w.generateName, p.ids.of(k)
	pod.Labels, pod.OwnerReferences = w.labels, w.owners
	pod.Spec.NodeName = ""
	if state != podCreated && state != podUnschedulable && state != workerCreated {
		at := g.node(i)
		pod.Spec.NodeName = p.node(at)
		if pod.Status.HostIP != "" {
			pod.Status.HostIP, pod.Status.HostIPs = p.hosts[at][0].IP, p.hosts[at]
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

// The states of nodes.
const (
	nodeReady uint8 = iota
	nodeHeartbeat
	nodeNotReady
	nodeStates
)

// nodes is the cast of nodes.
type nodes struct {
	names  namer
	states [nodeStates]*v1.Node
	keys   []string
	labels []map[string]string
	ids    ids
}

// nodeBytes is the size of a node that has been in use for a while.
const nodeBytes = 13_000

func newNodes(names namer, seed uint64) *nodes {
	n := &nodes{names: names, keys: make([]string, names.nodes), labels: make([]map[string]string, names.nodes), ids: newIDs(names.nodes, seed)}
	ready := fitNode(loadExemplars().node, nodeBytes)
	beat, lost := ready.DeepCopy(), ready.DeepCopy()
	for i := range beat.Status.Conditions {
		c := &beat.Status.Conditions[i]
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
	n.states = [nodeStates]*v1.Node{nodeReady: ready, nodeHeartbeat: beat, nodeNotReady: lost}
	return n
}

func (n *nodes) resource() resource { return resourceOf("", "v1", "nodes", "Node") }

func (n *nodes) key(k int32) string {
	if n.keys[k] == "" {
		n.keys[k] = n.names.node(int(k))
	}
	return n.keys[k]
}

func (n *nodes) object(k int32, state uint8) runtime.Object {
	node := *n.states[state]
	node.Name, node.UID = n.key(k), n.ids.of(k)
	if n.labels[k] == nil {
		labels := make(map[string]string, len(node.Labels))
		for key, v := range node.Labels {
			labels[key] = v
		}
		labels[v1.LabelHostname] = node.Name
		n.labels[k] = labels
	}
	node.Labels = n.labels[k]
	return &node
}

// leaseStates is how many renewals of a lease differ.
const leaseStates = 4

// leases is the cast of leases: of nodes, or of leaders that are elected.
type leases struct {
	namespace string
	name      func(i int) string
	ofNodes   bool
	states    [leaseStates]coordinationv1.LeaseSpec
	template  coordinationv1.Lease
	keys      []string
	owners    [][]metav1.OwnerReference
	ids, node ids
}

// newLeases returns the cast of the leases of nodes.
func newLeases(names namer, seed, nodeSeed uint64) *leases {
	l := newLeaseCast(names.prefix+"kube-node-lease", names.nodes, seed, names.node)
	l.ofNodes, l.owners, l.node = true, make([][]metav1.OwnerReference, names.nodes), newIDs(names.nodes, nodeSeed)
	return l
}

// newLeaders returns the cast of n leases by which leaders are elected.
func newLeaders(names namer, n int, seed uint64) *leases {
	return newLeaseCast(names.prefix+"kube-system", n, seed, func(i int) string { return "controller-" + padded(i, digits(n)) })
}

func newLeaseCast(namespace string, n int, seed uint64, name func(int) string) *leases {
	l := &leases{namespace: namespace, name: name, template: *loadExemplars().lease, keys: make([]string, n), ids: newIDs(n, seed)}
	// An API server with many leases is not asked who manages their fields;
	// without it they have the half kilobyte that leases have.
	l.template.ManagedFields, l.template.OwnerReferences = nil, nil
	for i := range l.states {
		l.states[i] = *l.template.Spec.DeepCopy()
		l.states[i].RenewTime = &metav1.MicroTime{Time: l.template.Spec.RenewTime.Add(time.Duration(i) * 10 * time.Second)}
	}
	return l
}

func (l *leases) resource() resource {
	return resourceOf("coordination.k8s.io", "v1", "leases", "Lease")
}

func (l *leases) key(k int32) string {
	if l.keys[k] == "" {
		l.keys[k] = ObjectKey(l.namespace, l.name(int(k)))
	}
	return l.keys[k]
}

func (l *leases) object(k int32, state uint8) runtime.Object {
	lease := l.template
	lease.Namespace, lease.Name = l.namespace, l.key(k)[len(l.namespace)+1:]
	lease.UID, lease.Spec = l.ids.of(k), l.states[state]
	if l.ofNodes {
		if l.owners[k] == nil {
			l.owners[k] = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: lease.Name, UID: l.node.of(k)}}
		}
		lease.OwnerReferences = l.owners[k]
	}
	return &lease
}

// sliceStates is how many versions of an EndpointSlice differ: all endpoints are
// ready, or all but one.
const sliceStates = 4

// endpoints is the cast of EndpointSlices.
type endpoints struct {
	names    namer
	perSlice []int
	states   [][sliceStates][]discoveryv1.Endpoint
	keys     []string
	services []*service
	ids      ids
}

type service struct {
	name   string
	labels map[string]string
	owners []metav1.OwnerReference
}

// newEndpoints returns the cast of a number of services with so many endpoints
// each, in slices of at most maxPerSlice.
func newEndpoints(names namer, services, each, maxPerSlice int, seed uint64) *endpoints {
	e := &endpoints{names: names, services: make([]*service, services)}
	ex := loadExemplars().slice
	for left := each; left > 0; left -= maxPerSlice {
		n := min(left, maxPerSlice)
		var states [sliceStates][]discoveryv1.Endpoint
		for state := range states {
			for i := range n {
				ep := *ex.Endpoints[0].DeepCopy()
				number := len(e.perSlice)*maxPerSlice + i
				ep.Addresses = []string{ip(10, number)}
				node := names.node(number % max(names.nodes, 1))
				ep.NodeName = &node
				ep.TargetRef.Name = "web-" + suffix(mix(uint64(number)), 10) + "-" + base27(uint64(number), 5)
				if state > 0 && i == (state*7)%n {
					ready := false
					ep.Conditions.Ready = &ready
				}
				states[state] = append(states[state], ep)
			}
		}
		e.perSlice = append(e.perSlice, n)
		e.states = append(e.states, states)
	}
	n := services * len(e.perSlice)
	e.keys, e.ids = make([]string, n), newIDs(n, seed)
	return e
}

func (e *endpoints) resource() resource {
	return resourceOf("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
}

func (e *endpoints) service(number int) *service {
	if e.services[number] == nil {
		name, yes := "web-"+strconv.Itoa(number+1), true
		e.services[number] = &service{
			name:   name,
			labels: map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", discoveryv1.LabelServiceName: name},
			owners: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: name, UID: newIDs(1, mix(e.ids.seed^uint64(number))).of(0),
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		}
	}
	return e.services[number]
}

func (e *endpoints) key(k int32) string {
	if e.keys[k] == "" {
		number := int(k) / len(e.perSlice)
		e.keys[k] = ObjectKey(e.names.namespace(number), e.service(number).name+"-"+base27(uint64(k)+mix(e.ids.seed)%1_000_000, 5))
	}
	return e.keys[k]
}

func (e *endpoints) object(k int32, state uint8) runtime.Object {
	number, at := int(k)/len(e.perSlice), int(k)%len(e.perSlice)
	svc, slice := e.service(number), *loadExemplars().slice
	slice.Namespace = e.names.namespace(number)
	slice.Name = e.key(k)[len(slice.Namespace)+1:]
	slice.GenerateName, slice.UID = svc.name+"-", e.ids.of(k)
	slice.Labels, slice.OwnerReferences = svc.labels, svc.owners
	slice.Endpoints = e.states[at][state]
	return &slice
}

// The states of Jobs.
const (
	jobCreated uint8 = iota
	jobStarted
	jobRunning
	jobSucceeded
	jobComplete
	jobStates
)

// jobs is the cast of the Jobs whose pods are a [podGroup].
type jobs struct {
	pods   *pods
	group  int
	states [jobStates]*batchv1.Job
	ids    ids
	keys   []string
}

func newJobs(p *pods, group int, seed uint64) *jobs {
	ex := loadExemplars().job
	n := p.groups[group].workloads()
	j := &jobs{pods: p, group: group, ids: newIDs(n, seed), keys: make([]string, n), states: [jobStates]*batchv1.Job{
		jobCreated: ex["created"], jobStarted: ex["started"], jobRunning: ex["running"],
		jobSucceeded: ex["succeeded"], jobComplete: ex["complete"],
	}}
	return j
}

func (j *jobs) resource() resource { return resourceOf("batch", "v1", "jobs", "Job") }

// owner returns what the Job's pods say of it.
func (j *jobs) owner(k int32) (namespace string, ref metav1.OwnerReference) {
	g := &j.pods.groups[j.group]
	_, _, w := j.pods.place(int32(g.first + int(k)*g.each))
	return w.namespace, w.owners[0]
}

func (j *jobs) key(k int32) string {
	if j.keys[k] == "" {
		namespace, ref := j.owner(k)
		j.keys[k] = ObjectKey(namespace, ref.Name)
	}
	return j.keys[k]
}

func (j *jobs) object(k int32, state uint8) runtime.Object {
	job := *j.states[state]
	namespace, ref := j.owner(k)
	job.Namespace, job.Name, job.UID = namespace, ref.Name, ref.UID
	return &job
}
