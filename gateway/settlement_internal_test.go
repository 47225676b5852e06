package gateway

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/limit"
)

// A key is free again only if the agent was not reached, or says itself that it did nothing now. It
// keeps the answer, or the refusal, of an agent that may have acted; without either it stays claimed.
//
// Requirement: AI-012
func TestWhatAKeyKeeps(t *testing.T) {
	answered := &invoke.Reply{Status: 200, Body: []byte("{}")}

	for name, x := range map[string]struct {
		reply            *invoke.Reply
		err              error
		reached, release bool
		kept             directory.Problem // "200" for the answer
	}{
		"answered": {answered, nil, true, false, "200"},
		"streamed": {&invoke.Reply{Stream: http.NoBody}, nil, true, false, ""},
		"timed out": {nil, directory.Refuse(directory.AgentTimeout, "late"), true, false,
			directory.AgentTimeout},
		"timed out before": {nil, directory.Refuse(directory.AgentTimeout, "late"), false, true, ""},
		"failed": {nil, directory.Refuse(directory.AgentFailed, "no"), true, false,
			directory.AgentFailed},
		"refused before":         {nil, directory.Refuse(directory.AgentFailed, "no"), false, true, ""},
		"unavailable":            {nil, directory.Refuse(directory.AgentUnavailable, "no"), true, true, ""},
		"too often":              {nil, directory.Refuse(directory.AgentRateLimited, "no"), true, true, ""},
		"unjudged, node short":   {nil, directory.Refuse(directory.Unavailable, "wait"), true, false, ""},
		"unjudged, share used":   {nil, directory.Refuse(directory.RateLimited, "wait"), true, false, ""},
		"broken off":             {nil, errors.New("reset"), true, false, ""},
		"never begun, by itself": {nil, errors.New("no route"), false, true, ""},
	} {
		claim := directory.Claim{Key: directory.HashOf([]byte("key")), Holder: directory.HashOf([]byte("holder"))}
		got := settlement(claim, x.reply, x.err, x.reached)

		kept := directory.Problem("")
		if got.Answer != nil {
			if kept = got.Answer.Problem; got.Answer.Status == 200 {
				kept = "200"
			}
		}

		if got.Release != x.release || kept != x.kept || got.Key != claim.Key || got.Holder != claim.Holder {
			t.Errorf("%s: released %t, kept %q", name, got.Release, kept)
		}
	}
}

// silentClaims are those of a domain of which no answer comes.
type silentClaims struct {
	claimed []directory.Claim
	settled []directory.Settlement
}

func (c *silentClaims) Claim(_ context.Context, claim directory.Claim) (*directory.StoredAnswer, error) {
	c.claimed = append(c.claimed, claim)

	return nil, directory.Refuse(directory.OutcomeUnknown, "no answer")
}

func (c *silentClaims) Settle(_ context.Context, settlement directory.Settlement) error {
	c.settled = append(c.settled, settlement)

	return nil
}

func (*silentClaims) Spend(context.Context, directory.Hash, int64) error { return nil }

// A claim lasts for longer than the call that it is of may take. If the domain doesn't answer, nothing is
// sent to the agent and the key is given back, because one of the claims may have been applied.
//
// Requirement: AI-012
func TestAKeyIsGivenBackIfNothingWasSent(t *testing.T) {
	cfg := Config{Timeout: 10 * time.Second, StreamTimeout: time.Minute}

	for name, x := range map[string]struct {
		in   invoke.Request
		call time.Duration
	}{
		"a call":   {invoke.Request{Body: []byte(`{}`)}, cfg.Timeout},
		"a stream": {invoke.Request{Body: []byte(`{}`), Stream: true}, cfg.StreamTimeout},
		"a batch":  {invoke.Request{Body: []byte(`[{}]`)}, cfg.StreamTimeout},
	} {
		claims := &silentClaims{}
		cfg.Claims = claims
		i := &invocation{g: &Gateway{cfg: cfg}, e: &directory.Entry{}, in: x.in}

		_, err := i.runOnce(t.Context())
		if directory.ProblemOf(err) != directory.Unavailable || len(claims.settled) != 1 {
			t.Fatalf("%s: %v, settled %+v", name, err, claims.settled)
		}

		claim, settled := claims.claimed[0], claims.settled[0]
		if !settled.Release || settled.Key != claim.Key || settled.Holder != claim.Holder {
			t.Errorf("%s: %+v is settled as %+v", name, claim, settled)
		}

		if lease := time.Duration(claim.Lease) * time.Second; lease <= x.call {
			t.Errorf("%s of at most %s is claimed for %s", name, x.call, lease)
		}
	}
}

// An answer that can't be judged now, because the caller's share or the node's is used up, is
// no failure of the agent's.
//
// Requirement: AI-035
func TestAnUnjudgedAnswerIsNoFailure(t *testing.T) {
	ada := limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/ada"}

	if err := refuseJudgement(limit.ErrShed); directory.ProblemOf(err) != directory.Unavailable {
		t.Errorf("a judgement that waited for too long: %v", err)
	}

	for want, places := range map[directory.Problem]limit.SharesConfig{
		directory.RateLimited: {Places: 2, OwnID: 1}, directory.Unavailable: {Places: 1, OwnID: 2},
	} {
		g := &Gateway{}
		g.judgements.heavy = limit.NewFair(limit.FairConfig{Slots: 2, PerParty: 2, Places: places})

		leave, err := g.judgements.heavy.Enter(t.Context(), ada)
		must(t, err)

		i := &invocation{g: g, in: invoke.Request{Party: ada}}

		err = i.checkOutput(t.Context(), &agentTask{}, &invoke.Reply{Body: make([]byte, lightBytes+1)})

		var told *directory.Error
		if !errors.As(err, &told) || told.Problem != want || told.RetryAfter != 1 {
			t.Errorf("%v, want %s", err, want)
		}

		leave()
	}
}
