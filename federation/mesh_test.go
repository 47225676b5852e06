package federation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
)

// eventually waits for a condition within a bubble's virtual time.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()

	for end := time.Now().Add(within); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}

		time.Sleep(10 * time.Millisecond)
	}
}

// run runs a node's loops until the test ends.
func (s *site) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	m := s.Mesh
	go func() { done <- m.Run(ctx) }()

	return func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Requirement: MESH-001, MESH-007
func TestARegistrationCrossesBySubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a, b := newModel(alpha, beta), newModel(beta, alpha)
		sa := w.open(t, t.TempDir(), 1, a, active(beta, 1))
		sb := w.open(t, t.TempDir(), 1, b, active(alpha, 1))
		a.listKeys(nil, sa.keys)
		b.listKeys(nil, sb.keys)
		defer sa.run(t)()
		defer sb.run(t)()
		synctest.Wait()
		rid := a.register("translator", 600)
		eventually(t, time.Second, "beta shows alpha's agent", func() bool { return len(sb.shown(alpha)) == 1 })

		e := sb.shown(alpha)[rid]
		if e.Origin != alpha || e.Agent != "translator" || e.Projection() == nil || e.Received.From != alpha ||
			e.Received.Key != signed.KeyID(sa.keys.public()) {
			t.Fatalf("%+v %+v", e, e.Received)
		}

		if want := a.regs[rid].announced; e.ExpiresAt != want.Deadline*1000 || e.Revision != want.Revision ||
			e.Lifetime != 600 {
			t.Fatalf("%+v, announced %+v", e, want)
		}

		if p, ok := sb.Position(alpha); !ok || p != a.Position() {
			t.Fatalf("position %v, %v", p, ok)
		}
	})
}
