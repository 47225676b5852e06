package node

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/trust/audit"
)

// Commands that a node applied and did not check are counted, logged as an error and recorded apart
// from those that came in a snapshot.
//
// Requirement: SEC-012
func TestUncheckedCommandsAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")

	trail, err := audit.Open(path, audit.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	var log bytes.Buffer

	m := metrics.New("1.0.0")
	r := &commandRecorder{trail: trail, log: slog.New(slog.NewTextHandler(&log, nil)), unchecked: m.Unchecked}
	r.missed(1, 5, 4, 4) // none

	// The reader has seen number 100 before a restore.
	if last := r.recordNews(consensus.News{After: 1, Newest: 10, InState: 4}, 1); last != 10 {
		t.Errorf("it goes on behind %d", last)
	}

	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}

	page := httptest.NewRecorder()
	m.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))

	for reason, want := range map[string]string{metrics.MissedSnapshot: "3", metrics.MissedOverflow: "6"} {
		series := `roster_operator_commands_unchecked_total{reason="` + reason + `"} ` + want
		if !strings.Contains(page.Body.String(), series) {
			t.Errorf("no series %s", series)
		}
	}

	if bytes.Count(log.Bytes(), []byte("level=WARN")) != 1 || bytes.Count(log.Bytes(), []byte("level=ERROR")) != 1 {
		t.Errorf("the log is %s", log.Bytes())
	}

	tail, err := audit.ReadTail(path, time.Now())
	if err != nil || len(tail.Suspect) != 1 || tail.Suspect[0].Outcome != directory.OutcomeUnchecked ||
		tail.Suspect[0].Count != 6 {
		t.Errorf("suspect are %+v, %v", tail.Suspect, err)
	}
}

// A bundle is checked at its endpoint once: not again when the node starts and applies its log again,
// but whenever it is behind the log that the node had, whatever number its command has.
//
// Requirement: SEC-012
func TestABundleIsCheckedOnce(t *testing.T) {
	trail, err := audit.Open(filepath.Join(t.TempDir(), "audit.jsonl"),
		audit.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = trail.Close() })

	checked := 0
	r := &commandRecorder{
		trail: trail, log: slog.New(slog.DiscardHandler), bundle: func(*directory.BundleChange) { checked++ },
		started: directory.Position{Epoch: 1, Revision: 5},
	}

	for _, c := range []struct {
		number uint64
		again  bool
		want   int
	}{{5, true, 0}, {5, false, 1}, {6, true, 1}, {7, false, 1}} {
		checked = 0
		r.record(directory.OperatorCommand{
			OperatorChange: directory.OperatorChange{
				Action: directory.ActionBundle, Node: true, Bundle: &directory.BundleChange{},
			},
			Number: c.number, Position: directory.Position{Epoch: 1}, Again: c.again,
		})

		if checked != c.want {
			t.Errorf("number %d, again %t: checked %d times", c.number, c.again, checked)
		}
	}
}
