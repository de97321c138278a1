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
	"k8s.io/apimachinery/pkg/util/sets"
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

type words = sets.Set[string]

// vocabulary returns the strings to keep, by type or by list.
var vocabulary = sync.OnceValue(func() map[string]words {
	all := map[string]words{}
	for line := range strings.Lines(vocabularyFile + ownFile) {
		list, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if all[list] == nil {
			all[list] = words{}
		}
		all[list].Insert(value)
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
			all.Insert(values.UnsortedList()...)
		}
	}
	return all
})

func keptKey(s string) bool { return vocabulary()["key"].Has(s) }

// resourceNames returns the resources that Kubernetes defines, such as cpu.
var resourceNames = sync.OnceValue(func() words { return enumeration(reflect.TypeFor[v1.ResourceName]()) })

// known returns the kinds, versions and groups of client-go's scheme.
var known = sync.OnceValue(func() (k struct{ kinds, versions, groups words }) {
	k.kinds, k.versions, k.groups = words{}, words{}, words{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		k.kinds.Insert(kind.Kind)
		k.versions.Insert(kind.GroupVersion().String())
		k.groups.Insert(kind.Group)
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
	case l.values.Has(s):
		return true
	case l.form == opaque || l.form == encoded:
		return false
	case keptWhole(s) || isTime(s):
		return true
	}
	switch l.form {
	case qualified:
		return resourceNames().Has(s)
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
		return s == kind.Kind || known().kinds.Has(s)
	case version:
		return s == kind.GroupVersion().String() || known().versions.Has(s)
	case group:
		return s == kind.Group || known().groups.Has(s)
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

var harmless = sets.New("true", "false", "True", "False", "Unknown", "127.0.0.1", "0.0.0.0", "::1", "::")

// keptWhole reports whether a string is harmless in any position, as a value or as a label key.
func keptWhole(s string) bool { return keptKey(s) || harmless.Has(s) }

// leafOf returns the leaf of a field of type string or of unknown type, by its name.
func leafOf(field string) leaf { return leaves()[field] }

var leaves = sync.OnceValue(func() map[string]leaf {
	component, constant := leaf{values: vocabulary()["component"]}, leaf{values: anyValue()}
	return map[string]leaf{
		// Values.
		"args": {form: opaque}, "binaryData": {form: opaque}, "command": {form: opaque}, "data": {form: opaque}, "stringData": {form: opaque}, "value": {form: opaque},
		// Keys of maps, in other places.
		"key": {form: qualified}, "matchLabelKeys": {form: qualified}, "mismatchLabelKeys": {form: qualified}, "topologyKey": {form: qualified},
		"finalizers": {form: qualified, values: sets.New("kubernetes")},
		"apiGroup":   {form: group}, "apiGroups": {form: group}, "apiVersion": {form: version}, "kind": {form: apiKind}, "resourceVersion": {form: number},
		"cpu": {form: quantity}, "ephemeral-storage": {form: quantity}, "memory": {form: quantity}, "storage": {form: quantity},
		"effect": constant, "operation": constant, "operator": constant, "phase": constant, "policy": constant, "protocol": constant,
		"reason": constant, "status": constant, "type": constant,
		"component": component, "manager": component, "reportingComponent": component, "reportingController": component,
		"architecture": {values: sets.New("amd64", "arm64")}, "operatingSystem": {values: sets.New("linux", "windows")},
		"clusterIP": {values: sets.New("None")}, "clusterIPs": {values: sets.New("None")},
		"fieldPath": {values: vocabulary()["fieldPath"]}, "fieldsType": {values: sets.New("FieldsV1")}, "subresource": {values: sets.New("status", "scale")},
		"resource": {values: sets.New("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage")},
	}
})
