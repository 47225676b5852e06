package federation

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
)

// The shares of one node of another domain in the pools of the default size.
const (
	pollsOfOne = 1024 / 16
	pagesOfOne = 512 / 16
)

// A domain that holds as many subscriptions as it may is told so, and the others
// still get theirs; whose wait is over makes room again.
func TestNoDomainTakesAllTheSubscriptions(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.alpha.reopenWith(t, active(beta, 1), active(gamma, 1))
		b.origin.mesh = append(b.origin.mesh, gamma)
		b.origin.listKeys(nil, b.alpha.keys)
		target := protocol.PathPages + "?origin=alpha.test&aud=mesh&wait=30s&since="
		poll := func(caller string) int {
			return b.alpha.ask(t.Context(), caller, "GET", target+fmt.Sprint(b.origin.rev), "").Code
		}
		greedy, other := nodeID(beta, 1).String(), nodeID(gamma, 1).String()

		var polls sync.WaitGroup
		for range pollsOfOne {
			polls.Go(func() {
				if code := poll(greedy); code != http.StatusNoContent {
					t.Errorf("one of %d: %d", pollsOfOne, code)
				}
			})
		}

		time.Sleep(time.Second)

		if code := poll(greedy); code != http.StatusServiceUnavailable {
			t.Errorf("one more: %d", code)
		}

		start := time.Now()
		if code := poll(other); code != http.StatusNoContent || time.Since(start) != 30*time.Second {
			t.Errorf("another domain's: %d after %v", code, time.Since(start))
		}

		polls.Wait()

		if code := poll(greedy); code != http.StatusNoContent {
			t.Errorf("one when the others are over: %d", code)
		}
	})
}

// An unread answer is one whose caller takes none of its body until it is read.
type unread struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (u unread) Write(b []byte) (int, error) {
	<-u.read
	return u.ResponseRecorder.Write(b)
}

// Who asks much and reads none of it takes a bounded part of the memory, and keeps no
// other domain from being answered: by pages, by records, or by what was waited for. A
// node of the own domain, which seeds all streams at once after a loss, has no share.
//
// Requirement: MESH-006
func TestNoDomainFillsTheMemoryWithUnreadAnswers(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.alpha.reopenWith(t, active(beta, 1), active(gamma, 1))
		b.origin.mesh = append(b.origin.mesh, gamma)
		b.origin.listKeys(nil, b.alpha.keys)
		b.origin.register("agent", 600)
		ds, _, _ := b.origin.Digests(directory.Mesh, 0, 1)
		names := protocol.RecordsRequest{Origin: alpha.Name(), Names: [][2]directory.Hash{{ds[0].H, ds[0].M}}}
		pages := protocol.PathPages + "?origin=alpha.test&aud=mesh&since=0"
		greedy := nodeID(beta, 1).String()
		other := nodeID(gamma, 1).String()

		sibling := nodeID(alpha, 2).String()
		for _, c := range []struct {
			method, target, body string
			most                 int
		}{{"GET", pages, "", pagesOfOne}, {"POST", protocol.PathRecords, string(names.Bytes()), pagesOfOne},
			{"GET", pages + "&wait=1s", "", pollsOfOne}} {
			read := make(chan struct{})

			var answers sync.WaitGroup
			ask := func(who string) {
				for range c.most {
					answers.Go(func() {
						r := httptest.NewRequestWithContext(t.Context(), c.method, c.target, strings.NewReader(c.body))
						r.Header.Set(callerHeader, who)
						b.alpha.http.ServeHTTP(unread{httptest.NewRecorder(), read}, r)
					})
				}

				synctest.Wait()
			}
			ask(greedy)

			if code := b.alpha.ask(t.Context(), greedy, c.method, c.target,
				c.body).Code; code != http.StatusServiceUnavailable {
				t.Errorf("%s: one more: %d", c.target, code)
			}

			if code := b.alpha.ask(t.Context(), other, c.method, c.target, c.body).Code; code != http.StatusOK {
				t.Errorf("%s: another domain's: %d", c.target, code)
			}

			ask(sibling)

			if code := b.alpha.ask(t.Context(), sibling, c.method, c.target, c.body).Code; code != http.StatusOK {
				t.Errorf("%s: a sibling's one more: %d", c.target, code)
			}

			close(read)
			answers.Wait()

			if code := b.alpha.ask(t.Context(), greedy, c.method, c.target, c.body).Code; code != http.StatusOK {
				t.Errorf("%s: one when the others are read: %d", c.target, code)
			}
		}
	})
}
