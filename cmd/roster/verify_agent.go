package main

import (
	"context"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
)

// A compared is one member of a registration that was compared with what its agent
// says.
type compared struct {
	Member     string `json:"member"`
	Registered string `json:"registered"`
	Said       string `json:"said"`
}

// verifyAgent fetches what an agent says of itself at its base, from here, and
// compares it with its registration (jimenez 8.5, A.2).
func (a *app) verifyAgent(ctx context.Context, f *fetching, id, origin string) error {
	r, c, err := a.contentsOf(ctx, id, origin)
	if err != nil {
		return err
	}
	p, err := kinds.Reproject(c.Agent, c.Document)
	if err != nil {
		return err
	}
	owner, _ := directory.ParseIdentity(r.Provenance.Registrant) // nobody where it is not shown
	source, ok := probe.SourceOf(owner, c.Document, p)
	if !ok {
		return failed(exitFailed, "%s can't be asked what it is", id).because("Its registration names no https base at which A2A, MCP or Web of Agents describe it: it is at %s.", p.Base)
	}
	g, err := f.guard()
	if err != nil {
		return err
	}
	defer g.Close()
	said, err := probe.Fetch(ctx, g, source, "")
	var differences []probe.Difference
	at := source.URL
	if err == nil {
		at = said.At
		differences, err = said.Compare(c.Agent, c.Document, p, !c.Redacted)
	}
	verdict := probe.Judge(differences, err)
	if verdict.State == directory.ProbeUnreachable {
		fail := failed(exitUnavailable, "what %s says of itself can't be had at %s: %w", id, at, err)
		if gateway.RuleOf(err) == gateway.RuleAddress {
			fail = fail.because("Only public addresses are asked; for a test on this machine there is --insecure-loopback.")
		}
		return fail
	}
	t, found := table{head: []string{"MEMBER", "REGISTERED", "SAID"}}, []compared{}
	for _, d := range differences {
		found = append(found, compared(d))
		t.rows = append(t.rows, []string{d.Member, d.Registered, d.Said})
	}
	if err := a.printOwn(map[string]any{"agent": c.Agent, "rid": r.RID(), "at": at, "state": verdict.State, "differences": found}, "differences", t); err != nil {
		return err
	}
	if len(found) > 0 {
		return failed(exitFailed, "%s is not what it is registered as: at %s it says otherwise", id, at)
	}
	a.note("%s says of itself, at %s, what it is registered as.", id, at)
	return nil
}
