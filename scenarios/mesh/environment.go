package mesh

import (
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roster-mesh/roster/trust"
)

// An environment is shared by all domains and nodes of a mesh: the test, the network and
// the journal of the story.
type environment struct {
	T   testing.TB
	Net *Network

	options  Options
	log      *slog.Logger
	bundles  *trust.Bundles // of all domains: the stories' clients trust them
	dir      string
	journal  journal
	drowsing atomic.Bool
}

func newEnvironment(t testing.TB, options Options) *environment {
	e := &environment{
		T:       t,
		Net:     New(options.Seed),
		options: options,
		log:     logger(t, options.Log),
		bundles: trust.NewBundles(),
		dir:     t.TempDir(),
		journal: journal{begun: time.Now()},
	}
	e.Net.SetAll(options.Link)
	t.Cleanup(func() { e.journal.print(t) })

	return e
}

func logger(t testing.TB, handler slog.Handler) *slog.Logger {
	if handler != nil {
		return slog.New(handler)
	}

	var level slog.Level
	if level.UnmarshalText([]byte(os.Getenv("STORY_LOG"))) != nil {
		return slog.New(slog.DiscardHandler)
	}

	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

// Drowse slows the work that no event asks for (federation.Stretch) sixty times on all
// nodes, or ends that. Waits that are under way keep their length.
func (e *environment) Drowse(yes bool) { e.drowsing.Store(yes) }

// drowsy is the factor by which Drowse stretches federation's pace.
const drowsy = 60

func (e *environment) stretch() float64 {
	if e.drowsing.Load() {
		return drowsy
	}

	return 1
}

// Eventually tries until try returns nil, and fails the test if that takes longer than
// the bound. It returns the time that it took, to 50 ms.
func (e *environment) Eventually(bound time.Duration, what string, try func() error) time.Duration {
	e.T.Helper()

	start := time.Now()
	for {
		err := try()

		took := time.Since(start)
		if err == nil {
			e.Note("%s, after %v", what, took)
			return took
		}

		if took >= bound {
			e.T.Fatalf("not within %v: %s: %v", bound, what, err)
		}

		time.Sleep(50 * time.Millisecond)
	}
}

func (e *environment) must(err error) {
	e.T.Helper()

	if err != nil {
		e.T.Fatal(err)
	}
}

func (e *environment) report(err error) {
	if err != nil {
		e.T.Error(err)
	}
}

// Note writes a step into the journal. The methods of this package note their own steps.
// Safe for concurrent use.
func (e *environment) Note(format string, args ...any) { e.journal.note(format, args...) }

// noted notes a step with its outcome, and returns that.
func (e *environment) noted(err error, format string, args ...any) error {
	e.journal.outcome(err, format, args...)
	return err
}
