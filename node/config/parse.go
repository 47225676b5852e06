package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/directory"
)

const maxFile = 4 << 20 // bytes of a configuration

// decode reads a document strictly, and reports every key that can't be read.
func (c *Config) decode(text []byte, r *report) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))

	var document yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		r.syntax(err)
		return
	}

	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		r.errors = append(r.errors, Error{second.Line, "",
			"the file has more than one document: remove the text from the first --- on"})

		return
	}

	r.lines[""] = 1
	if len(document.Content) > 0 {
		r.read("", document.Content[0], reflect.ValueOf(c).Elem())
	}
}

// yamlLine matches the parser's error, which begins with the line.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntax adds the parser's error for a text that is not YAML.
func (r *report) syntax(err error) {
	parts := yamlLine.FindStringSubmatch(err.Error())
	if parts == nil {
		r.check("", err)
		return
	}

	line, _ := strconv.Atoi(parts[1])
	r.errors = append(r.errors, Error{line, "", directory.HideUserinfo(parts[2])})
}

// read sets a field from a node of the document. Null keeps the default.
func (r *report) read(key string, node *yaml.Node, field reflect.Value) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}

	if key != "" {
		r.lines[key] = node.Line
	}

	typ := field.Type()

	switch {
	case node.Tag == "!!null":
	case typ.Kind() == reflect.Pointer:
		// A pointer tells an absent key from one with the zero value.
		value := reflect.New(typ.Elem())
		r.read(key, node, value.Elem())
		field.Set(value)
	case typ.Kind() == reflect.Struct && !isText(typ):
		r.readStruct(key, node, field)
	case typ.Kind() == reflect.Slice:
		r.readList(key, node, field)
	default:
		if err := node.Decode(field.Addr().Interface()); err != nil {
			r.addf(key, "%s", unreadable(typ, node, err))
		}
	}
}

// isText reports whether a type reads itself from a text.
func isText(typ reflect.Type) bool {
	return reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func (r *report) readStruct(key string, node *yaml.Node, into reflect.Value) {
	if node.Kind != yaml.MappingNode {
		r.addf(key, "must be a mapping of keys, got %.40q", node.Value)
		return
	}

	fields := fieldsOf(into.Type())
	seen := map[string]bool{}

	for i := 0; i+1 < len(node.Content); i += 2 {
		name := node.Content[i].Value
		path := below(key, name)
		index, known := fields[name]

		switch {
		case !known:
			r.lines[path] = node.Content[i].Line
			r.addf(path, "unknown key%s", nearest(name, fields))
		case seen[name]:
			r.errors = append(r.errors, Error{node.Content[i].Line, path, "the key occurs twice"})
		default:
			r.read(path, node.Content[i+1], into.Field(index))

			// Errors name the line of the key. The call above has noted that of the value.
			r.lines[path] = node.Content[i].Line
		}

		seen[name] = true
	}
}

func (r *report) readList(key string, node *yaml.Node, into reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		r.addf(key, "must be a list, got %.40q", node.Value)
		return
	}

	list := reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		r.read(fmt.Sprintf("%s[%d]", key, i), item, list.Index(i))
	}

	into.Set(list)
}

// below returns the path of a key inside another; the outermost is empty.
func below(key, name string) string {
	if key == "" {
		return name
	}

	return key + "." + name
}

// fieldsOf returns the index of each field of a struct by its key.
func fieldsOf(typ reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range typ.NumField() {
		field := typ.Field(i)
		fields[keyOf(&field)] = i
	}

	return fields
}

// unreadable returns the text for a value that its type can't have.
func unreadable(typ reflect.Type, node *yaml.Node, err error) string {
	if isText(typ) {
		return fmt.Sprintf("%v, got %.80q", err, node.Value)
	}

	must := "a text"

	switch typ.Kind() {
	case reflect.Bool:
		must = "true or false"
	case reflect.Float64:
		must = "a number"
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		must = "a whole number of 0 or more"
	case reflect.Int, reflect.Int64:
		must = "a whole number"
	case reflect.Map:
		must = "a mapping of names to lists"
	}

	if typ == reflect.TypeFor[time.Duration]() {
		must = "a duration such as 90s or 24h"
	}

	if node.Kind != yaml.ScalarNode {
		return fmt.Sprintf("must be %s", must)
	}

	return fmt.Sprintf("must be %s, got %.80q", must, node.Value)
}

// nearest suggests the known key that differs in few letters; nothing if there is none.
func nearest(name string, fields map[string]int) string {
	best, least := "", max(2, len(name)/3)+1

	for known := range fields {
		distance := editDistance(name, known)
		if distance < least || distance == least && known < best {
			best, least = known, distance
		}
	}

	if best == "" {
		return ""
	}

	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance is how many letters are inserted, removed or replaced from one word to
// another (Levenshtein).
func editDistance(from, to string) int {
	row := make([]int, len(to)+1)
	for i := range row {
		row[i] = i
	}

	for i := range len(from) {
		diagonal := row[0]
		row[0] = i + 1

		// diagonal is the distance between the two prefixes without their last letters.
		for j := range len(to) {
			replaced := diagonal
			if from[i] != to[j] {
				replaced++
			}

			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}

	return row[len(to)]
}
