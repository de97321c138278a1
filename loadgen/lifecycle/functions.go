package lifecycle

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	sprig "github.com/go-task/slim-sprig/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// addresses are those of nodes and pods. A pod has one of each pod CIDR of its node, else one of podNetwork, and keeps it
// until it is gone.
type addresses struct {
	used  map[netip.Addr]bool
	of    map[types.UID][]netip.Addr
	next  map[netip.Prefix]netip.Addr // where to look next
	hosts map[string]netip.Addr
	host  netip.Addr // the next one
}

const podNetwork = "10.0.0.0/10"

// account keeps the addresses that a pod has by its status, and frees those of one that is gone.
func (a *addresses) account(o *object, pod *corev1.Pod) {
	if o.gone {
		for _, ip := range a.of[pod.UID] {
			delete(a.used, ip)
		}
		delete(a.of, pod.UID)
		return
	}
	if pod.Spec.HostNetwork || len(a.of[pod.UID]) > 0 {
		return
	}
	for _, p := range pod.Status.PodIPs {
		if ip, err := netip.ParseAddr(p.IP); err == nil {
			a.take(ip, pod.UID)
		}
	}
}

func (a *addresses) take(ip netip.Addr, uid types.UID) {
	a.used[ip] = true
	a.of[uid] = append(a.of[uid], ip)
}

// free returns the next free address of a prefix; an invalid one if there is none.
func (a *addresses) free(p netip.Prefix) netip.Addr {
	first := p.Masked().Addr().Next() // The network itself is no address of a pod.
	ip := a.next[p]
	for range len(a.used) + 2 {
		if !ip.IsValid() || !p.Contains(ip) {
			ip = first
		}
		if !a.used[ip] && p.Contains(ip) {
			a.next[p] = ip.Next()
			return ip
		}
		ip = ip.Next()
	}
	return netip.Addr{}
}

// ofPod returns the addresses of a pod on a node with these CIDRs.
func (a *addresses) ofPod(uid types.UID, cidrs []string) []netip.Addr {
	if len(a.of[uid]) > 0 {
		return a.of[uid]
	}
	for _, text := range slices.Concat(cidrs, []string{podNetwork}) {
		if text == podNetwork && len(a.of[uid]) > 0 {
			break
		}
		if p, err := netip.ParsePrefix(text); err == nil {
			if ip := a.free(p); ip.IsValid() {
				a.take(ip, uid)
			}
		}
	}
	return a.of[uid]
}

// nodeIPs returns the internal addresses of a node, or one of its own if it has none.
func (c *Cluster) nodeIPs(name string) (ips []string) {
	if n := c.node(name); n != nil {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				ips = append(ips, a.Address)
			}
		}
	}
	if len(ips) > 0 {
		return ips
	}
	ip, ok := c.addresses.hosts[name]
	if !ok {
		ip = c.addresses.host
		c.addresses.hosts[name], c.addresses.host = ip, ip.Next()
	}
	return []string{ip.String()}
}

func (c *Cluster) podIPs(node string, host bool, uid, _, _ string) (ips []string) {
	if host {
		return c.nodeIPs(node)
	}
	var cidrs []string
	if n := c.node(node); n != nil {
		if cidrs = n.Spec.PodCIDRs; len(cidrs) == 0 {
			cidrs = []string{n.Spec.PodCIDR}
		}
	}
	for _, ip := range c.addresses.ofPod(cmp.Or(types.UID(uid), c.subject.meta.GetUID()), cidrs) {
		ips = append(ips, ip.String())
	}
	return ips
}

// subjectNode is the name of the node that the rendered object is, or is on.
func (c *Cluster) subjectNode() string {
	if pod, ok := c.subject.object.(*corev1.Pod); ok {
		return pod.Spec.NodeName
	}
	return c.subject.meta.GetName()
}

// version is that of KWOK whose stages are understood.
const version = "v0.8.0"

// nodeConditions returns those of a healthy node.
func nodeConditions() any {
	return []any{
		map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"},
		map[string]any{"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory", "message": "kubelet has sufficient memory available"},
		map[string]any{"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure", "message": "kubelet has no disk pressure"},
		map[string]any{"type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID", "message": "kubelet has sufficient PID available"},
		map[string]any{"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated", "message": "RouteController created a route"},
	}
}

// functions are those of the templates: KWOK's (pkg/utils/gotpl and pkg/kwok/controllers, v0.8), and sprig's without
// those that need more modules.
func (c *Cluster) functions() template.FuncMap {
	all := sprig.TxtFuncMap()
	now := func() string { return time.Now().UTC().Format(time.RFC3339Nano) }
	started := now()
	maps.Copy(all, template.FuncMap{
		"Now":            now,
		"StartTime":      func() string { return started },
		"Version":        func() string { return version },
		"NodeConditions": nodeConditions,
		"Quote": func(v any) string {
			data, _ := json.Marshal(v) // of values that were JSON
			if strings.HasPrefix(string(data), `"`) {
				return string(data)
			}
			return strconv.Quote(string(data))
		},
		"YAML": func(v any, indent ...int) (string, error) {
			data, err := yaml.Marshal(v)
			if len(indent) == 1 && indent[0] > 0 {
				return strings.ReplaceAll("\n"+string(data), "\n", "\n"+strings.Repeat("  ", indent[0])), err
			}
			return string(data), err
		},
		"NodeName":    c.subjectNode,
		"NodePort":    func() int { return 10247 },
		"NodeIP":      func() string { return c.nodeIPs(c.subjectNode())[0] },
		"NodeIPWith":  func(node string) string { return c.nodeIPs(node)[0] },
		"NodeIPsWith": c.nodeIPs,
		"PodIP":       func() string { return c.podIPs(c.subjectNode(), false, string(c.subject.meta.GetUID()), "", "")[0] },
		"PodIPWith": func(node string, host bool, uid, name, namespace string) string {
			return c.podIPs(node, host, uid, name, namespace)[0]
		},
		"PodIPsWith": c.podIPs,
	})
	return all
}
