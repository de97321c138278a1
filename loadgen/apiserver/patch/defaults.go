package patch

import (
	"cmp"
	_ "embed" // the table
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// defaultsText lists the defaults that a table can say; it explains the words.
//
//go:embed defaults.txt
var defaultsText string

// SetDefaults sets the defaults of a built-in kind, as kube-apiserver does when it decodes an object: those that
// depend on other fields, then those of the table. O(size of the object).
func SetDefaults(obj runtime.Object) {
	v := reflect.ValueOf(obj).Elem()
	defaultingOf(v.Type()).apply(v)
}

// defaulting sets the defaults of the values of a type, and below. Nil sets none.
type defaulting struct {
	depends  bool // setDependent has a rule for the type
	settings []setting
	below    []below
}

// below is the defaulting of the values that a field leads to.
type below struct {
	field int
	*defaulting
}

// setting is a line of the table.
type setting struct {
	path  []int  // of fields
	value []byte // in JSON
	guard int    // a field of the type that must have the value is; -1 for none
	is    string
}

var defaultings sync.Map // reflect.Type → *defaulting

func defaultingOf(t reflect.Type) *defaulting {
	if d, ok := defaultings.Load(t); ok {
		return d.(*defaulting)
	}
	d := &defaulting{depends: setDependent(reflect.New(t).Interface())}
	if name, own := strings.CutPrefix(t.PkgPath(), "k8s.io/api/"); own && t.Kind() == reflect.Struct && name != "node/v1" { // which has none: no quantity is rounded
		for _, words := range defaultLines()[name+"."+t.Name()] {
			d.settings = append(d.settings, newSetting(t, words))
		}
		// A guard may be a default itself.
		slices.SortStableFunc(d.settings, func(a, b setting) int { return cmp.Compare(a.guard, b.guard) })
		for i := range t.NumField() {
			to := t.Field(i).Type
			for to.Kind() == reflect.Pointer || to.Kind() == reflect.Slice {
				to = to.Elem()
			}
			if q := defaultingOf(to); q != nil {
				d.below = append(d.below, below{i, q})
			}
		}
	}
	if !d.depends && d.settings == nil && d.below == nil {
		d = nil
	}
	defaultings.Store(t, d)
	return d
}

// defaultLines are the words of the table's lines after the type, by type.
var defaultLines = sync.OnceValue(func() map[string][][]string {
	lines := map[string][][]string{}
	for line := range strings.Lines(defaultsText) {
		if words := strings.Fields(line); words[0] != "#" {
			lines[words[0]] = append(lines[words[0]], words[1:])
		}
	}
	return lines
})

func newSetting(t reflect.Type, words []string) setting {
	s := setting{path: fieldAt(t, words[0]), value: []byte(words[1]), guard: -1}
	if len(words) > 2 {
		name, value, _ := strings.Cut(words[2], "=")
		s.guard, s.is = fieldAt(t, name)[0], strings.Trim(value, `"`)
	}
	return s
}

// fieldAt returns the index of each field on a path in JSON, below structs and pointers, or nil.
func fieldAt(t reflect.Type, path string) (index []int) {
	for name := range strings.SplitSeq(path, ".") {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		i := 0
		for ; i < t.NumField() && !strings.HasPrefix(t.Field(i).Tag.Get("json")+",", name+","); i++ {
		}
		if i == t.NumField() || name == "" { // which an inlined struct has
			return nil
		}
		index, t = append(index, i), t.Field(i).Type
	}
	return index
}

// follow returns the field that an index of fieldAt leads to; it is invalid below a nil pointer.
func follow(v reflect.Value, index []int) reflect.Value {
	f, _ := reflect.Indirect(v).FieldByIndexErr(index)
	return f
}

// Field returns a function that reads the field of a typed object at a path in JSON as text: the first of the paths that
// is not empty. Other objects have none.
func Field(of reflect.Type, paths ...string) func(runtime.Object) string {
	var indexes [][]int
	for _, path := range paths {
		indexes = append(indexes, fieldAt(of, path))
	}
	return func(o runtime.Object) string {
		v := reflect.ValueOf(o)
		for _, index := range indexes {
			if index == nil || v.Type().Elem() != of {
				break
			}
			switch f := reflect.Indirect(follow(v, index)); {
			case !f.IsValid():
			case f.Kind() != reflect.String:
				return fmt.Sprint(f)
			case f.Len() > 0:
				return f.String()
			}
		}
		return ""
	}
}

func (d *defaulting) apply(v reflect.Value) {
	switch {
	case d == nil:
		return
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			d.apply(v.Elem())
		}
		return
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			d.apply(v.Index(i))
		}
		return
	case d.depends:
		setDependent(v.Addr().Interface())
	}
	for i := range d.settings {
		d.settings[i].apply(v)
	}
	for _, b := range d.below {
		b.apply(v.Field(b.field))
	}
}

func (s *setting) apply(v reflect.Value) {
	if s.guard >= 0 && v.Field(s.guard).String() != s.is {
		return
	}
	v = follow(v, s.path)
	if v.IsValid() && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
		if err := json.Unmarshal(s.value, v.Addr().Interface()); err != nil {
			panic("default " + string(s.value) + ": " + err.Error()) // TestDefaults has all values.
		}
	}
}

// setDependent sets the defaults that depend on other fields. It reports whether the type has any. The rules are
// those of pkg/apis/*/*/defaults.go and the generated defaults beside them, kube-apiserver v1.37.2.
func setDependent(value any) bool {
	switch o := value.(type) {
	case *corev1.ResourceList:
		for name, quantity := range *o {
			quantity.RoundUp(resource.Milli)
			(*o)[name] = quantity
		}
	case *corev1.Container:
		setPullPolicy(&o.ImagePullPolicy, o.Image)
	case *corev1.EphemeralContainerCommon:
		setPullPolicy(&o.ImagePullPolicy, o.Image)
	case *corev1.ImageVolumeSource:
		setPullPolicy(&o.PullPolicy, o.Reference)
	case *corev1.VolumeSource:
		if *o == (corev1.VolumeSource{}) {
			o.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	case *corev1.Pod:
		if grace := o.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
			o.Spec.TerminationGracePeriodSeconds = new(int64(1))
		}
		for _, containers := range [][]corev1.Container{o.Spec.Containers, o.Spec.InitContainers} {
			for i := range containers {
				c := &containers[i]
				if c.Resources.Limits != nil {
					addMissing(&c.Resources.Requests, c.Resources.Limits)
				}
				for j := range c.Ports {
					if o.Spec.HostNetwork {
						byDefault(&c.Ports[j].HostPort, c.Ports[j].ContainerPort)
					}
				}
			}
		}
	case *corev1.PodSpec:
		byDefault(&o.ServiceAccountName, o.DeprecatedServiceAccount)
		o.DeprecatedServiceAccount = o.ServiceAccountName
	case *corev1.PodStatus:
		if o.PodIP == "" && len(o.PodIPs) > 0 {
			o.PodIP = o.PodIPs[0].IP
		} else if o.PodIP != "" && (len(o.PodIPs) == 0 || o.PodIPs[0].IP != o.PodIP) {
			o.PodIPs = []corev1.PodIP{{IP: o.PodIP}}
		}
	case *corev1.NodeStatus:
		if o.Allocatable == nil && o.Capacity != nil {
			o.Allocatable = o.Capacity.DeepCopy()
		}
	case *corev1.Service:
		defaultService(o)
	case *corev1.LimitRangeItem:
		if o.Type == corev1.LimitTypeContainer {
			addMissing(&o.Default, o.Max)
			addMissing(&o.DefaultRequest, o.Default)
			addMissing(&o.DefaultRequest, o.Min)
		}
	case *corev1.ReplicationController:
		if t := o.Spec.Template; t != nil && t.Labels != nil {
			if len(o.Spec.Selector) == 0 {
				o.Spec.Selector = maps.Clone(t.Labels)
			}
			if len(o.Labels) == 0 {
				o.Labels = maps.Clone(t.Labels)
			}
		}
	case *appsv1.StatefulSetSpec:
		if o.UpdateStrategy.Type != "" {
			break
		}
		o.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		pointTo(&o.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	case *batchv1.Job:
		if o.Spec.Completions == nil && o.Spec.Parallelism == nil {
			o.Spec.Completions = new(int32(1))
		}
		if o.Spec.BackoffLimitPerIndex != nil {
			pointTo(&o.Spec.BackoffLimit, math.MaxInt32)
		}
		if o.Spec.PodFailurePolicy != nil {
			pointTo(&o.Spec.PodReplacementPolicy, batchv1.Failed)
		}
		if len(o.Labels) == 0 && o.Spec.Template.Labels != nil {
			o.Labels = o.Spec.Template.Labels // Shared, so that the job has the labels of its selector, too.
		}
	case *networkingv1.NetworkPolicySpec:
		if len(o.PolicyTypes) == 0 {
			o.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(o.Egress) > 0 {
				o.PolicyTypes = append(o.PolicyTypes, networkingv1.PolicyTypeEgress)
			}
		}
	case *resourcev1.DeviceTaint:
		pointTo(&o.TimeAdded, metav1.Now().Rfc3339Copy())
	default:
		return false
	}
	return true
}

func defaultService(o *corev1.Service) {
	s := &o.Spec
	byDefault(&s.Type, corev1.ServiceTypeClusterIP)
	byDefault(&s.SessionAffinity, corev1.ServiceAffinityNone)
	switch c := s.SessionAffinityConfig; {
	case s.SessionAffinity == corev1.ServiceAffinityNone:
		s.SessionAffinityConfig = nil
	case s.SessionAffinity == corev1.ServiceAffinityClientIP && (c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil):
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)}}
	}
	for i := range s.Ports {
		byDefault(&s.Ports[i].TargetPort, intstr.FromInt32(s.Ports[i].Port))
		if s.Ports[i].TargetPort == intstr.FromString("") {
			s.Ports[i].TargetPort = intstr.FromInt32(s.Ports[i].Port)
		}
	}
	if s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0 {
		byDefault(&s.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if s.Type == corev1.ServiceTypeLoadBalancer {
		for i := range o.Status.LoadBalancer.Ingress {
			if ingress := &o.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
				pointTo(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// imageName has the tag and the digest of the name of an image.
var imageName = sync.OnceValue(func() *regexp.Regexp {
	const part = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	return regexp.MustCompile(`^(?:(?:[^/]*[.:A-Z][^/]*|localhost)/)?` + part + `(?:/` + part + `)*(?::(\w[\w.-]{0,127}))?(?:@(\w+:[0-9a-fA-F]{32,}))?$`)
})

// setPullPolicy sets Always for an image of the tag latest, which is the default, else IfNotPresent.
func setPullPolicy(policy *corev1.PullPolicy, image string) {
	if *policy != "" {
		return
	}
	*policy = corev1.PullIfNotPresent
	found := imageName().FindStringSubmatch(image)
	if found != nil && (found[1] == "latest" || found[1]+found[2] == "") {
		*policy = corev1.PullAlways
	}
}

// byDefault sets a field that has no value.
func byDefault[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

// pointTo sets a field that has no value.
func pointTo[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// addMissing adds the resources of one list that another lacks.
func addMissing(to *corev1.ResourceList, from corev1.ResourceList) {
	if *to == nil {
		*to = corev1.ResourceList{}
	}
	for name, quantity := range from {
		if _, has := (*to)[name]; !has {
			(*to)[name] = quantity.DeepCopy()
		}
	}
}
