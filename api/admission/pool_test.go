package admission_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/limit"
)

// A refusal says whose share of what is used up, in which unit, and ends once a place is back.
//
// Requirement: SEC-004
func TestARefusalNamesTheShare(t *testing.T) {
	foreign := func(id string) admission.Caller {
		return admission.Caller{Party: limit.Caller{Kind: limit.Foreign, ID: id, Group: "beta.test"}}
	}
	own := func(id string) admission.Caller {
		return admission.Caller{Party: limit.Caller{Kind: limit.Own, ID: id}}
	}

	for name, x := range map[string]struct {
		pool    admission.Pool
		takes   []admission.Caller // 16 places each
		refused admission.Caller
		problem directory.Problem
		says    string
	}{
		"a caller": {
			admission.RequestPool, []admission.Caller{foreign("1")},
			foreign("1"),
			directory.RateLimited,
			"your share of this node's requests in progress is used up: one caller may have 16",
		},
		"a domain": {
			admission.WatchPool, []admission.Caller{foreign("1"),
				foreign("2")},
			foreign("3"), directory.RateLimited,
			"the share of beta.test of this node's watches is used up: all of its callers together may have 32",
		},
		"all": {
			admission.NodePool,
			[]admission.Caller{own("1"), own("1"), own("2"), own("2"), own("3"), own("3"), own("4"), own("4"),
				own("5"),
				own("5"), own("6"), own("6"), own("7"), own("7"), own("8")},
			own("8"), directory.Unavailable, "other callers use this node's requests of nodes in progress up",
		},
	} {
		pools := admission.NewPools(admission.Sizes{Requests: 256, Watches: 256, Nodes: 256},
			func(id string) bool { return id == "operator" })

		var releases []func()
		for _, caller := range x.takes {
			release, err := pools.Take(x.pool, caller, 16)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}

			releases = append(releases, release)
		}

		_, err := pools.Take(x.pool, x.refused, 9)
		if directory.ProblemOf(err) != x.problem || !strings.Contains(err.Error(), x.says) ||
			problem.Explain(err).Retry != 1 {
			t.Errorf("%s: %v", name, err)
		}

		if name == "all" {
			if release, err := pools.Take(x.pool, own("operator"), 9); err != nil {
				t.Errorf("an operator: %v", err)
			} else {
				release()
			}
		}

		releases[0]()

		if release, err := pools.Take(x.pool, x.refused, 9); err != nil {
			t.Errorf("%s, once a place is back: %v", name, err)
		} else {
			release()
		}

		for _, release := range releases {
			release()
		}

		if pools.Held(x.pool) != 0 {
			t.Errorf("%s: %d places are held in the end", name, pools.Held(x.pool))
		}
	}

	// Sizes that configuration leaves out are the defaults.
	pools := admission.NewPools(admission.Sizes{}, nil)
	for most, pool := range map[int]admission.Pool{
		admission.DefaultSizes.Requests: admission.RequestPool, admission.DefaultSizes.Watches: admission.WatchPool,
		admission.DefaultSizes.Nodes: admission.NodePool,
	} {
		share := int64(most / 16) // of an identity of another domain
		if release, err := pools.Take(pool, foreign("1"), share); err != nil {
			t.Error(err)
		} else if _, err := pools.Take(pool, foreign("1"), 1); err == nil {
			t.Errorf("%d places of %d are one caller's", share+1, most)
		} else {
			release()
		}
	}
}

// An answer counts with what it takes beside its body, until it is read; a small one doesn't. A
// refusal counts in KiB.
//
// Requirement: SEC-002
func TestAnswersAreCountedUntilTheyAreRead(t *testing.T) {
	pools := admission.NewPools(admission.Sizes{AnswerBytes: 1 << 20}, nil)
	caller := admission.Caller{Party: limit.StrangerAt("192.0.2.1:1")} // has a sixteenth

	for body, want := range map[int]int64{0: 0, admission.SmallBody: 0, admission.SmallBody + 1: 20<<10 + 1} {
		release, err := pools.HoldAnswer(caller, body)
		if err != nil || pools.Held(admission.AnswerBytesPool) != want {
			t.Errorf("%d bytes count as %d, want %d: %v", body, pools.Held(admission.AnswerBytesPool), want, err)
			continue
		}

		release()

		if pools.Held(admission.AnswerBytesPool) != 0 {
			t.Errorf("%d bytes count on after they were read", body)
		}
	}

	_, err := pools.HoldAnswer(caller, 64<<10)
	if directory.ProblemOf(err) != directory.RateLimited || !strings.Contains(err.Error(),
		"one caller may have 64.") {
		t.Error(err)
	}
}

// A timedBody is a body that comes in equal pieces, one at a time, and records the deadlines of its
// connection.
type timedBody struct {
	http.ResponseWriter

	pieces, size int
	each         time.Duration
	deadlines    []time.Time
	closed       bool
}

func (b *timedBody) Read(data []byte) (int, error) {
	if b.pieces == 0 {
		return 0, io.EOF
	}

	b.pieces--
	time.Sleep(b.each)

	return min(b.size, len(data)), nil
}

func (b *timedBody) Close() error {
	b.closed = true
	return nil
}

func (b *timedBody) SetReadDeadline(at time.Time) error {
	b.deadlines = append(b.deadlines, at)
	return nil
}

// A body has thirty seconds, more while it comes, and never more than twenty minutes. A streamed one
// takes a fixed share, and one whose declared length is too long none.
//
// Requirement: SEC-002
func TestABodyHasADeadlineThatMoves(t *testing.T) {
	caller := admission.Caller{Party: limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/ada"}}

	for name, x := range map[string]struct {
		declared, limit int64
		pieces, size    int
		held            int64
		last            time.Duration // the last deadline before the end
	}{
		"declared":         {100, 1000, 1, 100, 100, 30 * time.Second},
		"none":             {0, 1000, 0, 0, 0, 30 * time.Second},
		"too long":         {1001, 1000, 0, 0, 0, 30 * time.Second},
		"without a length": {-1, 1000, 1, 100, 1000, 30 * time.Second},
		"in pieces":        {-1, 1 << 20, 40, 1 << 10, 64 << 10, 40 * time.Second},
		"streamed":         {-1, admission.Streamed, 40, 1 << 10, 256 << 10, 40 * time.Second},
		"for long":         {-1, admission.Streamed, 1300, 1 << 10, 256 << 10, 20 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			pools := admission.NewPools(admission.Sizes{}, nil)
			began := time.Now()
			sent := &timedBody{ResponseWriter: httptest.NewRecorder(), pieces: x.pieces, size: x.size,
				each: time.Millisecond}

			r := httptest.NewRequest("POST", "/", sent)
			r.ContentLength = x.declared

			body, err := pools.OpenBody(sent, r, caller, x.limit)
			if err != nil || len(sent.deadlines) != 1 || !sent.deadlines[0].Equal(began.Add(30*time.Second)) {
				t.Fatalf("%s: %v, %v", name, err, sent.deadlines)
			}

			if x.declared > x.limit && x.limit != admission.Streamed { // its handler refuses it unread
				sent.deadlines = append(sent.deadlines, time.Time{})
			} else if _, err := io.Copy(io.Discard, body); err != nil {
				t.Error(err)
			}

			if n := len(sent.deadlines); n < 2 || !sent.deadlines[n-1].IsZero() ||
				!sent.deadlines[n-2].Equal(began.Add(x.last)) || n > 3+x.pieces {
				t.Errorf("%s: the last of %d deadlines are %v", name, n, sent.deadlines[max(0, n-2):])
			}

			if pools.Held(admission.RequestBytesPool) != x.held {
				t.Errorf("%s: %d bytes are held, want %d", name, pools.Held(admission.RequestBytesPool), x.held)
			}

			body.Release()

			if pools.Held(admission.RequestBytesPool) != 0 {
				t.Errorf("%s: %d bytes are held in the end", name, pools.Held(admission.RequestBytesPool))
			}
		})
	}
}

// A body that nobody reads is dropped by HTTP/2 and has a deadline by HTTP/1.
//
// Requirement: SEC-002
func TestABodyThatNobodyReadsIsDropped(t *testing.T) {
	for name, x := range map[string]struct {
		major     int
		body      bool
		closed    bool
		deadlines int
	}{"HTTP/2": {2, true, true, 0}, "HTTP/1": {1, true, false, 1}, "no body": {1, false, false, 0}} {
		sent := &timedBody{ResponseWriter: httptest.NewRecorder()}

		r := httptest.NewRequest("POST", "/", sent)
		if r.ProtoMajor = x.major; !x.body {
			r.Body = http.NoBody
		}

		admission.Discard(sent, r)

		if sent.closed != x.closed || len(sent.deadlines) != x.deadlines ||
			x.deadlines > 0 && time.Until(sent.deadlines[0]) > admission.BodyTime {
			t.Errorf("%s: closed %t, deadlines %v", name, sent.closed, sent.deadlines)
		}

		r.Body = nil
		admission.Discard(sent, r)

		if len(sent.deadlines) != x.deadlines {
			t.Errorf("%s: a request without a body", name)
		}
	}
}
