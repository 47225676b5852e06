package config

import (
	"reflect"
	"strings"
)

// Fields with the tag reload:"yes" can be changed in a running node, with all that is below
// them. The sample marks the same keys (OPS-031).
const reloadTag = "reload"

// Changes returns the keys with another value in next: those that a running node applies,
// and those that need a restart.
func (c *Config) Changes(next *Config) (reloadable, restart []string) {
	compare("", reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem(), false,
		func(key string, live bool, _, _ reflect.Value) {
			if live {
				reloadable = append(reloadable, key)
			} else {
				restart = append(restart, key)
			}
		})

	return reloadable, restart
}

// WithReloadable returns the configuration with the reloadable values of another.
func (c *Config) WithReloadable(next *Config) Config {
	merged := *c
	compare("", reflect.ValueOf(&merged).Elem(), reflect.ValueOf(next).Elem(), false,
		func(_ string, live bool, current, wanted reflect.Value) {
			if live {
				current.Set(wanted)
			}
		})

	return merged
}

// compare visits each key whose values differ.
func compare(key string, current, next reflect.Value, live bool,
	visit func(key string, live bool, current, next reflect.Value)) {
	typ := current.Type()

	if typ.Kind() == reflect.Struct && !isText(typ) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			compare(below(key, keyOf(&field)), current.Field(i), next.Field(i),
				live || field.Tag.Get(reloadTag) != "", visit)
		}

		return
	}

	if !equal(current, next) {
		visit(key, live, current, next)
	}
}

// equal compares values; an absent list is an empty one.
func equal(a, b reflect.Value) bool {
	if kind := a.Kind(); (kind == reflect.Slice || kind == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}

	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func keyOf(field *reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
	return name
}
