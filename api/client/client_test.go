package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/wire"
)

// slow is a directory whose every answer takes so long.
type slow time.Duration

func (d slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Duration(d)):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}

	w := httptest.NewRecorder()
	_, _ = io.WriteString(w, `{"agents":[],"candidates":[]}`)

	return w.Result(), nil
}

// A client bears that the directory waits as long as it was asked to, and an agent that
// takes its time; nothing else.
func TestClientWaitsForWhatItAskedToWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := func(takes time.Duration) *Client {
			return NewDirect("https://ad.alpha.test", &http.Client{Transport: slow(takes), Timeout: 30 * time.Second})
		}

		min := []string{"alpha.test=1.2"}
		if _, err := client(59*time.Second).
			Lookup(t.Context(), LookupOptions{ReadOptions: ReadOptions{Min: min, Wait: time.Minute}}); err != nil {
			t.Errorf("asked to wait for 60 s: %v", err)
		}

		if _, err := client(59*time.Second).
			Discover(t.Context(),
				DiscoverOptions{ReadOptions: ReadOptions{Min: min, Wait: 45 * time.Second}}); err != nil {
			t.Errorf("asked to wait for 45 s: %v", err)
		}

		if _, err := client(9*time.Minute).Invoke(t.Context(), "agent", "", []byte(`{}`), InvokeOptions{}); err != nil {
			t.Errorf("an agent that takes 9 minutes: %v", err)
		}

		if _, err := client(31*time.Second).
			Lookup(t.Context(), LookupOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a directory that takes 31 s: %v", err)
		}
	})
}

// What is no directory answers 200 to everything: no change is taken for made, and
// nothing that was looked for for absent.
func TestClientKnowsADirectorysAnswers(t *testing.T) {
	const (
		id  = "spiffe://alpha.test/roster/node/1"
		bob = "spiffe://alpha.test/agent/bob"
	)
	for _, body := range []string{"<html>", "{}", "null", `{"status":"ok"}`} {
		portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body)
		}))

		c, ctx := NewDirect(portal.URL, portal.Client()), t.Context()
		for what, ask := range map[string]func() error{
			"Register": func() error {
				_, err := c.Register(ctx, "x", []byte("{}"), RegisterOptions{})
				return err
			},
			"Refresh":    func() error { _, err := c.Refresh(ctx, "x", 0); return err },
			"Deregister": func() error { _, err := c.Deregister(ctx, "x"); return err },
			"Owned":      func() error { _, _, err := c.Operator().Owned(ctx, bob, ""); return err },
			"EndOwned":   func() error { _, _, err := c.Operator().EndOwned(ctx, bob); return err },
			"Discover":   func() error { _, err := c.Discover(ctx, DiscoverOptions{Query: "x"}); return err },
			"Resolve":    func() error { _, err := c.Resolve(ctx, DiscoverOptions{Query: "x"}); return err },
			"Invite":     func() error { _, _, err := c.Operator().Invite(ctx, "beta.test", 0); return err },
			"Keys":       func() error { _, _, err := c.Operator().Keys(ctx); return err },
			"Policy":     func() error { _, _, err := c.Operator().Policy(ctx); return err },
			"Members":    func() error { _, _, err := c.Operator().Members(ctx); return err },
			"Peers":      func() error { _, _, err := c.Operator().Peers(ctx); return err },
			"Flagged":    func() error { _, _, err := c.Operator().Flagged(ctx); return err },
			"Restore": func() error {
				open := func() io.Reader { return strings.NewReader("x") }
				_, _, err := c.Operator().RestoreSnapshot(ctx, open, 1, RestoreOptions{})

				return err
			},
			"Offer":         func() error { _, _, err := c.Transfers().Offer(ctx, "x", bob, time.Hour); return err },
			"AnswerOffer":   func() error { _, err := c.Transfers().Answer(ctx, "x", true); return err },
			"ForceTransfer": func() error { _, err := c.Transfers().Force(ctx, "x", bob); return err },
			"WithdrawOffer": func() error { _, err := c.Transfers().Withdraw(ctx, "x"); return err },
			"Offers":        func() error { _, _, err := c.Transfers().List(ctx, ""); return err },
			"RefreshMany":   func() error { _, err := c.RefreshMany(ctx, []Renewal{{ID: "x"}}); return err },
			"Get":           func() error { _, err := c.Get(ctx, "x"); return err },
			"Lookup":        func() error { _, err := c.Lookup(ctx, LookupOptions{}); return err },
			"Watch":         func() error { _, err := c.Watch(ctx, LookupOptions{}, ""); return err },
			"Raft":          func() error { _, _, err := c.Operator().Raft(ctx); return err },
			"Transfer":      func() error { return c.Operator().Transfer(ctx, id) },
			"RemoveMember":  func() error { return c.Operator().RemoveMember(ctx, id) },
			"Admit":         func() error { return c.Operator().Admit(ctx, id, false) },
			"Leave":         func() error { return c.Operator().Leave(ctx) },
			"ConfirmClock":  func() error { return c.Operator().ConfirmClock(ctx, time.Hour) },
			"RotateKey":     func() error { return c.Operator().RotateKey(ctx) },
			"RevokeKey":     func() error { return c.Operator().RevokeKey(ctx, "x") },
			"EraseHistory":  func() error { return c.Operator().EraseHistory(ctx, "x") },
			"SetPolicy":     func() error { return c.Operator().SetPolicy(ctx, "", nil) },
			"SetPeering":    func() error { return c.Operator().SetPeering(ctx, Peering{}) },
			"Accept":        func() error { _, _, err := c.Operator().Accept(ctx, "x"); return err },
			"ChangePeering": func() error { return c.Operator().ChangePeering(ctx, "beta.test", wire.PeerRemove) },
			"Redeem":        func() error { _, err := c.Redeem(ctx, "x", Peering{}); return err },
		} {
			if err := ask(); !errors.Is(err, ErrAnswer) {
				t.Errorf("%s, answered with %s: %v", what, body, err)
			}
		}

		portal.Close()
	}
}

// A refusal is a directory's also where a proxy has added a parameter to its type.
func TestClientKnowsAProblemByItsType(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "Application/problem+json; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"type":"https://roster.example/problems/not-found","detail":"There is none."}`)
	}))
	defer node.Close()

	var e *Error
	if _, err := NewDirect(node.URL, node.Client()).Get(t.Context(), "x"); !errors.As(err, &e) ||
		e.Code != "not-found" || e.Detail != "There is none." {
		t.Errorf("%+v", err)
	}
}

// A stream that brings nothing ends, and its error says that it was silent.
func TestClientNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := answering(func(r *http.Request) (*http.Response, error) {
			header := http.Header{"Content-Type": {wire.MediaEvents}}

			return &http.Response{StatusCode: 200, Header: header, Body: silentBody{r.Context().Done()},
				Request: r}, nil
		})
		c := NewDirect("https://ad.alpha.test", &http.Client{Transport: silent, Timeout: time.Second})

		w, err := c.Watch(t.Context(), LookupOptions{}, "")
		must(t, err)
		defer w.Close()

		began := time.Now()
		if _, err := w.Next(); !errors.Is(err, errIdle) || time.Since(began) != idleTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// answering is a transport that a function answers for.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// silentBody is a body in which nothing comes.
type silentBody struct{ until <-chan struct{} }

func (b silentBody) Read([]byte) (int, error) {
	<-b.until
	return 0, net.ErrClosed
}

func (b silentBody) Close() error { return nil }

// What an agent says in a stream is read without the stream's framing.
func TestOutputsOfAStream(t *testing.T) {
	for _, x := range []struct {
		media, body string
		want        []string
		failure     string
	}{
		{"application/json", `{"a": 1}`, []string{`{"a": 1}`}, ""},
		{"text/event-stream", "data: {\"a\":\ndata: 1}\n\n", []string{`{"a":1}`}, ""},
		{"text/event-stream; charset=utf-8", ": hello\n\nid: 1\ndata: one\n\ndata: \"two\"",
			[]string{"one", `"two"`}, ""},
		{"text/event-stream", "", nil, ""},
		{"text/event-stream", "data: 1\n\nevent: error\ndata: {\"error\":{\"message\":\"too late\"}}\n\ndata: 2\n\n",
			[]string{"1"}, "the agent's stream ended with an error: too late"},
		{"text/event-stream", "event: error\ndata: oh\n\n", nil, "the agent's stream ended with an error"},
		{"application/x-ndjson", "{\"a\": 1}\r\n\n2\n", []string{`{"a":1}`, "2"}, ""},
	} {
		reply := &Reply{Status: 200, Header: http.Header{"Content-Type": {x.media}}, Body: []byte(x.body)}

		outputs, err := reply.Outputs()

		var got []string
		for _, output := range outputs {
			got = append(got, string(output))
		}

		if !slices.Equal(got, x.want) {
			t.Errorf("%s %q: %q", x.media, x.body, got)
		}

		if (err != nil) != (x.failure != "") || err != nil && (err.Error() != x.failure || !errors.Is(err, ErrAgent)) {
			t.Errorf("%s %q: the error is %v", x.media, x.body, err)
		}
	}
}
