package scenarios

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
)

// trailLine holds the members of a line of audit.jsonl that the test reads.
type trailLine struct {
	Phase, Action, Actor, Owner, Authn, Agent, Revision, Outcome string
	Policies                                                     []string
}

func readTrail(t *testing.T, data string) (lines []trailLine, text string) {
	t.Helper()

	b, err := os.ReadFile(filepath.Join(data, "audit.jsonl"))
	must(t, err)

	for line := range strings.Lines(string(b)) {
		var l trailLine
		if err := json.Unmarshal([]byte(line), &l, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Errorf("%v: %s", err, line)
		}

		lines = append(lines, l)
	}

	return lines, string(b)
}

// Every change has its intent and its outcome in the audit log of the node that received
// the request, also if that node was killed while agents registered there. Contents of
// documents and queries are absent. A node whose audit log can't be written refuses
// changes and answers reads.
//
// Requirement: AD-040, TRUST-012, TRUST-015
func TestNoChangeWithoutItsAuditLine(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "1", "--nodes", "3", "--sample", "0")
	ctx := t.Context()
	victim := p.Domains[0].Nodes[2]
	ada, eve := p.client(0, 2, "agent/ada"), p.client(0, 2, "agent/eve")

	canary := []byte(`{"base":"https://canary-document.example/"}`)
	if _, err := ada.Register(ctx, "kept", canary, apiclient.RegisterOptions{Lifetime: time.Hour}); err != nil {
		t.Fatal(err)
	}

	if _, err := eve.Register(ctx, "kept", canary, apiclient.RegisterOptions{Lifetime: time.Hour}); err == nil {
		t.Fatal("a name was taken twice")
	}

	if _, err := ada.Lookup(ctx, apiclient.LookupOptions{CapName: []string{"canary-query"}}); err != nil {
		t.Fatal(err)
	}

	if _, _, err := eve.Operator().Raft(ctx); err == nil {
		t.Fatal("eve is an operator")
	}

	var w writer
	writing, stop := context.WithCancel(ctx)

	var writers sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		writers.Go(func() { w.run(writing, name, ada) })
	}

	w.more(t, 50)
	p.kill(victim)
	stop()
	writers.Wait()

	lines, text := readTrail(t, victim.Data)
	for _, canary := range []string{"canary", "https://"} {
		if strings.Contains(text, canary) {
			t.Errorf("the trail has %q in it", canary)
		}
	}

	intended := map[string]bool{}

	var ended, taken bool
	for _, l := range lines {
		switch {
		case l.Phase == "intent":
			intended[l.Agent] = true
		case l.Agent == "kept" && l.Outcome == "ok":
			ended = strings.HasSuffix(l.Actor, "/agent/ada") && l.Owner == l.Actor && l.Authn == "x509-svid" &&
				l.Revision != "" && slices.Equal(l.Policies, []string{"dev-agents-and-tools-register"})
		case l.Agent == "kept":
			taken = strings.HasSuffix(l.Actor, "/agent/eve") && strings.HasSuffix(l.Owner, "/agent/ada") &&
				l.Outcome == "agent-name-taken"
		}
	}

	if !ended || !taken {
		t.Errorf("the log has no outcomes: %.2000s", text)
	}

	w.acknowledged.Range(func(agent, _ any) bool {
		if !intended[agent.(string)] {
			t.Errorf("%s was registered and has no intent", agent)
		}

		return true
	})

	trail := filepath.Join(victim.Data, "audit.jsonl")
	must(t, errors.Join(os.Remove(trail), os.Symlink("/dev/full", trail)))

	// It is ready until its first line, which a change elsewhere may ask for at once.
	p.restartUntil(victim, "ready but for its trail", func(n dev.Node) error {
		if err := ready(n); err != nil && !strings.Contains(err.Error(), `"failing":"audit: `) {
			return err
		}

		return nil
	})

	_, err := ada.Register(ctx, "unseen", canary, apiclient.RegisterOptions{Lifetime: time.Hour})

	var refused *apiclient.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable || refused.Code != "unavailable" {
		t.Errorf("without room for the trail: %v", err)
	}

	if _, err := ada.GetFresh(ctx, "kept", apiclient.ReadOptions{Consistency: "linearizable"}); err != nil {
		t.Errorf("reads don't go on: %v", err)
	}

	if _, err := p.client(0, 0, "agent/ada").Get(ctx, "unseen"); err == nil {
		t.Error("something was changed without its line")
	}
}
