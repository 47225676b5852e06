package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit"
)

// An agent keeps its limits, and what is used of them, while its registration names the same; agents that are
// not called make room for others.
//
// Requirement: AI-040
func TestLimitsFollowRegistrations(t *testing.T) {
	entry := func(rid int64, statement uint64, limits string) *directory.Entry {
		doc, err := directory.ParseDocument(directory.KindAIDIP, []byte(`{"name":"T","description":"D",
			"endpoint":"https://agents.example.com/a","rate_limit":`+limits+`}`))
		must(t, err)

		return &directory.Entry{RID: directory.NewRID(rid, [10]byte{}), Statement: statement, Document: doc}
	}

	var limits rateLimits
	limits.init(DefaultConcurrent, DefaultPerSecond)

	first := limits.of(entry(1, 1, `{"max_concurrent":2}`))
	for statement := range uint64(3) {
		got := limits.of(entry(1, statement+1, `{"max_concurrent":2}`))
		if got != first || got.revision != statement+1 {
			t.Errorf("statement %d: other limits, of statement %d", statement+1, got.revision)
		}
	}

	fewer := limits.of(entry(1, 4, `{"max_concurrent":1}`))
	slower := limits.of(entry(1, 5, `{"max_concurrent":1,"requests_per_second":1}`))

	if fewer == first || fewer.concurrent != 1 || slower == fewer || slower.perSecond != 1 || slower.revision != 5 {
		t.Errorf("limits that changed: %+v, %+v", fewer, slower)
	}

	// One has used up its rate, and the other has a call under way.
	ada := limit.Caller{Kind: limit.Own, ID: "ada"}

	leave, err := limits.enter(t.Context(), entry(1, 5, "{}"), ada, false)
	must(t, err)
	leave()

	limits.perSecond = 1e9
	called := limits.of(entry(-1, 1, "{}"))

	leave, err = limits.enter(t.Context(), entry(-1, 1, "{}"), ada, false)
	must(t, err)
	defer leave()

	other := entry(2, 1, "{}")
	for n := range int64(maxLimitedAgents + 8) {
		other.RID = directory.NewRID(n+2, [10]byte{})
		limits.of(other)
	}

	if len(limits.all) > maxLimitedAgents || limits.of(entry(1, 5, "{}")) != slower ||
		limits.of(entry(-1, 1, "{}")) != called {
		t.Errorf("%d agents have limits; one whose rate is used up, or that is called, has others", len(limits.all))
	}
}

// A gateway that closes waits for its calls, until its bound; none begins afterwards.
func TestCallsEndBeforeTheGateway(t *testing.T) {
	var calls lifecycle
	calls.init()

	call, err := calls.enter(t.Context())
	must(t, err)

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if err := calls.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("closed, with a call under way: %v", err)
	}

	if _, err := calls.enter(t.Context()); !errors.Is(err, errStopping) {
		t.Errorf("a call after it: %v", err)
	}

	call.leave()
	call.leave()

	if err := calls.Close(t.Context()); err != nil || call.ctx.Err() == nil {
		t.Errorf("without one: %v; its context: %v", err, call.ctx.Err())
	}
}

// A permission is in force before the connections by the former one are closed: a request in between would
// leave one open.
//
// Requirement: WOA-018
func TestAPermissionIsInForceBeforeConnectionsClose(t *testing.T) {
	guard := NewGuard(GuardConfig{AnyBundle: true})
	replaced := make(chan struct{})

	guard.mu.Lock() // so that no connection is closed

	go func() {
		defer close(replaced)
		guard.Permit(Permission{})
	}()

	again := time.Tick(time.Millisecond)
	for end := time.Now().Add(5 * time.Second); guard.permitted.Load().AnyBundle; <-again {
		if time.Now().After(end) {
			t.Error("the former permission is in force until the connections are closed")
			break
		}
	}

	guard.mu.Unlock()
	<-replaced
}

// The connections of so many registrants are kept apart.
func TestTransportsAreBounded(t *testing.T) {
	guard := NewGuard(GuardConfig{})

	for n := range maxTransports + 8 {
		to := Target{Registrant: spiffeid.RequireFromString(fmt.Sprintf("spiffe://alpha.test/agent/%d", n))}
		if first := guard.transport(to); guard.transport(to) != first {
			t.Fatal("a registrant's connections are not kept")
		}
	}

	if len(guard.transports) != maxTransports {
		t.Errorf("those of %d are kept", len(guard.transports))
	}
}
