package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/trust/audit"
)

var nodeOne = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1")

// trailServer is a node with an audit log of 30 lines in several files.
func trailServer(t *testing.T, change ...func(*Config)) (*audit.Log, *Server) {
	t.Helper()

	trail, err := audit.Open(filepath.Join(t.TempDir(), "audit.jsonl"),
		audit.Options{Domain: alpha, Size: 2000, Files: 100, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, trail.Close()) })

	for i := range 30 {
		who := identity([]string{"/agent/ada", "/agent/bob"}[i%2])

		done, err := trail.Intend(directory.AuditEvent{Action: "peer.set", Actor: who, Agent: fmt.Sprint("agent-", i)})
		must(t, err)
		done(directory.AuditEvent{Action: "peer.set", Actor: who, Agent: fmt.Sprint("agent-", i), Outcome: "ok"})
	}

	return trail, newTestServer(t, func(cfg *Config) {
		cfg.Trail, cfg.Node = trail, nodeOne

		for _, also := range change {
			also(cfg)
		}
	})
}

// Who may operate reads the log page by page, chained and unchanged, and selects by who and
// what. Others are refused, and so is a parameter that is not known.
//
// Requirement: SEC-020
func TestAuditorsReadTheTrail(t *testing.T) {
	_, s := trailServer(t)
	c := newTestClient(t, s, "/ops/operator").Operator()

	var verifier audit.Verifier

	lines, after := 0, uint64(0)
	for more := true; more; {
		page, _, err := c.Audit(t.Context(), apiclient.AuditOptions{After: after, Limit: 7})
		must(t, err)

		for _, line := range page.Lines {
			if fault := verifier.Line(line); fault != nil {
				t.Error(fault)
			}

			lines++
		}

		number, head := verifier.Head()
		if number != page.Last || head.String() != page.Head || page.Node != nodeOne.String() {
			t.Errorf("the page of %s ends at %d %s, want %d %s", page.Node, page.Last, page.Head, number, head)
		}

		after, more = page.Last, page.More
	}

	if lines < 60 || verifier.Begin() != nil {
		t.Errorf("%d lines of at least 60", lines)
	}

	for want, opt := range map[int]apiclient.AuditOptions{
		30: {Who: "agent/ada"},
		60: {What: "peer"},
		2:  {What: "agent-17"},
		0:  {Who: "agent/ada", What: "agent-17"},
	} {
		page, _, err := c.Audit(t.Context(), opt)
		must(t, err)

		if len(page.Lines) != want {
			t.Errorf("%+v: %d lines, want %d", opt, len(page.Lines), want)
		}
	}

	wantStatus(t, ask(t, s, "/agent/ada", "GET", wire.AuditPath, ""), 403)
	wantStatus(t, ask(t, s, "", "GET", wire.AuditPath, ""), 401)
	wantStatus(t, ask(t, s, "/ops/operator", "GET", wire.AuditPath+"?whom=ada", ""), 400)
	wantStatus(t, ask(t, s, "/ops/operator", "GET", wire.AuditPath+"?limit=1001", ""), 400)
}

// A follower gets lines as they are written, and the reason when the node stops.
//
// Requirement: SEC-020
func TestAuditorsFollowTheTrail(t *testing.T) {
	trail, s := trailServer(t)

	c := newTestClient(t, s, "/ops/operator").Operator()
	stream, err := c.FollowAudit(t.Context(), apiclient.AuditOptions{Who: "agent/eve"})
	must(t, err)

	defer func() { must(t, stream.Close()) }()

	_, err = trail.Intend(directory.AuditEvent{Action: "register", Actor: identity("/agent/eve"), Agent: "seen"})
	must(t, err)

	event, err := stream.Next()
	must(t, err)

	if event.Kind != "line" || !strings.Contains(string(event.Data), `"agent":"seen"`) {
		t.Errorf("got %s %s", event.Kind, event.Data)
	}

	s.Drain()

	if event, err = stream.Next(); err != nil || event.Kind != "end" || event.Why != "the node is stopping" {
		t.Errorf("the end is %+v, %v", event, err)
	}

	if _, err := stream.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A stream ends with the certificate of its follower, and its place is free again: more may follow one after
// the other than at once.
//
// Requirement: SEC-020
func TestFollowersEndWithTheirCredentials(t *testing.T) {
	_, s := trailServer(t, func(cfg *Config) {
		identify := cfg.Identify
		cfg.Identify = func(r *http.Request) (request.Credential, error) {
			credential, err := identify(r)
			credential.Until = time.Now().Add(20 * time.Millisecond)

			return credential, err
		}
	})

	c := newTestClient(t, s, "/ops/operator").Operator()

	// The bound has a stream that goes on fail the test, and not outlast it.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for range 20 {
		stream, err := c.FollowAudit(ctx, apiclient.AuditOptions{Who: "agent/eve"})
		must(t, err)

		event, err := stream.Next()
		if err != nil || event.Kind != "end" || event.Why != "the credential has expired" {
			t.Fatalf("the end is %+v, %v", event, err)
		}

		must(t, stream.Close())
	}
}

var must = directorytest.Must
