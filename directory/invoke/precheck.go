package invoke

import (
	"bytes"
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// Precheck judges an invocation's body by the schema of the operation that it means, as
// a gateway does that has this registration, for a client that would know before it
// sends (WOA-024). operation is the one that the path names, or "". The error is
// BadInput, with what is wrong and where. What the registration doesn't tell is not
// judged: it is the gateway's to say. answer judges what the gateway answers with.
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
		vs, _ := judgeAnswers(tasks, batch, body) // what can't be judged here is not judged
		return vs
	}, nil
}

// ItemAt is where in a batch an item stands, as a JSON pointer.
func ItemAt(n int) string { return "/" + strconv.Itoa(n) }

// precheck returns what the agent is to do by one body; nil where that can't be told
// here.
func (c *Contract) precheck(operation string, body []byte, at string) (*Task, error) {
	if len(body) == 0 {
		return nil, nil
	}

	t, err := c.Choose(operation, body, at)
	if err != nil {
		return nil, nil
	}

	if err := t.CheckInput(); directory.ProblemOf(err) == directory.BadInput {
		return nil, err
	}

	return t, nil
}

// judgeAnswers returns what is wrong with the first output that breaks its schema. In
// a batch's, what is no output is an error. The error says that it can't be found out.
func judgeAnswers(tasks []*Task, batch bool, body []byte) ([]directory.Violation, error) {
	bodies := []jsontext.Value{body}
	if batch && (json.Unmarshal(body, &bodies) != nil || len(bodies) != len(tasks)) {
		return []directory.Violation{{Detail: "it is no array of as many outputs as there are inputs"}}, nil
	}

	var unjudged error
	for n, t := range tasks {
		at := ""
		if batch {
			at = ItemAt(n)
			if members, err := directory.ParseObject(bodies[n]); err == nil && len(members) == 1 &&
				members[0].Name == "error" {
				continue
			}
		}

		if t == nil {
			continue
		}

		vs, err := t.JudgeOutput(bodies[n], at)
		if len(vs) > 0 {
			return vs, nil
		}

		unjudged = cmp.Or(unjudged, err)
	}

	return nil, unjudged
}
