package federation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
)

// A lineLog keeps the lines of a log.
type lineLog struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (l *lineLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.bytes.Write(line)
}

// peerLines returns the messages of the lines about peers, in their order.
func (l *lineLog) peerLines(t *testing.T) (messages []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()

	for line := range strings.Lines(l.bytes.String()) {
		var attrs map[string]any
		must(t, json.Unmarshal([]byte(line), &attrs))

		if text := fmt.Sprint(attrs["msg"]); strings.HasPrefix(text, "peer ") {
			messages = append(messages, text)
		}
	}

	return messages
}

// A silencing is a bench whose peer is silenced, with the log of the node that follows it.
type silencing struct {
	*bench
	log *lineLog
}

func newSilencing(t *testing.T, nodes ...int) *silencing {
	t.Helper()

	s := &silencing{bench: newBench(t, nil), log: &lineLog{}}
	for _, n := range nodes {
		s.world.open(t, t.TempDir(), n, s.origin, active(beta, 1))
	}

	s.beta.cfg.Logger = slog.New(slog.NewJSONHandler(s.log, nil))
	s.beta.reopenWith(t, active(alpha, append([]int{1}, nodes...)...))

	return s
}

func (s *silencing) status() replica.PeerStatus { return s.beta.Peers()[0] }

// follows waits until beta has the registrations of alpha: a head alone makes a peer active,
// and the first pull isn't held, so pings don't count for it.
func (s *silencing) follows(t *testing.T) {
	t.Helper()
	eventually(t, 5*time.Second, "active, with a page", func() bool {
		is := s.status()
		return is.State == "active" && is.Entries > 0
	})
}

// freeze makes nodes hold every request for ever without a byte, as a stopped process or a
// black hole does. Interim responses stop as well. None ends that.
func (s *silencing) freeze(bases ...string) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()

	s.world.frozen = func(to string) bool {
		for _, base := range bases {
			if to == base {
				return true
			}
		}

		return false
	}
}

// A peer whose only node falls silent is unreachable ten seconds after its last answer,
// whatever state its connection is in; it is active again when it answers. Each is logged
// once. The age of its last page never falls meanwhile.
//
// Requirement: OPS-043, MESH-024
func TestASilentPeerIsSeenWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencing(t)
		defer s.beta.run(t)()

		rid := s.origin.register("agent", 7200)
		s.follows(t)
		time.Sleep(time.Minute)

		var pulls atomic.Int64
		s.world.mu.Lock()
		s.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages {
				pulls.Add(1)
			}

			return body
		}
		s.world.mu.Unlock()
		time.Sleep(5 * time.Minute)

		if n := pulls.Load(); n > 40 { // by short waits it would be 200
			t.Errorf("a peer that pings was asked %d times in five minutes", n)
		}

		was := s.status()
		if was.State != "active" || !was.Up || time.Since(was.LastAnswer) > protocol.PingEvery+time.Second ||
			was.HeadAge > 70*time.Second {
			t.Fatalf("an idle peer: %+v", was)
		}

		s.freeze(s.alpha.base)

		frozen := time.Now()
		time.Sleep(10*time.Second - time.Since(s.status().LastAnswer))

		is := s.status()
		if is.State != "unreachable" || is.Up || is.SilentSince.IsZero() || is.SilentSince.After(frozen) ||
			is.LastError == "" {
			t.Errorf("ten seconds after its last answer: %+v", is)
		}

		time.Sleep(time.Hour)

		is = s.status()
		if is.PageAge < was.PageAge+time.Hour || !is.LastPage.Equal(was.LastPage) || s.beta.shown(alpha)[rid] == nil {
			t.Errorf("an hour later: %+v", is)
		}

		s.freeze()
		eventually(t, 15*time.Second, "active again", func() bool { return s.status().State == "active" })
		time.Sleep(time.Minute)

		want := []string{"peer active", "peer lost: none of its nodes answers", "peer back"}
		if got := s.log.peerLines(t); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the log has %q", got)
		}
	})
}

// A node of an earlier release sends nothing while it holds a pull. It is asked more often
// instead, and its silence is seen as early.
//
// Requirement: OPS-043
func TestAPeerThatDoesNotPingIsSeenToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencing(t)
		s.world.mu.Lock()
		s.world.mute = true
		s.world.mu.Unlock()

		defer s.beta.run(t)()

		s.origin.register("agent", 7200)
		s.follows(t)

		for range 100 {
			time.Sleep(time.Second)

			if is := s.status(); is.State != "active" || is.LastError != "" {
				t.Fatalf("an idle peer: %+v", is)
			}
		}

		s.freeze(s.alpha.base)
		time.Sleep(10*time.Second - time.Since(s.status().LastAnswer))

		if is := s.status(); is.State != "unreachable" {
			t.Errorf("ten seconds after its last answer: %+v", is)
		}

		s.freeze()
		eventually(t, 15*time.Second, "active again", func() bool { return s.status().State == "active" })
	})
}

// A peer stays up while one of its nodes answers, however many others are silent, and is
// followed there.
//
// Requirement: OPS-043
func TestAPeerOfWhichOneNodeAnswersStaysUp(t *testing.T) {
	for living := range 3 {
		synctest.Test(t, func(t *testing.T) {
			s := newSilencing(t, 2, 3)
			s.origin.listKeys(nil, s.alpha.keys, s.world.sites["https://alpha.test-2.test"].keys,
				s.world.sites["https://alpha.test-3.test"].keys)
			defer s.beta.run(t)()

			s.origin.register("agent", 7200)
			s.follows(t)

			bases := []string{s.alpha.base, "https://alpha.test-2.test", "https://alpha.test-3.test"}
			s.freeze(append(bases[:living:living], bases[living+1:]...)...)

			for range 240 {
				time.Sleep(500 * time.Millisecond)

				if is := s.status(); !is.Up || is.State != "active" {
					t.Fatalf("node %d answers: %+v", living+1, is)
				}
			}

			rid := s.origin.register("another", 7200)
			eventually(t, 5*time.Second, "shown", func() bool { return s.beta.shown(alpha)[rid] != nil })

			if got := s.log.peerLines(t); len(got) != 1 {
				t.Errorf("the log has %q", got)
			}
		})
	}
}

// A peer that answers and pings, and brings no page, is not fresh: the age of its page grows,
// and it is behind, or failing if it brings no head either.
//
// Requirement: OPS-043, MESH-024
func TestAPeerThatOnlyPingsIsNotFresh(t *testing.T) {
	for want, held := range map[string]func(path string) bool{
		"behind":  func(path string) bool { return path == protocol.PathPages },
		"failing": func(path string) bool { return path != protocol.PathKeys },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSilencing(t)
			defer s.beta.run(t)()

			s.origin.register("agent", 7200)
			s.follows(t)

			s.world.mu.Lock()
			s.world.hold = func(r *http.Request, ping func()) bool {
				if !held(r.URL.Path) {
					return false
				}

				for ping(); wait(r.Context(), nil, time.Second); ping() {
				}

				return true
			}
			s.world.mu.Unlock()
			time.Sleep(time.Minute) // the pulls that were held before have ended
			s.origin.register("unseen", 7200)
			s.origin.register("unseen too", 7200)

			for before := time.Duration(0); before < 30*time.Minute; before = s.status().PageAge {
				time.Sleep(time.Minute)

				is := s.status()
				if is.PageAge < before+time.Minute || is.State == "active" && is.PageAge > replica.MaxHeadAge ||
					want == "behind" && (!is.Up || is.State != want && is.PageAge > replica.MaxHeadAge) {
					t.Fatalf("%s: %+v", want, is)
				}
			}

			if lines := s.log.peerLines(t); len(lines) > watchLines+31 {
				t.Errorf("the log has %q", lines)
			}
		})
	}
}

// A peer that answers is not failing while its first head may be on the way.
//
// Requirement: OPS-043
func TestAPeerConnectsUntilItsFirstHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencing(t)
		s.freeze(s.alpha.base)

		defer s.beta.run(t)()

		for second := range 15 {
			time.Sleep(time.Second)
			s.beta.origins.Get(alpha).Answers.Answered()

			want := "connecting"
			if second >= int(replica.SilentAfter/time.Second) {
				want = "failing"
			}

			if is := s.status(); is.State != want {
				t.Errorf("after %d s: %+v, want %s", second+1, is, want)
			}
		}
	})
}

// A peer that comes and goes for a day does not fill the log.
//
// Requirement: OPS-043
func TestAPeerThatComesAndGoesDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencing(t)
		defer s.beta.run(t)()

		for range 200 {
			s.freeze(s.alpha.base)
			time.Sleep(20 * time.Second)
			s.freeze()
			time.Sleep(25 * time.Second)
		}

		lines := s.log.peerLines(t)
		if minutes := 200 * 45 / 60; len(lines) > watchLines+minutes || len(lines) < minutes/2 {
			t.Errorf("%d lines in %d minutes", len(lines), minutes)
		}
	})
}

// Whatever a stranger, or another peer, says of an origin, it makes that neither up nor
// unreachable: the answers of its own nodes count, and nothing else.
//
// Requirement: OPS-043
func TestNobodyElseMakesAPeerUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencing(t)
		defer s.beta.run(t)()

		s.origin.register("agent", 7200)
		s.follows(t)
		s.freeze(s.alpha.base)
		time.Sleep(time.Minute)

		// Relays bring its newest head and page meanwhile: they verify, and it is still away.
		for range 20 {
			s.origin.register(fmt.Sprint("agent-", time.Now().Unix()), 7200)

			head, err := s.alpha.publisher.Head()
			must(t, err)
			page, err := s.alpha.publisher.Page(directory.Mesh, s.status().Watermark, 10, false)
			must(t, err)

			from := replica.Sender{Domain: gamma, Pushed: true}
			must(t, s.beta.receiver.takeHead(t.Context(), from, s.giver(), head))
			_, code, err := s.beta.receiver.take(t.Context(), from, protocol.Node{Domain: gamma}, page.Text)
			must(t, err)

			if is := s.status(); code != protocol.CodeApplied || is.State != "unreachable" || is.Up ||
				is.PageAge > 2*time.Second {
				t.Fatalf("%s; %+v", code, is)
			}

			time.Sleep(time.Second)
		}

		if s.beta.client.Answered(protocol.Node{Domain: gamma}, nil); s.status().Up {
			t.Error("an answer of another domain counts")
		}
	})
}
