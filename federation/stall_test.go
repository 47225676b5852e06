package federation

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"go.etcd.io/bbolt"
)

// hang holds a write transaction of a node's store open, as a disk that doesn't answer
// does, until the function that it returns is called.
func (s *site) hang(t *testing.T) (release func()) {
	t.Helper()

	entered := make(chan struct{})
	end := make(chan struct{})
	done := make(chan error, 1)
	st := s.store
	go func() {
		done <- st.Update(func(*bbolt.Tx) error {
			close(entered)
			<-end

			return nil
		})
	}()
	<-entered

	return sync.OnceFunc(func() {
		close(end)
		must(t, <-done)
	})
}

// A logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.buf.String()
}

func (l *logBuffer) count(text string) int {
	return strings.Count(l.String(), text)
}

// While the disk under a node's store does not answer, the node answers from memory:
// lookups, its peers' states, its own stream. What only the disk has is refused at
// once. Its peers are shown as behind; and once the disk answers, nothing is missing.
//
// Requirement: FORM-007
func TestADiskThatHangsStopsNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newSquad(t), &logBuffer{}
		s.b.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		s.b.cfg.HeadEvery = 10 * time.Second
		s.b.reopen(t)

		for _, n := range []*site{s.a, s.b, s.g} {
			defer n.run(t)()
		}

		first := s.origin.register("first", 86400)
		private := s.origin.register("private", 86400)
		s.origin.grant(private, directory.Only(beta), true)
		eventually(t, 10*time.Second, "both are shown", func() bool { return len(s.b.shown(alpha)) == 2 })
		position, _ := s.b.Position(alpha)

		release := s.b.hang(t)
		defer release()

		var later []directory.RID
		for i := range 300 {
			later = append(later, s.origin.register(fmt.Sprint("later-", i), 86400))
			time.Sleep(100 * time.Millisecond)
		}

		s.origin.remove(first)
		time.Sleep(20 * time.Second)

		// Nothing that is asked of memory waits.
		began := time.Now()

		if stalled := s.b.StoreStalled(); stalled < 45*time.Second {
			t.Errorf("stalled for %s", stalled)
		}

		if got, ok := s.b.Position(alpha); !ok || got != position {
			t.Errorf("at %v and was at %v", got, position)
		}

		if n := len(s.b.shown(alpha)); n != 2 {
			t.Errorf("%d are shown", n)
		}

		for _, p := range s.b.Peers() {
			if p.State != "behind" || !strings.Contains(p.LastError, "has not responded for") {
				t.Errorf("%s is %s: %s", p.Domain, p.State, p.LastError)
			}

			if p.Domain == alpha && (p.LagRevisions < 300 || p.HeadAge > time.Minute) {
				t.Errorf("%d revisions behind, with a head of %s ago", p.LagRevisions, p.HeadAge)
			}
		}

		// Peers and siblings are answered.
		for _, c := range []struct {
			caller, method, target, body string
			status                       int
		}{
			{nodeID(alpha, 1).String(), "GET", protocol.PathHeads + "?origin=beta.test", "", http.StatusOK},
			{nodeID(alpha, 1).String(), "GET", protocol.PathKeys + "?origin=beta.test", "", http.StatusOK},
			{nodeID(alpha, 1).String(), "GET", protocol.PathPages + "?origin=beta.test&aud=mesh&since=0", "",
				http.StatusNoContent},
			{nodeID(beta, 2).String(), "GET", protocol.PathHeads + "?origin=alpha.test", "", http.StatusOK},
			{nodeID(beta, 2).String(), "GET", protocol.PathPages + "?origin=alpha.test&aud=mesh&since=0", "",
				http.StatusServiceUnavailable},
			{nodeID(beta, 2).String(), "POST", protocol.PathRecords, `{"origin":"alpha.test","names":[]}`,
				http.StatusServiceUnavailable},
		} {
			if got := s.b.ask(t.Context(), c.caller, c.method, c.target, c.body); got.Code != c.status {
				t.Errorf("%s %s: %d %s", c.method, c.target, got.Code, got.Body)
			}
		}

		if _, err := s.b.Record(t.Context(), alpha, first); directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("a record that only the disk has: %v", err)
		}

		if took := time.Since(began); took > 0 {
			t.Errorf("answers took %s", took)
		}

		release()
		eventually(t, 30*time.Second, "all that was missed is shown", func() bool {
			shown := s.b.shown(alpha)
			for _, rid := range later {
				if shown[rid] == nil {
					return false
				}
			}

			return len(shown) == len(later)+1
		})
		eventually(t, time.Minute, "alpha is active", func() bool { return s.b.Peers()[0].State == "active" })

		if began, ended := log.count("does not respond; lookups continue"), log.count("responds again"); began != 1 ||
			ended != 1 {
			t.Errorf("%d lines say that it began and %d that it ended", began, ended)
		}

		if n := log.count("level=ERROR"); n != 1 {
			t.Errorf("%d errors are logged:\n%s", n, log)
		}
	})
}

// A peering that ends while the disk does not answer takes effect at once for readers,
// and on disk as soon as that answers. Another that begins meanwhile is taken up.
//
// Requirement: FORM-007, MESH-025
func TestAPeeringEndsWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSquad(t)

		var mu sync.Mutex
		peerings := []directory.Peering{active(alpha, 1)}
		s.b.cfg.Peerings = func() []directory.Peering {
			mu.Lock()
			defer mu.Unlock()

			return append([]directory.Peering(nil), peerings...)
		}
		s.b.reopen(t)

		for _, n := range []*site{s.a, s.b, s.g} {
			defer n.run(t)()
		}

		rid := s.origin.register("agent", 86400)
		note := s.origin.disclosed(rid, "base")
		eventually(t, 10*time.Second, "it is shown", func() bool { return len(s.b.shown(alpha)) == 1 })

		release := s.b.hang(t)
		defer release()
		time.Sleep(2 * store.StallAfter)
		mu.Lock()
		peerings = []directory.Peering{active(alpha, 1), active(gamma, 1)}
		peerings[0].State = directory.PeeringTerminated
		mu.Unlock()
		s.b.self.register("own", 600)

		eventually(t, 5*time.Second, "alpha's are hidden and gamma is known", func() bool {
			return len(s.b.shown(alpha)) == 0 && s.b.origins.Get(gamma) != nil
		})

		release()
		eventually(t, 30*time.Second, "nothing of alpha's is kept", func() bool {
			return s.b.origins.Get(alpha) == nil
		})
		eventually(t, 30*time.Second, "nothing of it is on disk", func() bool { return !s.b.onDisk(t, note) })
		eventually(t, 30*time.Second, "gamma's head is known", func() bool {
			return s.b.origins.Get(gamma).NewestHead() != ""
		})
	})
}

// What is on disk already and can't be read back to be shown, because the disk stalls
// at that moment, is shown once it answers, and until then the node doesn't say that it
// is as far.
//
// Requirement: FORM-007
func TestWhatCannotBeReadBackIsShownLater(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.mesh = append(b.origin.mesh, gamma)
		rid := b.origin.register("agent", 86400)
		b.origin.grant(rid, directory.Only(beta), true)
		b.pull()
		o := b.beta.origins.Get(alpha)
		must(t, b.beta.pulls(o, &o.Private, b.giver()))

		if e := b.beta.shown(alpha)[rid]; e == nil || !e.Received.Private {
			t.Fatalf("%+v is shown", e)
		}

		before, _ := o.Position()

		end, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- b.beta.store.Disk.Read(func() error {
				<-end
				return nil
			})
		}()
		time.Sleep(2 * store.StallAfter)

		// A change that was begun before the stall ends now.
		o.Hide(&o.Private, func(*directory.Entry) bool { return true })

		state := o.Mesh.Cur.State
		state.Watermark += 10
		o.Apply(o.Mesh.Cur, store.Changes{State: state}, nil)

		if at, ok := b.beta.Position(alpha); at != before || !ok {
			t.Errorf("it says that it is at %v, and shows what was at %v", at, before)
		}

		b.beta.judgeAll(t.Context())

		if n := len(b.beta.shown(alpha)); n != 0 {
			t.Errorf("%d are shown", n)
		}

		close(end)
		must(t, <-done)
		b.beta.judgeAll(t.Context())

		if e := b.beta.shown(alpha)[rid]; e == nil || !e.Received.Private {
			t.Errorf("%+v is shown", e)
		}

		if at, _ := b.beta.Position(alpha); at.Revision != before.Revision+10 {
			t.Errorf("it says that it is at %v", at)
		}
	})
}

// A head that a node learned while its disk did not answer is on disk with the next page.
//
// Requirement: FORM-007
func TestAHeadFromAStallIsWrittenWithTheNextPage(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.beta.origins.Get(alpha)

		b.origin.register("agent", 86400)
		b.pull()
		must(t, b.beta.receiver.askHead(t.Context(), o, b.giver()))

		release := b.beta.hang(t)
		defer release()
		time.Sleep(2 * store.StallAfter)
		b.origin.register("another", 86400)

		if err := b.beta.receiver.askHead(t.Context(), o, b.giver()); !errors.Is(err, store.ErrStalled) {
			t.Fatal(err)
		}

		release()
		b.pull()

		saved, err := b.beta.store.Origins()
		must(t, err)

		if head := saved[alpha].Head; head == "" || head != o.NewestHead() {
			t.Errorf("on disk is %q, and known is %q", head, o.NewestHead())
		}
	})
}
