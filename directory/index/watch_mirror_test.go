package index_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// over is a context that has ended: Next tells what has happened, and waits for
// nothing.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()

	return ctx
}()

// anID names one registration of the mesh.
type anID struct {
	origin spiffeid.TrustDomain
	rid    directory.RID
}

func idOf(e *directory.Entry) anID { return anID{e.Origin, e.RID} }

// A mirror is what somebody who watches has made of the events.
type mirror struct {
	view    *index.View
	query   index.Query
	visible func(*directory.Entry) bool
	watcher *index.Watcher
	mark    index.ResumeToken
	has     map[anID]*directory.Entry
	resets  int
}

func newMirror(v *index.View, q index.Query, visible func(*directory.Entry) bool) *mirror {
	m := &mirror{view: v, query: q, visible: visible, has: map[anID]*directory.Entry{}}
	m.watcher = v.Watch(q, only(visible), index.ResumeToken{})

	return m
}

// only shows what visible says yes to, as it is.
func only(visible func(*directory.Entry) bool) index.Viewer {
	if visible == nil {
		return nil
	}

	return func(e *directory.Entry) *directory.Entry {
		if visible(e) {
			return e
		}

		return nil
	}
}

// again watches from the last mark on, with another connection as it were.
func (m *mirror) again() {
	m.watcher.Close()
	m.watcher = m.view.Watch(m.query, only(m.visible), m.mark)
}

// apply does what the events say, and reports the first that cannot be.
func (m *mirror) apply(events []index.Event) error {
	for _, e := range events {
		if !e.Resume.IsZero() {
			m.mark = e.Resume
		}

		if e.Kind == index.EventReset {
			clear(m.has)
			m.resets++

			continue
		}

		if e.Kind == index.EventCurrent {
			continue
		}

		id := idOf(e.Entry)

		_, had := m.has[id]
		if had != (e.Kind != index.EventAdded) {
			return fmt.Errorf("%s of %s, which is told already: %v", e.Kind, e.Entry.RID, had)
		}

		if e.Kind == index.EventUpdated && m.has[id].Statement == e.Entry.Statement {
			return fmt.Errorf("%s is updated by a refresh", e.Entry.RID)
		}

		if m.has[id] = e.Entry; e.Kind == index.EventRemoved {
			delete(m.has, id)
		}
	}

	return nil
}

// drain reads all that there is.
func (m *mirror) drain() error {
	for {
		events, err := m.watcher.Next(over)
		switch {
		case errors.Is(err, index.ErrBehind):
			m.mark = index.ResumeToken{}
			m.again()
		case err == nil:
			if err := m.apply(events); err != nil {
				return err
			}
		case !m.watcher.ResumeToken().IsZero():
			return nil
		}
	}
}

// equals compares the mirror with what a lookup answers.
func (m *mirror) equals() error {
	seen := map[anID]bool{}
	for q := m.query; ; {
		q.Count = 97

		page := m.view.Lookup(q, only(m.visible))
		for _, e := range page.Entries {
			id := idOf(e)

			seen[id] = true
			if have := m.has[id]; have == nil || have.Statement != e.Statement || have.Agent != e.Agent {
				return fmt.Errorf("%s %s is missing, or old: %v", e.Origin, e.Agent, have)
			}
		}

		if !page.More {
			break
		}

		q.After = page.Next
	}

	for id, e := range m.has {
		if !seen[id] {
			return fmt.Errorf("%s of %s is no longer there", e.Agent, id.origin)
		}
	}

	return nil
}

func notSecret(e *directory.Entry) bool { return e.Visibility.Mesh }
