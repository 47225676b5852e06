package invoke_test

import (
	"testing"

	"github.com/roster-mesh/roster/directory/invoke"
)

// A text is the one string argument of an operation. notes/users.md: `invoke w hello`.
//
// Requirement: AI-032
func TestATextIsTheOneStringArgument(t *testing.T) {
	for _, c := range []struct{ input, value, want string }{
		{``, `"hi"`, `"hi"`},
		{`{}`, `"hi"`, `"hi"`},
		{`{"type":"string"}`, `"hi"`, `"hi"`},
		{`{"type":["string","object"],"properties":{"a":{"type":"string"}}}`, `"hi"`, `"hi"`},
		{`{"type":"object","properties":{"a":{"type":"string"}}}`, `"h\"i"`, `{"a":"h\"i"}`},
		{`{"type":"object","properties":{"a":{"type":["string","null"]},"n":{"type":"number"}}}`, `"hi"`, `{"a":"hi"}`},
		{`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["b"]}`, `"hi"`,
			`{"b":"hi"}`},
		{`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, `"hi"`, `"hi"`},
		{`{"type":"object","properties":{"a":{"type":"string"},"b":true},"required":["a","b"]}`, `"hi"`, `"hi"`},
		{`{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}`, `"hi"`, `"hi"`},
		{`{"type":"object","properties":{"a":{"type":"string"}}}`, `{"a":1}`, `{"a":1}`},
		{`{"type":"object","properties":5}`, `"hi"`, `"hi"`},
	} {
		task := invoke.Task{Operation: invoke.Operation{Input: []byte(c.input)}, Value: []byte(c.value)}
		if task.TakeText(); string(task.Value) != c.want {
			t.Errorf("%s by %s is %s, want %s", c.value, c.input, task.Value, c.want)
		}
	}
}
