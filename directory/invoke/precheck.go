package invoke

import (
	"bytes"
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/schema"
)

// Precheck judges an invocation's body by the schema of its operation, as a gateway with this
// registration does, before a client sends it (WOA-024). operation is the one that the path
// names, or "". The error is BadInput, with the defect and its place. If the registration
// declares no schema, only the gateway can judge. answer judges the gateway's answer.
func (c *Contract) Precheck(operation string, body []byte) (answer func(body []byte) []directory.Violation, err error) {
	body = bytes.TrimSpace(body)

	bodies, batch := []jsontext.Value{body}, false
	if len(body) > 0 && c.Batches(operation, body) {
		batch = json.Unmarshal(body, &bodies) == nil
	}

	tasks := make([]*Task, len(bodies))
	for n, body := range bodies {
		at := ""
		if batch {
			at = ItemAt(n)
		}

		if tasks[n], err = c.precheck(operation, bytes.TrimSpace(body), at); err != nil {
			return nil, err
		}
	}

	return func(body []byte) []directory.Violation {
		// An answer that can't be judged here passes.
		violations, _ := judgeAnswers(tasks, batch, body, schema.NewBudget(schema.MaxSteps))

		return violations
	}, nil
}

// ItemAt is where in a batch an item stands, as a JSON pointer.
func ItemAt(n int) string { return "/" + strconv.Itoa(n) }

// precheck returns the task of one body, or nil if it cannot be determined here.
func (c *Contract) precheck(operation string, body []byte, at string) (*Task, error) {
	if len(body) == 0 {
		return nil, nil
	}

	t, err := c.Choose(operation, body, at)
	if err != nil {
		// The gateway may know operations that the registration does not have, so it judges.
		return nil, nil
	}

	if err := t.CheckInput(schema.NewBudget(schema.MaxSteps)); directory.ProblemOf(err) == directory.BadInput {
		return nil, err
	}

	return t, nil
}

// judgeAnswers returns the violations in the first output that breaks its schema. In a batch,
// items that report an error are skipped. The error is not nil if the outputs cannot be judged.
func judgeAnswers(tasks []*Task, batch bool, body []byte, budget *schema.Budget) ([]directory.Violation, error) {
	bodies := []jsontext.Value{body}
	if batch && (json.Unmarshal(body, &bodies) != nil || len(bodies) != len(tasks)) {
		return []directory.Violation{{Detail: "it is no array of as many outputs as there are inputs"}}, nil
	}

	var unjudged error
	for n, t := range tasks {
		at := ""
		if batch {
			at = ItemAt(n)

			// An item that failed has an error in place of its output.
			if members, err := directory.ParseObject(bodies[n]); err == nil && len(members) == 1 &&
				members[0].Name == "error" {
				continue
			}
		}

		if t == nil {
			continue
		}

		vs, err := t.JudgeOutput(bodies[n], at, budget)
		if len(vs) > 0 {
			return vs, nil
		}

		unjudged = cmp.Or(unjudged, err)
	}

	return nil, unjudged
}
