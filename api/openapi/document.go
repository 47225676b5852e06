package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"
)

// Dialect is the dialect of all schemas.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// schemaRef is the beginning of references to schemas in the document.
const schemaRef = "#/components/schemas/"

// An Object is a JSON object of the document or of a schema. Objects that this package
// returns are copies.
type Object = map[string]any

// A Document is the description of the API, as it is written.
type Document struct{ root Object }

// Parse reads a description. It panics if that is invalid, since it is a part of the
// program.
func Parse(text []byte) *Document {
	var root Object
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}

	return &Document{root: root}
}

// at returns the object at a path of member names, which must exist.
func at(object Object, path ...string) Object {
	for _, name := range path {
		next, ok := object[name].(Object)
		if !ok {
			panic(fmt.Sprintf("openapi.yaml: %s is not an object", strings.Join(path, ".")))
		}

		object = next
	}

	return object
}

// A Parameter is a parameter of an operation.
type Parameter struct {
	Name, Description string
	Schema            Object
}

// Parameter returns the parameter with a key in the document's components.
func (d *Document) Parameter(key string) Parameter {
	return parameterOf(at(d.root, "components", "parameters", key))
}

func parameterOf(object Object) Parameter {
	name, _ := object["name"].(string)
	description, _ := object["description"].(string)

	return Parameter{Name: name, Description: description, Schema: clone(at(object, "schema"), keepRefs)}
}

// Schema returns the schema of a name, with references that ref makes.
func (d *Document) Schema(name string, ref func(name string) string) Object {
	return clone(at(d.root, "components", "schemas", name), ref)
}

// SchemaNames returns the names of all schemas, sorted.
func (d *Document) SchemaNames() []string {
	return slices.Sorted(maps.Keys(at(d.root, "components", "schemas")))
}

// SchemaFiles returns the text of every schema as a document of its own, by name. base is
// the public URL that they are served at.
func (d *Document) SchemaFiles(base string) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range d.SchemaNames() {
		schema := d.Schema(name, func(other string) string { return other + ".json" })
		schema["$schema"] = Dialect
		schema["$id"] = base + "/schemas/" + name + ".json"
		files[name] = append(Marshal(schema), '\n')
	}

	return files
}

// Marshal returns a part of the document as JSON with sorted members.
func Marshal(part any) []byte {
	data, err := json.Marshal(part, json.Deterministic(true))
	if err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}

	return data
}

func keepRefs(name string) string { return schemaRef + name }

// clone returns a deep copy of an object, with the references to schemas that ref makes.
func clone(o Object, ref func(name string) string) Object { return cloneAny(o, ref).(Object) }

func cloneAny(v any, ref func(name string) string) any {
	switch v := v.(type) {
	case Object:
		object := make(Object, len(v))
		for name, value := range v {
			object[name] = cloneAny(value, ref)
		}

		if target, ok := object["$ref"].(string); ok {
			if name, found := strings.CutPrefix(target, schemaRef); found {
				object["$ref"] = ref(name)
			}
		}

		return object
	case []any:
		c := make([]any, len(v))
		for i, value := range v {
			c[i] = cloneAny(value, ref)
		}

		return c
	default:
		return v
	}
}

// QueryParameters returns the parameters that the query of an operation may have, in the
// order of the document.
func (d *Document) QueryParameters(method, path string) []Parameter {
	var all []Parameter

	for _, object := range d.queryObjects(method, path) {
		all = append(all, parameterOf(object))
	}

	return all
}

// QueryNames returns the names of QueryParameters.
func (d *Document) QueryNames(method, path string) []string {
	var names []string

	for _, object := range d.queryObjects(method, path) {
		names = append(names, object["name"].(string))
	}

	return names
}

// queryObjects returns the parameters as the document has them, there or in its components.
func (d *Document) queryObjects(method, path string) (all []Object) {
	listed, _ := at(d.root, "paths", path, method)["parameters"].([]any)
	for _, item := range listed {
		object := item.(Object)
		if reference, ok := object["$ref"].(string); ok {
			object = at(d.root, "components", "parameters", strings.TrimPrefix(reference, "#/components/parameters/"))
		}

		if object["in"] == "query" {
			all = append(all, object)
		}
	}

	return all
}
