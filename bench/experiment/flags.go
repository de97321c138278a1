package experiment

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/impls"
	"watchlab/loadgen/manifest"
)

// Field is a field of a [Spec], or of a nested struct, that a flag sets.
type Field struct {
	Flag, Short, Help string   // of the flag
	Path              string   // path of the field, such as storm.nodes
	Values            []string // allowed ones; nil for any
	Common            bool     // the flag is in the short help
	RunOnly           bool     // the flag does not apply to searches

	tag   reflect.StructTag
	array bool
	index []int
	value reflect.Value
}

// Search reports whether the field describes a search.
func (f Field) Search() bool { return strings.HasPrefix(f.Path, "search.") }

// Fields returns the fields with flags of a struct, in the order of declaration; spec is a pointer
// to it. Fields behind nil pointers are left out.
func Fields(spec any) []Field { return fieldsOf(reflect.ValueOf(spec).Elem(), "", nil) }

func fieldsOf(v reflect.Value, path string, index []int) []Field {
	var all []Field
	for i := range v.NumField() {
		f, fv := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		here, at := strings.TrimPrefix(path+"."+name, "."), append(slices.Clip(index), i)
		if tag, ok := f.Tag.Lookup("flag"); ok {
			parts := strings.Split(tag, ",")
			field := Field{Flag: parts[0], Path: here, Help: f.Tag.Get("help"), tag: f.Tag, index: at, value: fv}
			if values, ok := f.Tag.Lookup("enum"); ok {
				field.Values = strings.Split(values, ",")
			}
			for _, option := range parts[1:] {
				switch option {
				case "common":
					field.Common = true
				case "run":
					field.RunOnly = true
				case "array":
					field.array = true
				default:
					field.Short = option
				}
			}
			all = append(all, field)
			continue
		}
		if fv.Kind() == reflect.Pointer && !fv.IsNil() {
			fv = fv.Elem()
		}
		if fv.Kind() == reflect.Struct {
			all = append(all, fieldsOf(fv, here, at)...)
		}
	}
	return all
}

// AddFlags adds the fields' flags. They write to the struct that the fields belong to.
func AddFlags(fs *pflag.FlagSet, fields []Field) {
	for _, f := range fields {
		addr := f.value.Addr()
		if f.value.Kind() == reflect.String {
			addr = addr.Convert(reflect.TypeFor[*string]())
		}
		switch to := addr.Interface().(type) {
		case *string:
			fs.StringVarP(to, f.Flag, f.Short, *to, f.Help)
		case *[]string:
			if f.array {
				fs.StringArrayVarP(to, f.Flag, f.Short, *to, f.Help)
			} else {
				fs.StringSliceVarP(to, f.Flag, f.Short, *to, f.Help)
			}
		case *int:
			fs.IntVarP(to, f.Flag, f.Short, *to, f.Help)
		case *int64:
			fs.Int64VarP(to, f.Flag, f.Short, *to, f.Help)
		case *float64:
			fs.Float64VarP(to, f.Flag, f.Short, *to, f.Help)
		case *bool:
			fs.BoolVarP(to, f.Flag, f.Short, *to, f.Help)
		case *metav1.Duration:
			fs.DurationVarP(&to.Duration, f.Flag, f.Short, to.Duration, f.Help)
		default:
			panic(fmt.Sprintf("field %s has a flag, and type %T", f.Path, to))
		}
	}
}

// Overlay copies the fields with a given flag to another struct of the same type; to is a pointer
// to it. A given zero, such as --rounds 0, is an error if the field needs a value.
func Overlay(to any, fields []Field, given func(flag string) bool) error {
	for _, f := range fields {
		if !given(f.Flag) {
			continue
		}
		if f.value.IsZero() && f.tag.Get("min") == "1" {
			return manifest.BadField(f.Path, f.tooSmall())
		}
		dst := reflect.ValueOf(to).Elem()
		for _, i := range f.index {
			if dst.Kind() == reflect.Pointer {
				if dst.IsNil() {
					dst.Set(reflect.New(dst.Type().Elem()))
				}
				dst = dst.Elem()
			}
			dst = dst.Field(i)
		}
		dst.Set(f.value)
	}
	return nil
}

// elsewhere says how the families are compared whose variants are stages of the informer pipeline.
var elsewhere = map[string]string{
	string(impls.Inflate):   "readers of compressed answers are measured alone: go test -bench Inflate ./bench",
	string(impls.Decode):    "decoders are chosen by --decode; alone they are measured by: go test -bench Decode ./bench",
	string(impls.Store):     "stores are chosen by --store; alone they are measured by: go test -bench Store ./bench",
	string(impls.Workqueue): "workqueues are chosen by --workqueue; alone they are measured by: go test -bench Workqueue ./bench",
}

func (f Field) tooSmall() error {
	least := "negative"
	v := f.value.Interface()
	if d, ok := v.(metav1.Duration); ok {
		v = d.Duration
		if f.tag.Get("min") == "1" {
			least = "not more than 0"
		}
	} else if f.tag.Get("min") == "1" {
		least = "less than 1"
	}
	return fmt.Errorf("%v is %s", v, least)
}

// checkFields rejects numbers out of range, values that are not allowed, and fields that do not apply to the
// pipeline, the source or the family of in, unless in lacks that. 0 means the default.
func checkFields(spec any, in map[string]string) error {
	for _, f := range Fields(spec) {
		if isZero(f.value) {
			continue
		}
		n, _ := f.value.Interface().(int)
		d, _ := f.value.Interface().(metav1.Duration)
		values, list := f.value.Interface().([]string)
		if !list {
			values = []string{f.value.String()}
		}
		most, _ := strconv.Atoi(f.tag.Get("max"))
		switch {
		case n < 0 || d.Duration < 0:
			return manifest.BadField(f.Path, f.tooSmall())
		case most > 0 && n > most:
			return manifest.Bad(f.Path, "%d (allowed: 0 to %d)", n, most)
		case f.Path == "family" && elsewhere[values[0]] != "":
			return manifest.Bad(f.Path, "%s", elsewhere[values[0]])
		}
		for _, v := range values {
			if f.Values != nil && !slices.Contains(f.Values, v) {
				return manifest.BadField(f.Path, manifest.OneOf(v, f.Values...))
			}
		}
		for _, what := range []string{"pipeline", "source", "family"} {
			if need := f.tag.Get(what); need != "" && in[what] != "" && !slices.Contains(strings.Split(need, ","), in[what]) {
				return manifest.Bad(f.Path, "needs --%s %s", what, strings.ReplaceAll(need, ",", " or "))
			}
		}
	}
	return nil
}

// Path returns the path of the field that a flag sets; "" for an unknown flag.
func Path(flag string) string {
	return find(func(f Field) bool { return f.Flag == flag }).Path
}

// FlagOf returns the flag that sets a field; "" for none.
func FlagOf(path string) string {
	return find(func(f Field) bool { return f.Path == path }).Flag
}

// find returns a field of the Spec or of a search; an empty one if there is none.
func find(wanted func(Field) bool) Field {
	all := Fields(&Spec{Search: &Search{Knee: &KneeSearch{}, Scale: &Scale{}}})
	if at := slices.IndexFunc(all, wanted); at >= 0 {
		return all[at]
	}
	return Field{}
}

// set sets a field as its flag would, and returns the flag's own spelling of the value.
func (s *Spec) set(flag, value string) (plain string, err error) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(fs, Fields(s))
	err = fs.Set(flag, value)
	return fs.Lookup(flag).Value.String(), err
}

// Given returns the fields with a value other than zero.
func Given(s *Spec) []Field {
	return slices.DeleteFunc(Fields(s), func(f Field) bool { return isZero(f.value) })
}

// Arguments returns the flags that set the fields of a struct as they are; spec is a pointer to it. They are in the
// order of declaration.
func Arguments(spec any) (args []string) {
	for _, f := range Fields(spec) {
		switch v := f.value.Interface().(type) {
		case bool:
			if v {
				args = append(args, "--"+f.Flag)
			}
		case []string:
			for _, one := range v {
				args = append(args, "--"+f.Flag, one)
			}
		default:
			if f.value.IsZero() {
				continue
			}
			if d, ok := v.(metav1.Duration); ok {
				v = d.Duration
			}
			args = append(args, "--"+f.Flag, fmt.Sprint(v))
		}
	}
	return args
}
