package mesh

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A Listing is one node's response to a lookup of everything, by rid.
type Listing map[string]apiclient.Item

// Lookup asks one node for all agents of all domains, and judges its answer.
// Where the node's domain has lost its leader the answer is as fresh as it is.
func (m *Mesh) Lookup(n *Node) (Listing, error) {
	ctx, cancel := request()
	defer cancel()
	asked := time.Now()
	client := n.client(reader)
	all := Listing{}

	page, err := client.Lookup(ctx, apiclient.LookupOptions{ReadOptions: apiclient.ReadOptions{Consistency: "stale"}})
	for ; page != nil && err == nil; page, err = client.Next(ctx, page) {
		for _, r := range page.Agents {
			all[r.RID()] = r
		}
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}

	m.model.judge(m.T, n, asked, all)

	return all, nil
}

// Judge looks up everything at every living node, and fails the test if one doesn't
// answer or breaks a promise.
func (m *Mesh) Judge() {
	m.T.Helper()

	for _, n := range m.Living() {
		if _, err := m.Lookup(n); err != nil {
			m.T.Error(err)
		}
	}
}

// whole checks that an item has complete provenance.
func whole(n *Node, r apiclient.Item) error {
	provenance := r.Provenance

	state := "verified"
	if provenance.Authority == n.Domain.Name {
		state = "local"
	}

	switch {
	case provenance.ExpiresAt.IsZero():
		return errors.New("no deadline")
	case provenance.Authority == "", provenance.Href == "", provenance.Revision == 0:
		return fmt.Errorf("authority %q, href %q, revision %d", provenance.Authority, provenance.Href,
			provenance.Revision)
	case provenance.Verification.State != state:
		return fmt.Errorf("verification is %q", provenance.Verification.State)
	}

	return nil
}

// Seen returns nil when every living node shows all of these agents.
func (m *Mesh) Seen(agents ...*Agent) error { return m.shown(true, agents) }

// Gone returns nil when no living node shows any of these agents.
func (m *Mesh) Gone(agents ...*Agent) error { return m.shown(false, agents) }

func (m *Mesh) shown(want bool, agents []*Agent) error {
	var wrong []error
	for _, n := range m.Living() {
		all, err := m.Lookup(n)
		if err != nil {
			return err
		}

		for _, a := range agents {
			if _, shown := all[a.RID]; shown != want {
				wrong = append(wrong, fmt.Errorf("%s shows %s of %s: %v", n.Name, a.Name, a.Domain, shown))
			}
		}
	}

	return errors.Join(wrong...)
}

// Equal returns nil when all living nodes show the same agents, with equal
// revisions.
func (m *Mesh) Equal() error {
	var first map[string]uint64
	for _, n := range m.Living() {
		all, err := m.Lookup(n)
		if err != nil {
			return err
		}

		view := map[string]uint64{}
		for rid, r := range all {
			view[rid] = r.Provenance.Revision
		}

		if first == nil {
			first = view
		} else if !maps.Equal(first, view) {
			return fmt.Errorf("%s shows %d agents, others %d: %v", n.Name, len(view), len(first),
				slices.Sorted(maps.Keys(view)))
		}
	}

	return nil
}
