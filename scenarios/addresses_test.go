package scenarios

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A client that knows all nodes of a domain loses nothing when the node that it
// speaks to is killed, and later the leader: every lookup is answered, every
// registration is made, and the one that it keeps lives.
//
// Requirement: FORM-008, AD-001
func TestAClientOfAllNodesLosesNothingWithOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Nodes: 3})
		nodes := m.Domain("alpha.test").Nodes

		var addresses []string
		for _, n := range nodes {
			addresses = append(addresses, n.URL())
		}

		c, err := apiclient.New(apiclient.Config{Addresses: addresses, HTTP: nodes[0].HTTP("/agent/ada"), Attempts: 30})
		must(t, err)

		document := []byte(`{"base":"https://agents.example/","capabilities":[{"name":"work","type":"skill"}]}`)
		keeper := apiclient.Keeper{
			Client: c, Agent: "kept", Document: document, Options: apiclient.RegisterOptions{Lifetime: time.Minute},
			Notify: func(e apiclient.KeepEvent) {
				if e.Kind == apiclient.KeepFailing {
					t.Errorf("the kept registration is not refreshed: %v", e.Err)
				}
			},
		}
		keeping, stop := context.WithCancel(t.Context())
		kept := make(chan error, 1)
		go func() { kept <- keeper.Run(keeping) }()

		const rounds = 90
		for i := range rounds {
			switch i {
			case rounds / 3:
				nodeAt(nodes, c.Address()).Kill()
			case rounds / 2:
				for _, n := range nodes {
					if !n.Lives() {
						n.Restart()
					}
				}
			case rounds * 2 / 3:
				m.Domain("alpha.test").Leader().Kill()
			}

			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)

			name := fmt.Sprint("agent-", i)
			if _, err := c.Register(ctx, name, document, apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
				t.Errorf("registration %d: %v", i, err)
			}

			if _, err := c.Lookup(ctx, apiclient.LookupOptions{Count: 1}); err != nil {
				t.Errorf("lookup %d: %v", i, err)
			}

			cancel()
			time.Sleep(2 * time.Second)
		}

		all := 0

		page, err := c.Lookup(t.Context(), apiclient.LookupOptions{Agent: "agent-*"})
		for ; err == nil && page != nil; page, err = c.Next(t.Context(), page) {
			all += len(page.Agents)
		}

		if err != nil || all != rounds {
			t.Errorf("%d of %d registrations are there: %v", all, rounds, err)
		}

		if r, err := c.Get(t.Context(), "kept"); err != nil || r.Lifetime() != time.Minute ||
			r.ExpiresAt.Before(time.Now()) {
			t.Errorf("the kept registration: %+v, %v", r, err)
		}

		stop()

		if err := <-kept; err != nil {
			t.Error(err)
		}
	})
}

// nodeAt returns the node with that address.
func nodeAt(nodes []*mesh.Node, address string) *mesh.Node {
	for _, n := range nodes {
		if n.URL() == address {
			return n
		}
	}

	return nil
}
