package index_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// Whatever happens between whatever is read, events that are applied to an empty
// set make it what a lookup answers; nothing is told twice, and a connection that
// breaks anywhere goes on at its last mark without a reset.
//
// Requirement: AD-024, AD-035
func TestWatchAgainstLookup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := index.NewView(alpha)
		start := modelStart
		entries := map[anID]*directory.Entry{}
		statement := uint64(0)
		someOrigin := rapid.SampledFrom([]spiffeid.TrustDomain{alpha, beta, gamma})
		put := func(e *directory.Entry) {
			entries[idOf(e)] = e
			v.Origin(e.Origin).Put(e)
		}

		var mirrors []*mirror
		some := func(t *rapid.T) *mirror { return rapid.SampledFrom(mirrors).Draw(t, "mirror") }
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "times") {
					td := someOrigin.Draw(t, "origin")
					e := drawEntry(t, td, rapid.Byte().Draw(t, "n"), 0)
					statement++

					e.Statement, e.Visibility.Mesh = statement, rapid.Float64Range(0, 1).Draw(t, "secret") < 0.8
					if old := entries[idOf(e)]; td == alpha && old != nil && rapid.Bool().Draw(t, "same") {
						e.Created, e.Agent = old.Created, old.Agent
					} else if td == alpha {
						e.Created = statement
					}

					put(e)
				}
			},
			"refresh": func(t *rapid.T) {
				for i := range 20 {
					e := entries[anID{someOrigin.Draw(t, "origin"), rid(byte(i))}]
					if e == nil {
						continue
					}

					e2 := *e
					e2.ExpiresAt = start.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "half hours"))*30*time.Minute +
						time.Minute).UnixMilli()
					put(&e2)

					return
				}
			},
			"delete": func(t *rapid.T) {
				id := anID{someOrigin.Draw(t, "origin"), rid(rapid.Byte().Draw(t, "n"))}
				delete(entries, id)
				v.Origin(id.origin).Delete(id.rid)
			},
			"load": func(t *rapid.T) {
				td := someOrigin.Draw(t, "origin")

				var es []*directory.Entry
				for id, e := range entries {
					switch statement++; {
					case id.origin != td:
						continue
					case statement%5 == 0:
						delete(entries, id)
						continue
					case statement%3 == 0:
						e2 := *e
						e2.Statement = statement
						e = &e2
						entries[id] = e
					}

					es = append(es, e)
				}

				v.Origin(td).Build(es)()
			},
			"time": func(t *rapid.T) {
				td := someOrigin.Draw(t, "origin")
				v.Origin(td).Clock.Advance(start.Add(time.Duration(rapid.IntRange(0, 8).
					Draw(t, "half hours"))*30*time.Minute + 15*time.Minute))
			},
			"drop": func(t *rapid.T) {
				if rapid.Float64Range(0, 1).Draw(t, "drop") < 0.2 {
					td := rapid.SampledFrom([]spiffeid.TrustDomain{beta, gamma}).Draw(t, "origin")
					v.Drop(td)

					for id := range entries {
						if id.origin == td {
							delete(entries, id)
						}
					}
				}
			},
			"watch": func(t *rapid.T) {
				if len(mirrors) < 4 {
					mirrors = append(mirrors, newMirror(v, drawQuery(t), notSecret))
				}
			},
			"watch all": func(t *rapid.T) {
				if len(mirrors) < 4 {
					mirrors = append(mirrors, newMirror(v, index.Query{}, notSecret))
				}
			},
			"read": func(t *rapid.T) {
				if len(mirrors) == 0 {
					return
				}

				m := some(t)

				events, err := m.watcher.Next(over)
				if err != nil {
					return
				}

				broken := rapid.IntRange(0, 2*len(events)).Draw(t, "broken behind")
				if err := m.apply(events[:min(broken, len(events))]); err != nil {
					t.Fatal(err)
				}

				if broken < len(events) {
					resets, place := m.resets, !m.mark.IsZero()
					m.again()

					if err := m.drain(); err != nil {
						t.Fatal(err)
					}

					if place && m.resets != resets {
						t.Fatal("a reset, although it has its place")
					}
				}
			},
			"": func(t *rapid.T) {
				if len(mirrors) == 0 || rapid.Float64Range(0, 1).Draw(t, "compare") < 0.5 {
					return
				}

				m := some(t)
				if err := errors.Join(m.drain(), m.equals()); err != nil {
					t.Fatalf("%+v: %v", m.query, err)
				}
			},
		})

		for _, m := range mirrors {
			m.watcher.Close()
		}
	})
}

// A change between two steps of reading the present entries is in the answer once, on whichever
// side of the place that is reached its entry stands, and at the place itself.
//
// Requirement: AD-035
func TestWatchOfAChangeWhileTheEntriesAreRead(t *testing.T) {
	const step = 512

	for _, td := range []spiffeid.TrustDomain{alpha, beta} {
		for n := step - 1; n <= step+1; n++ {
			for _, change := range []string{"replaced", "deleted"} {
				v := index.NewView(alpha)
				for i := range step + 1 {
					v.Origin(td).Put(entry(td, i+1, "agent", nil))
				}

				m := newMirror(v, index.Query{Origin: td}, nil)
				for len(m.has) == 0 {
					events, err := m.watcher.Next(t.Context())
					if err := errors.Join(err, m.apply(events)); err != nil {
						t.Fatal(err)
					}
				}

				if len(m.has) != step {
					t.Fatalf("the first step has %d entries, want %d", len(m.has), step)
				}

				changed := *entry(td, n, "agent", nil)
				if changed.Statement++; change == "deleted" {
					v.Origin(td).Delete(changed.RID)
				} else {
					v.Origin(td).Put(&changed)
				}

				if err := errors.Join(m.drain(), m.equals()); err != nil {
					t.Errorf("entry %d of %s is %s: %v", n, td.Name(), change, err)
				}

				m.watcher.Close()
			}
		}
	}
}

// The same while writers write without a pause, watchers come and go, and some
// fall behind.
func TestWatchWhileOthersWrite(t *testing.T) {
	v := index.NewView(alpha)
	stop := make(chan struct{})

	var writers, readers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for n := uint64(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}

				td := []spiffeid.TrustDomain{alpha, beta}[w]

				e := entry(td, 1+random.IntN(3000), fmt.Sprint("agent-", random.IntN(9)),
					&directory.Projection{Protocols: []string{[]string{"a2a", "mcp"}[n%2]}})
				switch e.Statement, e.Visibility.Mesh = n, n%7 > 0; {
				case n%11 == 0:
					v.Origin(td).Delete(e.RID)
				case n%1009 == 0:
					e.ExpiresAt = time.Now().Add(time.Millisecond).UnixMilli()
					v.Origin(td).Put(e)
				default:
					v.Origin(td).Put(e)
				}
			}
		})
	}

	var (
		mu      sync.Mutex
		mirrors []*mirror
	)
	for i := range 6 {
		readers.Go(func() {
			q := index.Query{}
			if i%2 == 0 {
				q.Protocol = []string{"mcp"}
			}

			m := newMirror(v, q, notSecret)
			for range 60 {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				events, err := m.watcher.Next(ctx)
				cancel()

				if err == nil {
					if err := m.apply(events); err != nil {
						t.Error(err)
						return
					}
				}

				if errors.Is(err, index.ErrBehind) || rand.IntN(9) == 0 {
					m.again()
				}
			}

			mu.Lock()
			defer mu.Unlock()
			mirrors = append(mirrors, m)
		})
	}

	readers.Wait()
	close(stop)
	writers.Wait()
	time.Sleep(2 * time.Millisecond) // the last short-lived ones

	for _, m := range mirrors {
		if err := errors.Join(m.drain(), m.equals()); err != nil {
			t.Error(err)
		}

		m.watcher.Close()
	}
}

// An expiry is told at its moment, with nobody sweeping, and a sweep behind it is
// no event. A refresh is none either, and puts the expiry off.
//
// Requirement: AD-024
func TestWatchTellsExpiriesOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := index.NewView(alpha)
		own := entry(alpha, 1, "own", nil)
		foreign := entry(beta, 2, "foreign", nil)
		own.ExpiresAt, foreign.ExpiresAt = time.Now().Add(time.Minute).UnixMilli(), time.Now().Add(90*time.Second).
			UnixMilli()
		v.Own().Put(own)
		v.Origin(beta).Put(foreign)
		m := newMirror(v, index.Query{}, nil)
		defer m.watcher.Close()

		if err := m.drain(); err != nil || len(m.has) != 2 {
			t.Fatalf("%d told, %v", len(m.has), err)
		}

		started := time.Now()
		time.Sleep(30 * time.Second)
		later := *own
		later.ExpiresAt += 60_000
		v.Own().Put(&later)

		for _, want := range []struct {
			after time.Duration
			agent string
		}{{90 * time.Second, "foreign"}, {120 * time.Second, "own"}} {
			events, err := m.watcher.Next(t.Context())
			if err != nil || len(events) != 1 || events[0].Reason != index.ReasonExpired ||
				events[0].Entry.Agent != want.agent || time.Since(started) != want.after {
				t.Fatalf("after %v: %+v, %v; want %+v", time.Since(started), events, err, want)
			}
		}

		v.Own().Delete(own.RID)
		v.Origin(beta).Delete(foreign.RID)

		if events, err := m.watcher.Next(over); err == nil {
			t.Errorf("the sweep is told: %+v", events)
		}
	})
}

// An origin's clock that leaps forward ends what is past its deadline within a
// second.
//
// Requirement: MESH-009
func TestWatchFollowsTheOriginsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := index.NewView(alpha)
		v.Origin(beta).Put(entry(beta, 1, "foreign", nil)) // for a day
		m := newMirror(v, index.Query{}, nil)
		defer m.watcher.Close()

		if err := m.drain(); err != nil {
			t.Fatal(err)
		}

		time.AfterFunc(10*time.Minute, func() { v.Origin(beta).Clock.Advance(time.Now().Add(25 * time.Hour)) })
		started := time.Now()

		events, err := m.watcher.Next(t.Context())
		if err != nil || len(events) != 1 || events[0].Reason != index.ReasonExpired {
			t.Fatalf("%+v, %v", events, err)
		}

		if late := time.Since(started) - 10*time.Minute; late > time.Second {
			t.Errorf("told %v late", late)
		}
	})
}

// The reasons for a removal are told apart, as far as its reader may know.
//
// Requirement: AD-035
func TestWatchTellsWhy(t *testing.T) {
	v := index.NewView(alpha)
	m := newMirror(v, index.Query{Protocol: []string{"a2a"}}, notSecret)
	defer m.watcher.Close()
	must := func(want string) {
		t.Helper()

		events, err := m.watcher.Next(over)
		if err != nil || len(events) != 1 || string(events[0].Kind)+events[0].Reason != want {
			t.Fatalf("%+v, %v; want %s", events, err, want)
		}
	}

	if err := m.drain(); err != nil {
		t.Fatal(err)
	}

	say := func(statement uint64, protocol string, mesh bool) {
		e := entry(alpha, 1, "x", &directory.Projection{Protocols: []string{protocol}})
		e.Statement, e.Visibility.Mesh = statement, mesh
		v.Own().Put(e)
	}
	say(1, "a2a", true)
	must("added")
	say(2, "a2a", true)
	must("updated")
	say(2, "a2a", true) // a refresh
	say(3, "mcp", true)
	must("removedhidden")
	say(4, "mcp", false)
	say(5, "a2a", true)
	must("added")
	say(6, "a2a", false)
	must("removedhidden")
	v.Own().Delete(entry(alpha, 1, "x", nil).RID) // was hidden already
	v.Origin(beta).Put(func() *directory.Entry {
		e := entry(beta, 2, "y", &directory.Projection{Protocols: []string{"a2a"}})
		e.Visibility.Mesh = true

		return e
	}())
	must("added")
	v.Drop(beta)
	must("removedremoved")

	if _, err := m.watcher.Next(over); err == nil {
		t.Error("there is more")
	}
}

// Who reads too slowly is told so, and pays with a new beginning, not the
// directory with memory. Other nodes' marks, and made-up ones, are a new
// beginning too.
func TestWatchFallsBehind(t *testing.T) {
	v := index.NewView(alpha)
	m := newMirror(v, index.Query{}, nil)
	defer m.watcher.Close()

	if err := m.drain(); err != nil {
		t.Fatal(err)
	}

	mark := m.mark

	for i := range 20_000 {
		e := entry(alpha, 1, "x", nil)
		e.Statement = uint64(i)
		v.Own().Put(e)
	}

	if _, err := m.watcher.Next(over); !errors.Is(err, index.ErrBehind) {
		t.Fatalf("got %v", err)
	}

	elsewhere := index.NewView(alpha)
	other := newMirror(elsewhere, index.Query{}, nil)
	defer other.watcher.Close()

	if err := other.drain(); err != nil {
		t.Fatal(err)
	}

	for _, from := range []index.ResumeToken{mark, other.mark, {}, index.ParseResumeToken("yesterday")} {
		w := v.Watch(index.Query{}, nil, from)
		if events, err := w.Next(over); err != nil || events[0].Kind != index.EventReset {
			t.Errorf("behind %s: %v, %v", from, events, err)
		}

		w.Close()
	}

	if got := index.ParseResumeToken(mark.String()); got != mark {
		t.Errorf("%s is read as %s", mark, got)
	}
}

// The initial state is charged, and a reader beyond its quota gets none of it.
func TestAWatchBeyondItsQuotaEnds(t *testing.T) {
	v := index.NewView(alpha)
	v.Own().Put(entry(alpha, 1, "x", nil))

	w := v.Watch(index.Query{Charge: func(looked int) bool { return looked == 0 }}, nil, index.ResumeToken{})
	defer w.Close()

	events, err := w.Next(over)
	for ; err == nil; events, err = w.Next(over) {
		if events[0].Kind != index.EventReset {
			t.Fatalf("a reader beyond its quota gets %+v", events)
		}
	}

	if errors.Is(err, context.Canceled) {
		t.Error("the watch waits for changes")
	}
}

// Changes are kept for five minutes behind the last watcher, and then no more.
func TestWatchIsForgottenWhenNobodyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := index.NewView(alpha)
		change := func(n int) { v.Own().Put(entry(alpha, n, "x", nil)) }

		m := newMirror(v, index.Query{}, nil)
		if err := m.drain(); err != nil {
			t.Fatal(err)
		}

		m.watcher.Close()
		m.watcher.Close() // harmless
		time.Sleep(4 * time.Minute)
		change(1)
		m.again()

		if err := errors.Join(m.drain(), m.equals()); err != nil || m.resets != 1 {
			t.Errorf("within five minutes: %d resets, %v", m.resets, err)
		}

		m.watcher.Close()
		time.Sleep(6 * time.Minute)
		change(2)
		change(3)
		m.again()

		if err := errors.Join(m.drain(), m.equals()); err != nil || m.resets != 2 {
			t.Errorf("after five minutes: %d resets, %v", m.resets, err)
		}

		change(4)

		if err := errors.Join(m.drain(), m.equals()); err != nil || m.resets != 2 {
			t.Errorf("from then on: %d resets, %v", m.resets, err)
		}

		m.watcher.Close()
	})
}
