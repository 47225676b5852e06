package witness

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
)

// An ownLog is the ledger of an asker. It grows by a leaf whenever it is looked at, unless it stands still.
type ownLog struct {
	*tree
	quorum int
	still  bool
	kept   checkpoint.Checkpoint
	lines  string
	full   []time.Duration // since the start: when a checkpoint with the quorum was kept
	began  time.Time
}

func newOwnLog(quorum int) *ownLog {
	return &ownLog{tree: newTree("beta.test/roster/7", 1), quorum: quorum, began: time.Now()}
}

func (l *ownLog) Leads() bool { return true }

func (l *ownLog) Checkpoint() (string, error) {
	if !l.still {
		l.grow(1, "")
	}

	return l.note(len(l.leaves)), nil
}

func (l *ownLog) Consistency(old uint64, c checkpoint.Checkpoint) ([]directory.Hash, error) {
	if old == 0 {
		return nil, nil
	}

	return consistency(int(old), l.leaves[:c.Size], true), nil
}

func (l *ownLog) Cosigned() (checkpoint.Checkpoint, string) { return l.kept, l.lines }

func (l *ownLog) Suffices(_ checkpoint.Checkpoint, lines string) bool {
	return strings.Count(lines, "\n") >= l.quorum
}

func (l *ownLog) Keep(_ context.Context, c checkpoint.Checkpoint, lines string) error {
	if c.Size < l.kept.Size {
		return errors.New("an older checkpoint")
	}

	l.kept, l.lines = c, lines
	if l.Suffices(c, lines) {
		l.full = append(l.full, time.Since(l.began))
	}

	return nil
}

// A named keyring cosigns by a name of its own.
type named struct {
	*keys
	name string
}

func (k *named) Cosign(note *checkpoint.Note, _ uint64, at time.Time) (string, error) {
	return checkpoint.Cosign(note, k.name, k.own, at), nil
}

// A remote is a witness as the asker reaches it.
type remote struct {
	*Witness
	target Target
	down   bool
	away   string // a host of it that doesn't answer

	began   time.Time
	outages [][2]time.Duration // since began
	lies    bool               // about the size that it has cosigned
	hangs   bool               // until the caller gives up
	panics  bool               // the reader of its answer
	asked   int

	answered, closed int // answers, and those whose connection is free again
}

func (r *remote) RoundTrip(req *http.Request) (*http.Response, error) {
	r.asked++

	if err := req.Context().Err(); err != nil {
		return nil, err
	}

	since := time.Since(r.began)
	if r.down || slices.ContainsFunc(r.outages, func(o [2]time.Duration) bool {
		return o[0] <= since && since < o[1]
	}) {
		return nil, errors.New("connection refused")
	}

	if r.hangs || req.URL.Host == r.away {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}

	if r.panics {
		panic("planted")
	}

	if r.lies {
		to := httptest.NewRecorder()
		to.WriteHeader(http.StatusConflict)
		fmt.Fprintf(to, "%d\n", 1<<40)

		return to.Result(), nil
	}

	to := httptest.NewRecorder()
	r.Handler().ServeHTTP(to, req)

	answer := to.Result()
	answer.Body = countedBody{answer.Body, &r.closed}
	r.answered++

	return answer, nil
}

// A countedBody counts when it is closed.
type countedBody struct {
	io.ReadCloser
	closed *int
}

func (b countedBody) Close() error {
	*b.closed++

	return b.ReadCloser.Close()
}

// newRemote returns a witness of the log, of its own memory and key.
func newRemote(n byte, every time.Duration) *remote {
	f := newFixture()
	own := &named{f.keys, fmt.Sprintf("witness%d.example", n)}
	own.own = ed25519.NewKeyFromSeed(append(make([]byte, 31), 10+n))

	cfg := f.cfg
	cfg.Keys = own
	cfg.Logs.Every = every

	r := &remote{Witness: New(cfg)}
	r.target = Target{
		Name: own.name, URLs: []string{"http://" + own.name + Prefix}, Every: every, Client: &http.Client{Transport: r},
		Keys: []checkpoint.VerifierKey{{
			Name: own.name, Type: checkpoint.TypeWitness, Key: own.own.Public().(ed25519.PublicKey),
		}},
	}

	return r
}

// ask runs an asker of the remotes for a time.
func ask(t *testing.T, log *ownLog, long time.Duration, remotes ...*remote) {
	t.Helper()
	run(t, newAsker(log, remotes...), long)
}

func newAsker(log *ownLog, remotes ...*remote) *Asker {
	return NewAsker(AskerConfig{
		Ledger: log, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Targets: func() (targets []Target) {
			for _, r := range remotes {
				targets = append(targets, r.target)
			}

			return targets
		},
	})
}

func run(t *testing.T, asker *Asker, long time.Duration) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()

	asker.Run(ctx)
}

// A panic on the answer of one witness is a failure of that witness.
//
// Requirement: FORM-006
func TestAPanicOnAnAnswerHoldsUpNoOtherWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newOwnLog(1)
		bad, good := newRemote(1, 10*time.Second), newRemote(2, 10*time.Second)
		bad.panics = true

		ask(t, log, time.Minute, bad, good)

		if bad.asked == 0 || len(log.full) == 0 {
			t.Errorf("the bad witness was asked %d times, and %d checkpoints were cosigned", bad.asked, len(log.full))
		}
	})
}

// Witnesses that may be asked at different times cosign one checkpoint: a quorum of two is reached at the pace
// of the slower one, even if the log grows all the time.
//
// Requirement: LOG-009, LOG-013
func TestAQuorumCosignsOneCheckpointInDifferentRounds(t *testing.T) {
	for name, c := range map[string]struct {
		pace  []time.Duration
		late  time.Duration // before the last witness answers for the first time
		every time.Duration // between two checkpoints with the quorum
	}{
		"out of phase":       {[]time.Duration{10 * time.Second, 10 * time.Second}, 5 * time.Second, 12 * time.Second},
		"of different pace":  {[]time.Duration{10 * time.Second, time.Minute}, 0, 62 * time.Second},
		"slow, out of phase": {[]time.Duration{time.Minute, time.Minute}, 30 * time.Second, 62 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newOwnLog(2)
				first, second := newRemote(1, c.pace[0]), newRemote(2, c.pace[1])

				// The second has cosigned before, so that it refuses for a while what it is asked.
				if c.late > 0 {
					if _, err := second.Add(t.Context(), log.submission(0, 1)); err != nil {
						t.Fatal(err)
					}

					time.Sleep(c.pace[1] - c.late)
					log.began = time.Now()
				}

				ask(t, log, 10*time.Minute, first, second)

				last := 2 * time.Minute // to find the pace of both
				for _, at := range append(log.full, 10*time.Minute) {
					if at > 2*time.Minute && at-last > c.every {
						t.Errorf("no checkpoint has the quorum from %s to %s", last, at)
					}

					last = max(last, at)
				}

				if len(log.full) == 0 {
					t.Error("no checkpoint has the quorum")
				}
			})
		})
	}
}

// A checkpoint with the quorum stays until another one has it: while a witness is down, the others are asked
// on, and their cosignatures do not take its place.
//
// Requirement: LOG-009, LOG-013
func TestACheckpointWithTheQuorumStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newOwnLog(2)
		first, second := newRemote(1, 10*time.Second), newRemote(2, 10*time.Second)

		ask(t, log, 30*time.Second, first, second)

		before := log.kept
		if before.Size == 0 || !log.Suffices(before, log.lines) {
			t.Fatalf("kept %+v with %q", before, log.lines)
		}

		second.down = true
		asked := first.asked

		ask(t, log, 10*time.Minute, first, second)

		if log.kept != before || first.asked < asked+50 {
			t.Errorf("kept size %d in place of %d; the other witness was asked %d times", log.kept.Size, before.Size,
				first.asked-asked)
		}

		second.down = false

		ask(t, log, 30*time.Second, first, second)

		if log.kept == before || !log.Suffices(log.kept, log.lines) {
			t.Errorf("after the return of the witness: size %d with %q", log.kept.Size, log.lines)
		}
	})
}

// Whatever one witness does, the others' cosignatures of one checkpoint come at their pace.
//
// Requirement: LOG-009, LOG-013
func TestOneBadWitnessDoesNotStopTheOthers(t *testing.T) {
	for name, spoil := range map[string]func(*remote){
		"away":                         func(r *remote) { r.down = true },
		"names a size beyond the log":  func(r *remote) { r.lies = true },
		"hangs at each of three nodes": func(r *remote) { r.hangs = true },
		"cosigns by an unknown key": func(r *remote) {
			r.target.Keys = newRemote(9, time.Second).target.Keys
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newOwnLog(2)
				first, second := newRemote(1, 10*time.Second), newRemote(2, 10*time.Second)

				bad := newRemote(3, 10*time.Second)
				bad.target.URLs = append(bad.target.URLs, bad.target.URLs[0], bad.target.URLs[0])
				spoil(bad)

				// The second may be asked five seconds after the first, so one checkpoint has to wait for it.
				if _, err := second.Add(t.Context(), log.submission(0, 1)); err != nil {
					t.Fatal(err)
				}

				time.Sleep(5 * time.Second)

				log.began = time.Now()

				ask(t, log, 10*time.Minute, bad, first, second)

				last := time.Duration(0)
				for _, at := range append(log.full, 10*time.Minute) {
					if at-last > 20*time.Second {
						t.Errorf("no checkpoint has the cosignatures of both from %s to %s", last, at)
					}

					last = at
				}

				if strings.Contains(log.lines, bad.target.Name) {
					t.Errorf("kept %q", log.lines)
				}

				for _, r := range []*remote{bad, first, second} {
					if r.closed != r.answered {
						t.Errorf("%d of %d answers were closed", r.closed, r.answered)
					}
				}
			})
		})
	}
}

// A ledger that doesn't grow is cosigned anew, but not each time that a witness may be asked.
//
// Requirement: LOG-009
func TestAnUnchangedLedgerIsCosignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newOwnLog(1)
		log.still = true

		r := newRemote(1, 10*time.Second)
		asker := newAsker(log, r)

		run(t, asker, time.Minute)

		first := log.lines

		run(t, asker, 70*time.Minute)

		if len(log.full) != 3 || log.lines == first {
			t.Errorf("cosigned at %v: first %q, and last %q", log.full, first, log.lines)
		}

		// That of the next epoch is another ledger, even if it has as many entries.
		log.origin = "beta.test/roster/8"
		r.cfg.Logs.Keys.(*keys).logs[beta] = []checkpoint.VerifierKey{log.vkey()}

		run(t, asker, time.Minute)

		if log.kept.Origin != log.origin {
			t.Errorf("cosigned is %s", log.kept.Origin)
		}
	})
}

// A new leader's cosignatures of a checkpoint are added to those that the one before has kept.
//
// Requirement: LOG-013
func TestCosignaturesOfTheFormerLeaderCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newOwnLog(2)
		log.still = true
		first, second := newRemote(1, 10*time.Second), newRemote(2, 10*time.Second)

		ask(t, log, 20*time.Second, first)

		first.down = true

		ask(t, log, 20*time.Second, first, second)

		if len(log.full) == 0 {
			t.Errorf("kept %q", log.lines)
		}
	})
}

// A witness is asked at its next node after one that takes all of the time, no sooner than it wants to be asked, and
// after a failure as soon as if there had been none before its last success.
//
// Requirement: LOG-009
func TestWhenAWitnessIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		every   time.Duration // by its operator; the asker knows of ten seconds
		away    string
		outages [][2]time.Duration
		within  time.Duration // since the last outage, for a cosignature
		most    int           // questions within 20 minutes
	}{
		"one node hangs": {10 * time.Second, "away.example", nil, 20 * time.Second, 130},
		"limited":        {time.Minute, "", nil, 2 * time.Second, 45},
		"away twice": {10 * time.Second, "", [][2]time.Duration{
			{0, 10 * time.Minute}, {16 * time.Minute, 16*time.Minute + 10500*time.Millisecond},
		}, 35 * time.Second, 90},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newOwnLog(1)
				r := newRemote(1, c.every)
				r.target.Every, r.away, r.outages, r.began = 10*time.Second, c.away, c.outages, log.began

				if c.away != "" {
					r.target.URLs = append([]string{"http://" + c.away}, r.target.URLs...)
				}

				ask(t, log, 20*time.Minute, r)

				last := time.Duration(0)
				if c.outages != nil {
					last = c.outages[len(c.outages)-1][1]
				}

				if !slices.ContainsFunc(log.full, func(at time.Duration) bool {
					return at > last && at <= last+c.within
				}) || r.asked > c.most {
					t.Errorf("asked %d times, cosigned at %v", r.asked, log.full)
				}
			})
		})
	}
}

// Without the quorum, too, the last checkpoint that somebody cosigned is kept.
//
// Requirement: LOG-013
func TestAPartOfTheQuorumIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newOwnLog(2)

		ask(t, log, 30*time.Second, newRemote(1, 10*time.Second))

		if log.kept.Size < 3 || strings.Count(log.lines, "\n") != 1 {
			t.Errorf("kept size %d with %q", log.kept.Size, log.lines)
		}
	})
}

// The end of a run, as at a change of the leader, says nothing about a witness that is being asked.
func TestTheEndOfARunIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(1, 10*time.Second)
		r.hangs = true

		asker := newAsker(newOwnLog(1), r)
		asker.cfg.Asked = func(_ string, err error) { t.Errorf("a witness fails: %v", err) }

		run(t, asker, askWithin-time.Second)

		if r.asked == 0 {
			t.Error("the witness was not asked")
		}
	})
}

// Of an answer, the lines by keys of the witness are kept. Others may stand beside them (C2SP tlog-witness), also
// such by another key of its name.
//
// Requirement: LOG-007
func TestOnlyTheLinesOfAWitnessAreKept(t *testing.T) {
	log := newOwnLog(1)
	note, err := checkpoint.Parse(log.note(1))
	must(t, err)

	r := newRemote(1, time.Minute)
	line := func(name string, seed byte) string {
		return checkpoint.Cosign(note, name, ed25519.NewKeyFromSeed(append(make([]byte, 31), seed)), time.Now())
	}
	own, renamed, rekeyed := line(r.target.Name, 11), line("other.example", 11), line(r.target.Name, 12)

	if got, err := cosignatures(note, renamed+own+rekeyed, r.target.Keys); err != nil || got != own {
		t.Errorf("got %q, %v; want %q", got, err, own)
	}

	if got, err := cosignatures(note, renamed+rekeyed, r.target.Keys); err == nil {
		t.Errorf("of others alone: %q", got)
	}
}
