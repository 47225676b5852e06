package invoke

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// TakeText makes an object of an input that is a JSON string, if the operation's schema is for
// an object with one argument for a text: the only required one, or the only one. Other inputs
// stay as they are.
func (t *Task) TakeText() {
	if len(t.Value) == 0 || t.Value[0] != '"' {
		return
	}

	if name := textArgument(t.Input); name != "" {
		t.Value = append(strictjson.AppendRaw([]byte{'{'}, name, t.Value), '}')
	}
}

// textArgument returns the member of an object for which a text is meant; "" if there is
// none, several, or the schema is for a text itself.
func textArgument(schema []byte) string {
	var input struct {
		Type       jsontext.Value            `json:"type"`
		Properties map[string]jsontext.Value `json:"properties"`
		Required   []string                  `json:"required"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &input) != nil || isText(input.Type) {
		return ""
	}

	var texts []string

	for name, property := range input.Properties {
		var is struct {
			Type jsontext.Value `json:"type"`
		}
		if json.Unmarshal(property, &is) == nil && isText(is.Type) {
			texts = append(texts, name)
		}
	}

	switch {
	case len(input.Required) == 1 && slices.Contains(texts, input.Required[0]):
		return input.Required[0]
	case len(input.Required) == 0 && len(texts) == 1:
		return texts[0]
	}

	return ""
}

// isText reports whether a schema's type is string, or string among others.
func isText(is jsontext.Value) bool {
	var names []string
	if json.Unmarshal(is, &names) == nil {
		return slices.Contains(names, "string")
	}

	return string(is) == `"string"`
}
