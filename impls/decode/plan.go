package decode

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// unmarshaler is the generated code of a type. Unmarshal merges into the receiver, so that a
// message may be decoded in parts that end at borders of fields.
type unmarshaler interface {
	Reset()
	Unmarshal([]byte) error
}

var (
	unmarshalerType = reflect.TypeFor[unmarshaler]()
	objectType      = reflect.TypeFor[runtime.Object]()
	objectMetaType  = reflect.TypeFor[metav1.ObjectMeta]()
	timeType        = reflect.TypeFor[metav1.Time]()
	dictType        = reflect.TypeFor[map[string]string]()
)

// kind is what a group of wire bytes is decoded to. Two groups are equal if their kinds and their
// bytes are.
type kind struct {
	typ    reflect.Type // of the value: a message, a slice or a map
	is     reflect.Kind // of typ
	of     *plan        // whose generated code decodes the bytes; nil for JSON
	offset uintptr      // of the value in of
	salt   uint64

	make     func(n int) unsafe.Pointer // n zero values, faster than by reflection; nil for most types
	copier   *copier                    // nil: values cannot be copied, so groups of the kind are not kept
	readOnly bool                       // objects share the values
}

// copy assigns the value at src to dst. Slices, maps and pointers are shared.
func (k *kind) copy(dst, src unsafe.Pointer) {
	switch k.is {
	case reflect.Slice: // of any type: the collector knows the type of the array
		*(*[]byte)(dst) = *(*[]byte)(src)
	case reflect.Map:
		*(*unsafe.Pointer)(dst) = *(*unsafe.Pointer)(src)
	default:
		reflect.NewAt(k.typ, dst).Elem().Set(reflect.NewAt(k.typ, src).Elem())
	}
}

func (k *kind) new() unsafe.Pointer {
	if k.make != nil {
		return k.make(1)
	}
	return reflect.New(k.typ).UnsafePointer()
}

// makers has the types that most objects of busy caches consist of.
var makers = map[reflect.Type]func(n int) unsafe.Pointer{
	reflect.TypeFor[v1.Pod]():                      makes[v1.Pod],
	reflect.TypeFor[v1.Container]():                makes[v1.Container],
	reflect.TypeFor[v1.ContainerPort]():            makes[v1.ContainerPort],
	reflect.TypeFor[v1.ContainerStatus]():          makes[v1.ContainerStatus],
	reflect.TypeFor[v1.EnvVar]():                   makes[v1.EnvVar],
	reflect.TypeFor[v1.EnvVarSource]():             makes[v1.EnvVarSource],
	reflect.TypeFor[v1.ObjectFieldSelector]():      makes[v1.ObjectFieldSelector],
	reflect.TypeFor[v1.SecretKeySelector]():        makes[v1.SecretKeySelector],
	reflect.TypeFor[v1.ConfigMapKeySelector]():     makes[v1.ConfigMapKeySelector],
	reflect.TypeFor[v1.VolumeMount]():              makes[v1.VolumeMount],
	reflect.TypeFor[v1.Volume]():                   makes[v1.Volume],
	reflect.TypeFor[v1.VolumeProjection]():         makes[v1.VolumeProjection],
	reflect.TypeFor[v1.ProjectedVolumeSource]():    makes[v1.ProjectedVolumeSource],
	reflect.TypeFor[v1.KeyToPath]():                makes[v1.KeyToPath],
	reflect.TypeFor[v1.PodCondition]():             makes[v1.PodCondition],
	reflect.TypeFor[v1.PodIP]():                    makes[v1.PodIP],
	reflect.TypeFor[v1.HostIP]():                   makes[v1.HostIP],
	reflect.TypeFor[v1.Toleration]():               makes[v1.Toleration],
	reflect.TypeFor[v1.Probe]():                    makes[v1.Probe],
	reflect.TypeFor[v1.SecurityContext]():          makes[v1.SecurityContext],
	reflect.TypeFor[v1.PodSecurityContext]():       makes[v1.PodSecurityContext],
	reflect.TypeFor[v1.Capabilities]():             makes[v1.Capabilities],
	reflect.TypeFor[v1.ContainerStateRunning]():    makes[v1.ContainerStateRunning],
	reflect.TypeFor[v1.ContainerStateTerminated](): makes[v1.ContainerStateTerminated],
	reflect.TypeFor[v1.ContainerStateWaiting]():    makes[v1.ContainerStateWaiting],
	reflect.TypeFor[metav1.OwnerReference]():       makes[metav1.OwnerReference],
	reflect.TypeFor[metav1.Time]():                 makes[metav1.Time],
}

func makes[T any](n int) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(make([]T, n)))
}

// decode decodes a group with client-go's code.
func (k *kind) decode(b []byte) (value unsafe.Pointer, ok bool) {
	if k.of == nil {
		value = k.new()
		return value, kjson.Unmarshal(b, reflect.NewAt(k.typ, value).Interface()) == nil
	}
	value = k.of.new()
	return unsafe.Add(value, k.offset), k.of.merge(value, b)
}

// plan is how to decode the messages of one struct type. It is built by reflection from the
// protobuf tags of the type, once.
type plan struct {
	kind
	fields []*field // by field number; nil for numbers that the type lacks
	object bool     // a runtime.Object with metadata
	items  *field   // the field Items of a list of objects, else nil
}

// shape is a field's decoding method.
type shape uint8

const (
	opaque  shape = iota // by the generated code of its message
	custom               // by the Unmarshal of its own type, such as metav1.Time
	text                 // string
	number               // bool, int32, int64
	message              // a struct with a plan
	list                 // []struct with a plan
	texts                // []string
	dict                 // map[string]string
	dicts                // any other map: a group, decoded by the generated code
)

// field is one field of a message, and what a table has learned of it.
type field struct {
	fieldType
	whole, each position     // of the field's groups, and of the elements of a list
	parts       atomic.Int32 // score: whether groups within the field repeat
}

// fieldType is what the type says of a field.
type fieldType struct {
	kind           // of the whole run of a list or map
	name    string // in Go
	shape   shape
	wire    uint64 // wire type
	at      uintptr
	bit     uint64 // in the set of fields seen
	pointer bool
	elem    *plan // of message and list, or of opaque structs that check walks; else nil
}

func (p *plan) field(tag uint64) *field {
	if n := tag >> 3; n < uint64(len(p.fields)) {
		return p.fields[n]
	}
	return nil
}

// value returns the message at ptr.
func (p *plan) value(ptr unsafe.Pointer) any { return reflect.NewAt(p.typ, ptr).Interface() }

// merge decodes whole fields into the message at ptr with the generated code.
func (p *plan) merge(ptr unsafe.Pointer, b []byte) bool {
	return p.value(ptr).(unmarshaler).Unmarshal(b) == nil
}

// planner has the plans of types.
type planner map[reflect.Type]*plan

// prototypes has the plans of private objects, which all decoders use, and of which tables take copies for
// objects that share values. To build those of a pod takes as long as to decode a hundred.
var prototypes = struct {
	mu sync.Mutex
	planner
}{planner: planner{}}

// copy returns a copy of a prototype and of those that it refers to, for objects that share values.
func (ps planner) copy(of *plan) *plan {
	if of == nil {
		return nil
	}
	if p, ok := ps[of.typ]; ok {
		return p
	}
	p := &plan{kind: of.kind, object: of.object, fields: make([]*field, len(of.fields))}
	p.of, p.readOnly = p, true
	ps[of.typ] = p
	fields := make([]field, len(of.fields))
	for i, proto := range of.fields {
		if proto == nil {
			continue
		}
		f := &fields[i]
		f.fieldType = proto.fieldType
		f.of, f.readOnly, f.elem = p, true, ps.copy(f.elem)
		f.start()
		p.fields[i] = f
		if proto == of.items {
			p.items = f
		}
	}
	return p
}

func (f *field) start() {
	f.whole.score.Store(startScore)
	f.each.score.Store(startScore)
	f.parts.Store(startScore)
}

// plan returns the plan of a type, or nil if the type is not a generated message.
func (ps planner) plan(typ reflect.Type) *plan {
	if p, ok := ps[typ]; ok {
		return p
	}
	if typ.Kind() != reflect.Struct || !reflect.PointerTo(typ).Implements(unmarshalerType) {
		return nil
	}
	p := &plan{}
	p.kind = ps.kind(typ, p, 0)
	ps[typ] = p
	tagged := false
	for i := range typ.NumField() {
		sf := typ.Field(i)
		parts := strings.Split(sf.Tag.Get("protobuf"), ",")
		if len(parts) < 3 {
			continue
		}
		tagged = true
		n, err := strconv.Atoi(parts[1])
		if err != nil || n <= 0 || n > 1<<10 {
			ps[typ] = nil
			return nil
		}
		for len(p.fields) <= n {
			p.fields = append(p.fields, nil)
		}
		p.fields[n] = ps.field(p, sf, i)
	}
	if !tagged {
		ps[typ] = nil // a type of hand-written code
		return nil
	}
	_, p.object = typ.FieldByName("ObjectMeta")
	p.object = p.object && reflect.PointerTo(typ).Implements(objectType)
	for _, f := range p.fields {
		if f != nil && f.name == "Items" && f.shape == list && f.elem.object {
			p.items = f
		}
	}
	return p
}

func (ps planner) kind(typ reflect.Type, of *plan, offset uintptr) kind {
	return kind{
		typ: typ, is: typ.Kind(), of: of, offset: offset, salt: (uint64(len(ps))<<16 + uint64(offset)) * 0x9e3779b97f4a7c15,
		copier: copierOf(typ), make: makers[typ],
	}
}

// field builds the plan of the i-th field of p's type. A field that it does not know, or that has
// no bit in the set of fields seen, is opaque.
func (ps planner) field(p *plan, sf reflect.StructField, i int) *field {
	f := &field{fieldType: fieldType{name: sf.Name, at: sf.Offset, wire: wireBytes, kind: ps.kind(sf.Type, p, sf.Offset)}}
	f.start()
	if i >= 64 {
		return f
	}
	f.bit = 1 << i
	typ := sf.Type
	if typ.Kind() == reflect.Pointer {
		typ, f.pointer = typ.Elem(), true
	}
	switch typ.Kind() {
	case reflect.String:
		f.shape = text
	case reflect.Bool, reflect.Int32, reflect.Int64:
		f.shape, f.wire = number, wireVarint
	case reflect.Struct:
		if f.elem = ps.plan(typ); f.elem != nil {
			f.shape = message
		} else if reflect.PointerTo(typ).Implements(unmarshalerType) {
			f.shape = custom
		}
	case reflect.Slice:
		switch elem := typ.Elem(); {
		case f.pointer:
		case elem.Kind() == reflect.String && typ.Name() == "":
			f.shape = texts
		case elem.Kind() == reflect.Struct:
			if f.elem = ps.plan(elem); f.elem != nil {
				f.shape = list
			}
		}
	case reflect.Map:
		switch {
		case f.pointer:
		case typ == dictType:
			f.shape = dict
		default:
			f.shape = dicts
		}
	}
	return f
}

// A position is a place in a type where groups stand. It learns whether hashing pays there: a hit
// saves many times what a miss costs, so one hit outweighs hitGain misses. Below zero only large
// groups are hashed, and the objects of a sample, so that repetitions are found again. Its counters
// may lose updates of concurrent decoders.
type position struct {
	score atomic.Int32
	hits  atomic.Uint32
	last  atomic.Pointer[entry]  // found lately, compared with first
	text  atomic.Pointer[string] // the same of a string
}

const (
	startScore = 64
	maxScore   = 2048
	minScore   = -64
	hitGain    = 8 // of a position
	textGain   = 4 // of a string, and what a miss takes: a look-up costs as much as a copy
	partsGain  = 4 // of a group of which 1/partsShare of the bytes repeats
	partsShare = 8
	sample     = 32      // one of as many objects, chosen by its UID
	largeGroup = 256     // bytes
	maxLast    = 2 << 10 // bytes of a group that a position holds beside the table
)

func (p *position) worth() bool { return p.score.Load() >= 0 }

// another reports every fourth hit that was not the last value.
func (p *position) another() bool {
	n := p.hits.Load()
	p.hits.Store(n + 1)
	return n%4 == 0
}

func (p *position) learn(hit bool) { learn(&p.score, hit, hitGain, 1) }

func (p *position) learnText(hit bool) { learn(&p.score, hit, textGain, textGain) }

func learn(score *atomic.Int32, hit bool, gain, loss int32) {
	was := score.Load()
	s := max(minScore, was-loss)
	if hit {
		s = min(maxScore, was+gain)
	}
	if s != was {
		score.Store(s)
	}
}

// recurs reports whether hits outweighed misses so far, so that a group is kept at first sight.
func (p *position) recurs() bool { return p.score.Load() > startScore }
