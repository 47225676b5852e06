package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// Sessions are kept for a while, and for no more bytes than there is room for; those
// that are not are closed.
func TestKeptSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &sessions{}
		key := func(agent string) sessionKey {
			return sessionKey{agent: agentKey{origin: spiffeid.RequireTrustDomainFromString(agent)},
				caller: directory.IdentityOf(spiffeid.RequireFromString("spiffe://beta.test/a"))}
		}

		var open []*mcp.ServerSession
		session := func(agent string, held int64) *session {
			ours, theirs := mcp.NewInMemoryTransports()

			there, err := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil).
				Connect(t.Context(), theirs, nil)
			must(t, err)

			here, err := mcp.NewClient(&mcp.Implementation{Name: "roster", Version: "1"}, nil).
				Connect(t.Context(), ours, nil)
			must(t, err)

			open = append(open, there)

			return &session{ClientSession: here, key: key(agent), held: held}
		}
		closed := func(n int) bool {
			done := make(chan struct{})
			go func() { _ = open[n].Wait(); close(done) }()
			synctest.Wait()

			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		use := &exchange{ctx: t.Context()}
		p.leave(session("large.test", maxSessionBytes+1), use)

		if !closed(0) || p.take(key("large.test")) != nil {
			t.Error("one that takes too much is kept")
		}

		gone, cancelUse := context.WithCancel(t.Context())
		cancelUse()

		spoiled := &exchange{ctx: t.Context()}
		spoiled.spoiled.Store(true)

		for name, use := range map[string]*exchange{"gone.test": {ctx: gone}, "spoiled.test": spoiled} {
			p.leave(session(name, 1), use)

			if !closed(len(open)-1) || p.take(key(name)) != nil {
				t.Errorf("%s: a session that can't be used again is kept", name)
			}
		}

		open = open[:1]

		p.leave(session("first.test", maxSessionBytes), use)

		for range maxSessionsHeld / maxSessionBytes {
			p.leave(session("next.test", maxSessionBytes), use)
		}

		if !closed(1) || p.take(key("first.test")) != nil || closed(2) || p.held > maxSessionsHeld {
			t.Errorf("the oldest is kept beyond what there is room for: %d bytes", p.held)
		}

		time.Sleep(sessionIdle / 2)
		s := p.take(key("next.test"))
		time.Sleep(sessionIdle)

		for n := 2; n < len(open)-1; n++ {
			if !closed(n) {
				t.Errorf("session %d is kept though nobody uses it", n)
			}
		}

		if p.ending != 0 {
			t.Errorf("%d sessions are being ended, and all have", p.ending)
		}

		p.leave(s, use)

		if last := len(open) - 1; closed(last) || p.held != s.held {
			t.Error("one that is used is closed")
		}

		if err := p.close(t.Context()); err != nil || !closed(len(open)-1) {
			t.Errorf("closing leaves one open: %v", err)
		}

		p.leave(session("late.test", 1), use)

		if !closed(len(open)-1) || p.take(key("late.test")) != nil {
			t.Error("one is kept after the end")
		}

		ended, cancel := context.WithCancel(t.Context())
		cancel()

		if err := p.close(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A change of the tools that the server announces while it lists them may be missing in the list.
func TestAListThatChangesMeanwhileIsStale(t *testing.T) {
	ours, theirs := mcp.NewInMemoryTransports()
	server := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "say"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})

	if _, err := server.Connect(t.Context(), theirs, nil); err != nil {
		t.Fatal(err)
	}

	s, announced := &session{}, false
	client := mcp.NewClient(&mcp.Implementation{Name: "roster", Version: "1"}, nil)
	client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, r)
			if method == "tools/list" && announced {
				s.fresh.Store(false) // as at the notification
			}

			return result, err
		}
	})

	var err error
	if s.ClientSession, err = client.Connect(t.Context(), ours, nil); err != nil {
		t.Fatal(err)
	}

	for _, announced = range []bool{false, true} {
		if _, err := s.list(t.Context()); err != nil {
			t.Fatal(err)
		}

		if tools, fresh := s.listed(); len(tools.tools) != 1 || fresh == announced {
			t.Errorf("%d tools, which are believed: %t, after a change: %t", len(tools.tools), fresh, announced)
		}
	}
}

// A session is lost where the server doesn't know it when it is asked something. That it
// takes no answer of ours says nothing of what it has done by then.
//
// Requirement: AI-012
func TestWhatTellsThatASessionIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		asks    bool
		session string
		status  int
		lost    bool
	}{
		"a question":          {true, "s", http.StatusNotFound, true},
		"in no session":       {true, "", http.StatusNotFound, false},
		"another status":      {true, "s", http.StatusBadRequest, false},
		"an answer of ours":   {false, "s", http.StatusNotFound, false},
		"a question answered": {true, "s", http.StatusOK, false},
	} {
		x := &exchange{ctx: t.Context(), next: answering(tc.status)}

		ctx := t.Context()
		if tc.asks {
			ctx = context.WithValue(ctx, askedKey{}, x)
		}

		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://agent.test", nil)
		must(t, err)

		if tc.session != "" {
			r.Header.Set("Mcp-Session-Id", tc.session)
		}

		if _, err := x.RoundTrip(r); err != nil || x.lost() != tc.lost {
			t.Errorf("%s: lost %t, %v", name, x.lost(), err)
		}
	}
}

// answering is a server's status.
type answering int

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Header: http.Header{}, Body: http.NoBody}, nil
}

// The bytes of answers are counted with a session, and its list of tools is believed for a while, unless the
// server says that it changed.
func TestASessionsToolsAreBelievedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{last: answering(http.StatusOK).RoundTrip}

		resp, err := s.RoundTrip(nil)
		must(t, err)

		resp.Body = &counted{io.NopCloser(strings.NewReader("answer")), resp.Body.(*counted).n}
		if _, err := io.ReadAll(resp.Body); err != nil || s.read.Load() != int64(len("answer")) {
			t.Errorf("%d bytes are counted, %v", s.read.Load(), err)
		}

		s.until = time.Now().Add(toolsLife)

		for _, step := range []struct {
			fresh bool
			after time.Duration
			want  bool
		}{{false, 0, false}, {true, 0, true}, {true, toolsLife, false}} {
			time.Sleep(step.after)
			s.fresh.Store(step.fresh)

			if _, got := s.listed(); got != step.want {
				t.Errorf("%+v: believed %t", step, got)
			}
		}
	})
}

var must = directorytest.Must
