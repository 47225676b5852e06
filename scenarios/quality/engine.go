package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
)

var domain = spiffeid.RequireTrustDomainFromString("alpha.test")

// An engine is the finder over records, each of an owner of its own unless it
// says otherwise.
type engine struct {
	view   *index.View
	finder *discovery.Finder
	ids    map[directory.RID]string
}

func newEngine(records []record) (*engine, error) {
	e := &engine{view: index.NewView(domain), ids: map[directory.RID]string{}}

	var err error
	if e.finder, err = discovery.New(discovery.Config{View: e.view}); err != nil {
		return nil, err
	}

	for i := range records {
		e.add(&records[i], fmt.Sprintf("owner-%d", i))
	}

	return e, e.finder.CatchUp(context.Background())
}

// add registers a record of an owner.
func (e *engine) add(r *record, owner string) directory.RID {
	n := len(e.ids)
	rid := directory.NewRID(int64(n), [10]byte{})

	projection := &directory.Projection{Name: r.Name, Description: r.Description, Tags: r.Tags, Status: "active"}
	for _, text := range r.Examples {
		projection.Examples = append(projection.Examples, directory.Example{Text: text})
	}

	id, err := spiffeid.FromPath(domain, "/agent/"+owner)
	if err != nil {
		panic(err) // the owners are ours
	}

	now := time.Now().UnixMilli()
	e.view.Own().Put(&directory.Entry{
		Origin: domain, RID: rid, Agent: r.ID, Owner: directory.IdentityOf(id),
		Packed:   directory.Pack(directory.Document{}, projection),
		Lifetime: directory.DefaultLifetime, RegisteredAt: now, UpdatedAt: now,
		ExpiresAt: now + 1000*directory.DefaultLifetime,
		Created:   uint64(n) + 1,
	})
	e.ids[rid] = r.ID

	return rid
}

func (e *engine) find(text string, limit int) []discovery.Candidate {
	r := &discovery.Request{Query: text, Limit: limit, Constraints: discovery.Constraints{MaxAge: -1}}

	res, err := e.finder.Find(context.Background(), discovery.Query{Request: r})
	if err != nil {
		panic(err) // the context does not end, and nothing is strict
	}

	return res.Candidates
}

func (e *engine) rank(text string, limit int) []string {
	var ids []string
	for _, c := range e.find(text, limit) {
		ids = append(ids, e.ids[c.Entry.RID])
	}

	return ids
}

func (e *engine) close() { e.finder.Close() }
