package informer

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// handlerName names a handler in logs: by its type or, where it is a set of
// functions, by where these come from (client-go v0.37, event_handler_name.go).
func handlerName(handler cache.ResourceEventHandler) string {
	name := ""
	switch h := handler.(type) {
	case nil:
	case cache.ResourceEventHandlerFuncs:
		name = funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
	case *cache.ResourceEventHandlerFuncs:
		if h != nil {
			name = funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
		}
	default:
		name = typeName(reflect.TypeOf(handler))
	}
	if name == "" {
		name = fmt.Sprintf("%T", handler)
	}
	return name
}

// typeName returns the full name of a type without a star, or "" for an unnamed
// type.
func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Name() == "":
		return ""
	case t.PkgPath() == "":
		return t.Name()
	}
	return t.PkgPath() + "." + t.Name()
}

// funcsName returns the function, type or package that defines all functions, or
// else all their names.
func funcsName(funcs ...any) string {
	var names, places []string
	for _, f := range funcs {
		v := reflect.ValueOf(f)
		if v.IsNil() {
			continue
		}
		name := runtime.FuncForPC(v.Pointer()).Name()
		place := name
		if dot := strings.LastIndexByte(name, '.'); dot > 0 {
			place = name[:dot]
		}
		names, places = append(names, name), append(places, place)
	}
	if places = slices.Compact(places); len(places) == 1 {
		return places[0]
	}
	return strings.Join(names, "+")
}
