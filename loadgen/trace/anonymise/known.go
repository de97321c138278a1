package anonymise

import (
	_ "embed"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// vocabularyFile has the constants of k8s.io/api and of apimachinery's meta/v1.
// Each line has a type and a value, or "key" and a key that Kubernetes defines.
// TestVocabulary derives it from their sources.
//
//go:embed vocabulary.txt
var vocabularyFile string

// ownFile has strings that Kubernetes defines but that are not constants of those packages: keys of
// labels, annotations and taints and finalizers (key), reasons (reason), field managers and event
// sources (component), and field paths of the downward API (fieldPath).
//
//go:embed own.txt
var ownFile string

type words map[string]bool

func set(values ...string) words {
	m := make(words, len(values))
	for _, v := range values {
		m[v] = true
	}
	return m
}

// vocabulary returns the strings to keep, by type or by list.
var vocabulary = sync.OnceValue(func() map[string]words {
	all := map[string]words{}
	for line := range strings.Lines(vocabularyFile + ownFile) {
		list, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if all[list] == nil {
			all[list] = words{}
		}
		all[list][value] = true
	}
	return all
})

func enumeration(t reflect.Type) words {
	if t.Kind() != reflect.String || t.PkgPath() == "" {
		return nil
	}
	return vocabulary()[t.PkgPath()+"."+t.Name()]
}

// anyValue returns the constants of all types, and the reasons.
var anyValue = sync.OnceValue(func() words {
	all := words{}
	for list, values := range vocabulary() {
		if list == "reason" || strings.Contains(list, "/") {
			for v := range values {
				all[v] = true
			}
		}
	}
	return all
})

var knownKeys = sync.OnceValue(func() words { return vocabulary()["key"] })

func keptKey(s string) bool { return knownKeys()[s] }

// resourceNames returns the resources that Kubernetes defines, such as cpu.
var resourceNames = sync.OnceValue(func() words { return enumeration(reflect.TypeFor[v1.ResourceName]()) })

// known returns the kinds, versions and groups of client-go's scheme.
var known = sync.OnceValue(func() (k struct{ kinds, versions, groups words }) {
	k.kinds, k.versions, k.groups = words{}, words{}, words{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		k.kinds[kind.Kind] = true
		k.versions[kind.GroupVersion().String()] = true
		k.groups[kind.Group] = true
	}
	return k
})

// leaf selects the strings of a field that stay: values, and others by form.
type leaf struct {
	form   form
	values words
}

// form is what the strings of a field are.
type form int

const (
	name      form = iota // a lower-case name or something else
	opaque                // a value: nothing stays
	encoded               // base64: nothing stays
	qualified             // a key of labels, such as example.com/name
	duration
	quantity
	percent
	apiKind
	version
	group
	number
)

const longestKept = 128

// keeps reports whether a string is harmless in an object of the given kind.
func (l leaf) keeps(s string, kind schema.GroupVersionKind) bool {
	switch {
	case len(s) > longestKept:
		return false
	case l.values[s]:
		return true
	case l.form == opaque || l.form == encoded:
		return false
	case keptWhole(s) || isTime(s):
		return true
	}
	switch l.form {
	case qualified:
		return resourceNames()[s]
	case duration:
		_, err := time.ParseDuration(s)
		return err == nil
	case quantity:
		if len(s) > 24 {
			return false
		}
		_, err := resource.ParseQuantity(s)
		return err == nil
	case percent:
		return percentage.MatchString(s)
	case apiKind:
		return s == kind.Kind || known().kinds[s]
	case version:
		return s == kind.GroupVersion().String() || known().versions[s]
	case group:
		return s == kind.Group || known().groups[s]
	case number:
		return digits(s)
	}
	return false
}

var (
	percentage = regexp.MustCompile(`^\d{1,3}%$`)
	timestamp  = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`)
)

func isTime(s string) bool {
	if !timestamp.MatchString(s) {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}

func digits(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == ""
}

var (
	truths      = set("true", "false", "True", "False", "Unknown")
	harmlessIPs = set("127.0.0.1", "0.0.0.0", "::1", "::")
)

// keptWhole reports whether a string is harmless in any position, as a value or as a label key.
func keptWhole(s string) bool { return keptKey(s) || truths[s] || harmlessIPs[s] }

// leafOf returns the leaf of a field of type string or of unknown type, by its name.
func leafOf(field string) leaf { return leaves()[field] }

var leaves = sync.OnceValue(func() map[string]leaf {
	component, constant := leaf{values: vocabulary()["component"]}, leaf{values: anyValue()}
	return map[string]leaf{
		// Values.
		"args": {form: opaque}, "binaryData": {form: opaque}, "command": {form: opaque}, "data": {form: opaque}, "stringData": {form: opaque}, "value": {form: opaque},
		// Keys of maps, in other places.
		"key": {form: qualified}, "matchLabelKeys": {form: qualified}, "mismatchLabelKeys": {form: qualified}, "topologyKey": {form: qualified},
		"finalizers": {form: qualified, values: set("kubernetes")},
		"apiGroup":   {form: group}, "apiGroups": {form: group}, "apiVersion": {form: version}, "kind": {form: apiKind}, "resourceVersion": {form: number},
		"cpu": {form: quantity}, "ephemeral-storage": {form: quantity}, "memory": {form: quantity}, "storage": {form: quantity},
		"effect": constant, "operation": constant, "operator": constant, "phase": constant, "policy": constant, "protocol": constant,
		"reason": constant, "status": constant, "type": constant,
		"component": component, "manager": component, "reportingComponent": component, "reportingController": component,
		"architecture": {values: set("amd64", "arm64")}, "operatingSystem": {values: set("linux", "windows")},
		"clusterIP": {values: set("None")}, "clusterIPs": {values: set("None")},
		"fieldPath": {values: vocabulary()["fieldPath"]}, "fieldsType": {values: set("FieldsV1")}, "subresource": {values: set("status", "scale")},
		"resource": {values: set("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage")},
	}
})
