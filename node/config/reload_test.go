package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The sample marks the keys that a running node applies, and no others.
//
// Requirement: OPS-031
func TestSampleMarksReloadableKeys(t *testing.T) {
	var marked, path []string

	for _, line := range strings.Split(Sample, "\n") {
		text := strings.TrimLeft(line, " ")
		name, _, isKey := strings.Cut(text, ":")

		if !isKey || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "- ") {
			continue
		}

		path = append(path[:(len(line)-len(text))/2], name)
		if strings.HasSuffix(line, " # Reloadable.") {
			marked = append(marked, strings.Join(path, "."))
		}
	}

	want := reloadable()
	slices.Sort(want)
	slices.Sort(marked)

	if len(want) == 0 || !slices.Equal(marked, want) {
		t.Errorf("the sample marks %v\nreloadable are %v", marked, want)
	}
}

// reloadable returns the keys that can be changed in a running node, in the order of the file.
func reloadable() (keys []string) {
	var walk func(key string, typ reflect.Type)
	walk = func(key string, typ reflect.Type) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			path := below(key, keyOf(&field))

			switch {
			case field.Tag.Get(reloadTag) != "":
				keys = append(keys, path)
			case field.Type.Kind() == reflect.Struct && !isText(field.Type):
				walk(path, field.Type)
			}
		}
	}
	walk("", reflect.TypeFor[Config]())

	return keys
}

// Changes of reloadable keys are applied; changes of others are named and change nothing.
//
// Requirement: OPS-031
func TestChangesAreReloadedOrNeedARestart(t *testing.T) {
	running, err := Load(writeConfig(t, Sample))
	must(t, err)

	text := Sample
	for old, changed := range map[string]string{
		"lookups: 500":         "lookups: 5",
		"level: info":          "level: debug",
		"ports: []":            "ports: [8443]",
		"data: data":           "data: elsewhere",
		"connections: 32768":   "connections: 64",
		"callers: [] # Reload": "callers: [{by: [wpt], queries: 1}] # Reload",
	} {
		text = strings.Replace(text, old, changed, 1)
	}

	next, err := Load(writeConfig(t, text))
	must(t, err)

	// Both are in other folders.
	next.Identity, next.Data = running.Identity, "elsewhere"

	applied, restart := running.Changes(&next)
	slices.Sort(applied)

	want := []string{"gateway.ports", "limits.callers", "limits.lookups", "log.level"}
	if !slices.Equal(applied, want) {
		t.Errorf("reloadable are %v, want %v", applied, want)
	}

	if want := []string{"data", "limits.connections"}; !slices.Equal(restart, want) {
		t.Errorf("a restart is needed for %v, want %v", restart, want)
	}

	merged := running.WithReloadable(&next)
	if merged.Data != running.Data || merged.Limits.Connections != running.Limits.Connections ||
		merged.Limits.Lookups != 5 || !reflect.DeepEqual(merged.Limits.Callers, next.Limits.Callers) ||
		merged.Log.Level != "debug" || merged.Gateway.Ports[0] != 8443 || running.Limits.Lookups != 500 {
		t.Errorf("%+v", merged)
	}

	if applied, restart := merged.Changes(&next); len(applied) > 0 || len(restart) != 2 {
		t.Errorf("after a reload %v and %v differ", applied, restart)
	}
}
