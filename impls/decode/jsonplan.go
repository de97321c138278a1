package decode

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	jsonUnmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	managedType         = reflect.TypeFor[metav1.ManagedFieldsEntry]()
	fieldsType          = reflect.TypeFor[*metav1.FieldsV1]()
	timePointerType     = reflect.TypeFor[*metav1.Time]()
)

// jsonPlan is how to decode the JSON objects of one struct type. It is built by reflection from the
// json tags of the type, once a [Table].
type jsonPlan struct {
	*kind
	fields []*jsonField // in the order of the type, which is that of encoders
	names  map[string]*jsonField
	object bool       // a runtime.Object with metadata
	items  *jsonField // the field Items of a list of objects, else nil
}

// jsonField is one field of a JSON object.
type jsonField struct {
	*kind   // of the field's groups
	name    string
	shape   shape // opaque is any type that client-go's decoder decodes; texts and dicts are not used
	at      uintptr
	bit     uint64 // in the set of fields seen
	pointer bool
	elem    *jsonPlan  // of a message, else nil
	item    *jsonField // an element of a list, a key or value of a dict; else nil

	pos position // of the field's groups or strings
}

// find returns the field with the name. The guess is where it may stand in fields.
func (p *jsonPlan) find(name []byte, guess *int) *jsonField {
	for i := *guess; i < len(p.fields) && i < *guess+4; i++ {
		if p.fields[i].name == string(name) {
			*guess = i + 1
			return p.fields[i]
		}
	}
	f := p.names[string(name)]
	if f != nil {
		for *guess = 0; p.fields[*guess] != f; *guess++ {
		}
		*guess++
	}
	return f
}

// jsonPlanner builds the plans of a table, for JSON.
type jsonPlanner struct {
	plans    map[reflect.Type]*jsonPlan
	kinds    map[reflect.Type]*kind
	readOnly bool // objects share values
}

// kind returns that of the type: equal bytes in fields of one type are one group.
func (ps *jsonPlanner) kind(typ reflect.Type) *kind {
	k := ps.kinds[typ]
	if k == nil {
		k = &kind{typ: typ, is: typ.Kind(), salt: (1<<40 + uint64(len(ps.kinds))) * 0x9e3779b97f4a7c15, copier: copierOf(typ), readOnly: ps.readOnly}
		ps.kinds[typ] = k
	}
	return k
}

// own reports whether a type decodes itself.
func own(typ reflect.Type) bool {
	ptr := reflect.PointerTo(typ)
	return ptr.Implements(jsonUnmarshalerType) || ptr.Implements(textUnmarshalerType)
}

// plan returns the plan of a type, or nil for what is not a struct with plain tags.
func (ps *jsonPlanner) plan(typ reflect.Type) *jsonPlan {
	if p, ok := ps.plans[typ]; ok {
		return p
	}
	if typ.Kind() != reflect.Struct || own(typ) {
		return nil
	}
	fields, ok := jsonFields(nil, typ, 0)
	p := &jsonPlan{kind: ps.kind(typ), names: map[string]*jsonField{}}
	for i, sf := range fields {
		f := &jsonField{name: sf.Name, at: sf.Offset, bit: 1 << i}
		p.fields = append(p.fields, f)
		p.names[f.name] = f
	}
	if !ok || len(fields) > 64 || len(p.names) != len(fields) {
		p = nil
	}
	ps.plans[typ] = p
	if p == nil {
		return nil
	}
	for i, f := range p.fields {
		ps.shape(f, fields[i].Type)
	}
	_, p.object = typ.FieldByName("ObjectMeta")
	p.object = p.object && reflect.PointerTo(typ).Implements(objectType)
	if f := p.names["items"]; f != nil && f.shape == list && f.item.elem != nil && f.item.elem.object {
		p.items = f
	}
	return p
}

// jsonFields appends the fields of a struct, those of embedded structs included, with their JSON
// names. It reports false for what the rules of encoding/json make hard to tell.
func jsonFields(fields []reflect.StructField, typ reflect.Type, at uintptr) ([]reflect.StructField, bool) {
	for i := range typ.NumField() {
		sf := typ.Field(i)
		tag := sf.Tag.Get("json")
		if tag == "-" || !sf.IsExported() && !sf.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		sf.Offset += at
		if sf.Anonymous && name == "" {
			if sf.Type.Kind() != reflect.Struct || own(sf.Type) || !sf.IsExported() {
				return nil, false
			}
			var ok bool
			if fields, ok = jsonFields(fields, sf.Type, sf.Offset); !ok {
				return nil, false
			}
			continue
		}
		if name == "" {
			name = sf.Name
		}
		if sf.Anonymous && !sf.IsExported() || strings.Contains(","+options+",", ",string,") || strings.ContainsFunc(name, odd) {
			return nil, false
		}
		sf.Name = name
		fields = append(fields, sf)
	}
	return fields, true
}

// odd reports whether a character is one that the names of fields do not have.
func odd(r rune) bool {
	return (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') && !strings.ContainsRune("-_.$", r)
}

func (ps *jsonPlanner) shape(f *jsonField, typ reflect.Type) {
	f.kind = ps.kind(typ)
	f.pos.score.Store(startScore)
	if typ.Kind() == reflect.Pointer {
		typ, f.pointer = typ.Elem(), true
	}
	if own(typ) {
		if reflect.PointerTo(typ).Implements(jsonUnmarshalerType) {
			f.shape = custom
		}
		return
	}
	switch typ.Kind() {
	case reflect.String:
		f.shape = text
	case reflect.Bool, reflect.Int32, reflect.Int64:
		f.shape = number
	case reflect.Struct:
		if f.elem = ps.plan(typ); f.elem != nil {
			f.shape, f.kind = message, f.elem.kind
		}
	case reflect.Slice:
		f.item = &jsonField{}
		if ps.shape(f.item, typ.Elem()); !f.pointer && !f.item.pointer && (f.item.shape == text || f.item.shape == message) {
			f.shape = list
		}
	case reflect.Map:
		if !f.pointer && typ == dictType {
			f.shape, f.item = dict, &jsonField{}
			ps.shape(f.item, typ.Elem())
		}
	}
}
