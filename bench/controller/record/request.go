package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/fxamacker/cbor/v2"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
)

// parse reads what the line of a request says. It returns false for a path below no resource.
func parse(req *http.Request) (a Access, ok bool) {
	r, ok := wire.ParseRequest(req)
	if !ok {
		return a, false
	}
	a.Resource, a.Subresource, a.Verb = r.Resource, r.Subresource, r.Verb
	if a.Key = storm.ObjectKey(r.Namespace, r.Name); r.Name == "" && r.Namespace != "" {
		a.Key = r.Namespace + "/"
	}
	a.DryRun = r.Query.Get("dryRun") != ""
	if a.Verb == "list" || a.Verb == "watch" {
		a.Selector = strings.Trim(r.Query.Get("labelSelector")+" "+r.Query.Get("fieldSelector"), " ")
		form, _ := wire.Negotiate(req.Header.Values("Accept"), wire.Offer{Stream: a.Verb == "watch"})
		a.Encoding, a.Metadata = form.Media().String(), form.Shape() == wire.Metadata
	}
	switch a.Verb {
	case "watch":
		a.State = cmp.Or(r.Query.Get("resourceVersion"), "0") == "0" || r.Query.Get("sendInitialEvents") == "true"
	case "list":
		a.Continues, a.Any = r.Query.Get("continue") != "", r.Query.Get("resourceVersion") == "0"
		a.State = !a.Continues
	case "patch":
		if strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch+") {
			a.Verb = "apply"
		}
	}
	return a, true
}

// read reads the bodies of a write.
func (f *flight) read(contentType string) {
	var named fields
	switch {
	case strings.HasPrefix(contentType, "application/json-patch+json"):
		f.Based = versionOfPatch(f.body)
	case f.Verb == "delete" || f.Verb == "deletecollection":
		named.decode(f.body, "DeleteOptions")
	default:
		named.decode(f.body, "")
	}
	if options := named.options(); options != nil {
		f.DryRun = f.DryRun || len(options.DryRun) > 0
		if p := options.Preconditions; p != nil && p.ResourceVersion != nil {
			f.Based = number(*p.ResourceVersion)
		}
	} else if f.Based == 0 {
		f.Based = number(named.Metadata.ResourceVersion)
	}
	var answered fields
	if f.Code >= http.StatusOK && f.Code < 300 && f.Verb != "deletecollection" {
		answered.decode(f.answer, "")
	}
	f.Version = number(answered.Metadata.ResourceVersion)
	if f.Verb == "create" && f.Subresource == "" {
		if name := cmp.Or(answered.Metadata.Name, named.Metadata.Name); name != "" {
			f.Key = storm.ObjectKey(strings.TrimSuffix(f.Key, "/"), name)
		}
	}
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// fields are those of an object, of DeleteOptions and of an Eviction that say what a write is based on.
type fields struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	deleteOptions
	Evicted *deleteOptions `json:"deleteOptions"` // of an Eviction
}

type deleteOptions = metav1.DeleteOptions

// options returns the options of a deletion, and nil if the body is another object.
func (f *fields) options() *deleteOptions {
	switch {
	case f.Evicted != nil:
		return f.Evicted
	case f.Kind == "DeleteOptions":
		return &f.deleteOptions
	}
	return nil
}

// Kubernetes writes strings of CBOR as bytes, too. An item is self-described.
var (
	cborMode, _ = cbor.DecOptions{
		ByteStringToString: cbor.ByteStringToStringAllowed, FieldNameByteString: cbor.FieldNameByteStringAllowed,
	}.DecMode()
	cborSelf  = []byte("\xd9\xd9\xf7")
	protoSelf = []byte("k8s\x00")
)

// decode reads a body in any encoding, which its first bytes tell. kind is the default. It leaves the fields
// of what does not parse.
func (f *fields) decode(b []byte, kind string) {
	f.Kind = kind
	switch {
	case bytes.HasPrefix(b, protoSelf):
		f.decodeProtobuf(b[len(protoSelf):])
	case bytes.HasPrefix(b, cborSelf):
		_ = cborMode.Unmarshal(b, f)
	case bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")):
		_ = json.Unmarshal(b, f)
	case manifest.CheckAliases(b) == nil:
		_ = yaml.Unmarshal(b, f) // of an apply patch
	}
	if f.Kind == "Status" || strings.HasSuffix(f.Kind, "List") && f.Metadata.Name == "" {
		f.Metadata.ResourceVersion = "" // of no object
	}
}

func (f *fields) decodeProtobuf(b []byte) {
	var u runtime.Unknown
	if u.Unmarshal(b) != nil {
		return
	}
	if u.Kind != "" {
		f.Kind = u.Kind
	}
	switch f.Kind {
	case "Status":
	case "DeleteOptions":
		_ = f.deleteOptions.Unmarshal(u.Raw)
	case "Eviction":
		var e policyv1.Eviction
		_ = e.Unmarshal(u.Raw)
		f.Evicted = e.DeleteOptions
	default:
		// The metadata is field 1 of every kind.
		var m metav1.PartialObjectMetadata
		if m.Unmarshal(u.Raw) == nil {
			f.Metadata.Name, f.Metadata.ResourceVersion = m.Name, m.ResourceVersion
		}
	}
}

// VersionOf returns the resourceVersion of an object in any encoding, and "" of anything else.
func VersionOf(body []byte) string {
	var f fields
	f.decode(body, "")
	return f.Metadata.ResourceVersion
}

// versionOfPatch returns the version that a JSON patch tests or replaces.
func versionOfPatch(b []byte) uint64 {
	var operations []struct {
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	_ = json.Unmarshal(b, &operations)
	for _, o := range operations {
		if o.Path == "/metadata/resourceVersion" {
			var version string
			_ = json.Unmarshal(o.Value, &version)
			return number(version)
		}
	}
	return 0
}
