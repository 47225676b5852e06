package invoke_test

import (
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/schema"
)

// Requirement: WOA-024
func TestForesee(t *testing.T) {
	d := mustDocument(t, directory.KindAIDIP,
		`{"name": "T", "description": "D", "endpoint": "https://agent.example/a", "operations": [
		{"name": "translate", "description": "Translates.", "inputs": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}, "outputs": {"type": "object", "required": ["text"]}},
		{"name": "free", "description": "Anything.", "inputs": {}, "outputs": {}}]}`)

	e := &directory.Entry{RID: rid(1), Agent: "translator", Document: d,
		Packed: directory.Pack(d, mustProject(t, "translator", d))}
	for _, tc := range []struct {
		name, operation, body string
		at                    string // what is wrong with it; "-" if nothing
		answer, wrong         string
	}{
		{"an input that is right", "translate", `{"text":"a"}`, "-", `{"text":"b"}`, "-"},
		{"an answer that is not", "translate", `{"text":"a"}`, "-", `{"txt":"b"}`, "/text"},
		{"an input that is not", "translate", `{"text":5}`, "/text", "", ""},
		{"one in an envelope", "", `{"operation":"translate","input":{"text":5}}`, "/input/text", "", ""},
		{"a batch", "translate", `[{"text":"a"},{"text":5}]`, "/1/text", "", ""},
		{"a batch's answers", "translate", `[{"text":"a"},{"text":"a"},{"text":"a"}]`, "-",
			`[{"text":"b"},{"error":{"code":"Timeout"}},{}]`, "/2/text"},
		{"too few of them", "translate", `[{"text":"a"},{"text":"a"}]`, "-", `[{"text":"b"}]`, ""},
		{"an operation without schemas", "free", `5`, "-", `6`, "-"},
		{"one that the registration lacks", "sum", `{}`, "-", `{}`, "-"},
		{"no JSON", "translate", `{`, "-", `{}`, "-"},
		{"nothing", "translate", ` `, "-", `{}`, "-"},
	} {
		judge, err := invoke.ContractOf(e).Precheck(tc.operation, []byte(tc.body))

		at, wrong := "-", "-"
		if err == nil {
			if vs := judge([]byte(tc.answer)); len(vs) > 0 {
				wrong = vs[0].Pointer
			}
		} else if told := (*directory.Error)(nil); errors.As(err, &told) && told.Problem == directory.BadInput {
			at, wrong = told.Pointer, tc.wrong
		}

		if at != tc.at || wrong != tc.wrong {
			t.Errorf("%s: %v, at %q; the answer at %q", tc.name, err, at, wrong)
		}
	}
}

// An item of a batch is one input, also where it is an array itself: one output
// answers it.
func TestAnItemIsNoBatch(t *testing.T) {
	o := invoke.Operation{Batch: true, Output: []byte(`{"type": "object", "required": ["sum"]}`)}

	task := invoke.Task{Operation: o, Value: []byte(`[[1,2],[3]]`)}
	for answer, want := range map[string]int{`[{"sum":3},{"sum":3}]`: 0, `[{"sum":3},{}]`: 1} {
		vs, err := task.JudgeOutput([]byte(answer), "", schema.NewBudget(schema.MaxSteps))
		if err != nil || len(vs) != want {
			t.Errorf("%s: %v, %v", answer, vs, err)
		}
	}
}
