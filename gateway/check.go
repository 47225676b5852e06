package gateway

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// Check judges an invocation's input by the schema of the operation that it means, as
// a gateway does that has this registration, for a client that would know before it
// sends (WOA-024). The error is BadRequest, with what is wrong and where. What the
// registration doesn't tell is not judged: it is the gateway's to say. answer judges
// what the gateway answers with.
func Check(e *directory.Entry, in directory.Invocation) (answer func(body []byte) []directory.Violation, err error) {
	p := e.Projection()
	i := &invoking{e: e, p: p, in: in, operations: directory.Operations(e.Document, p)}
	i.in.Body = bytes.TrimSpace(in.Body)
	bodies, batch := []jsontext.Value{i.in.Body}, false
	if len(i.in.Body) > 0 && i.batches() {
		batch = json.Unmarshal(i.in.Body, &bodies) == nil
	}
	works := make([]*work, len(bodies))
	for n, body := range bodies {
		at := ""
		if batch {
			at = itemAt(n)
		}
		if works[n], err = i.foresee(bytes.TrimSpace(body), at); err != nil {
			return nil, err
		}
	}
	return func(body []byte) []directory.Violation { return judgeAnswers(works, batch, body) }, nil
}

// foresee returns what the agent is to do by one body; nil where that can't be told
// here.
func (i *invoking) foresee(body []byte, at string) (*work, error) {
	if len(body) == 0 {
		return nil, nil
	}
	w, err := i.choose(body, at)
	if err != nil {
		return nil, nil
	}
	if err := w.checkInput(); directory.ProblemOf(err) == directory.BadRequest {
		return nil, err
	}
	return w, nil
}

// judgeAnswers returns what is wrong with the first output that breaks its schema. In
// a batch's, what is no output is an error.
func judgeAnswers(works []*work, batch bool, body []byte) []directory.Violation {
	bodies := []jsontext.Value{body}
	if batch && (json.Unmarshal(body, &bodies) != nil || len(bodies) != len(works)) {
		return []directory.Violation{{Detail: "it is no array of as many outputs as there are inputs"}}
	}
	for n, w := range works {
		at := ""
		if batch {
			at = itemAt(n)
			if members, err := directory.ParseObject(bodies[n]); err == nil && len(members) == 1 && members[0].Name == "error" {
				continue
			}
		}
		if w == nil {
			continue
		}
		if vs, err := judge(w.Output, bodies[n], at); err == nil && len(vs) > 0 {
			return vs
		}
	}
	return nil
}
