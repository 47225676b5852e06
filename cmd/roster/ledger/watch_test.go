package ledger

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/cmd/roster/webhook"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
)

// A domain is a directory with a log, which grows up to the size that is shown.
type domain struct {
	*server
	seed   string // of the key
	shown  int64
	change func(*checkpoint.Checkpoint) // nil for the log's own
	bundle string
	agents []string
	sheds  bool // lookups are answered 503
	away   bool
	lacks  int // so many requests for a tile or entries are answered 404
}

func newDomain(t *testing.T, shown int64) *domain {
	t.Helper()
	return &domain{server: newServer(t, 600), seed: "a", shown: shown, bundle: "{}"}
}

func (d *domain) key() ed25519.PrivateKey {
	seed := directory.HashOf([]byte(d.seed))
	return ed25519.NewKeyFromSeed(seed[:])
}

func (d *domain) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.away {
		return nil, io.ErrUnexpectedEOF
	}

	answer := func(status int, text string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(text))}, nil
	}

	switch path := r.URL.Path; {
	case path == "/log/checkpoint":
		resp, err := answer(http.StatusFound, "")
		resp.Header.Set("Location", "/log/1/checkpoint")

		return resp, err
	case path == "/log/1/checkpoint":
		c := d.checkpoint(d.shown)
		if d.change != nil {
			d.change(&c)
		}

		return answer(http.StatusOK, checkpoint.Sign(c, d.key()))
	case path == "/log/1/policy":
		vkey := checkpoint.VerifierKey{Name: "alpha.test/roster/1", Type: checkpoint.TypeLog,
			Key: d.key().Public().(ed25519.PublicKey)}

		return answer(http.StatusOK, "log "+vkey.String()+"\nquorum none\n")
	case path == "/log/1/start":
		return answer(http.StatusOK, string(begun.Payload()))
	case path == "/bundles/alpha.test":
		return answer(http.StatusOK, d.bundle)
	case path == "/ad/l" && d.sheds:
		return answer(http.StatusServiceUnavailable, "")
	case path == "/ad/l":
		var items []string
		for _, agent := range d.agents {
			items = append(items, fmt.Sprintf(`{"agent":%q,"href":"/ad/r/beta.test/R-%s",`+
				`"provenance":{"origin_authority":"beta.test"}}`, agent, agent))
		}

		return answer(http.StatusOK, `{"agents":[`+strings.Join(items, ",")+`]}`)
	case path == "/ad/r/beta.test/R-payments/record":
		return answer(http.StatusOK, recordBroughtBy("spiffe://beta.test/roster/node/2"))
	case d.lacks > 0:
		d.lacks--
		return answer(http.StatusNotFound, "")
	}

	return d.server.RoundTrip(r)
}

// recordBroughtBy returns a record that names the node which brought it, without a signature that holds.
func recordBroughtBy(node string) string {
	id := spiffeid.RequireFromString(node)

	payload, err := signed.Statement(signed.StatementFormat, &signed.Change{
		Issuer: id.TrustDomain(), RID: directory.NewRID(1, [10]byte{}), Op: signed.OpPut, Epoch: 1, Revision: 1,
		Extension: signed.BroughtBy(id),
	}, []signed.Disclosure{{Object: "reg", Name: "kind", Text: "WyIiLCIiLDFd"}})
	if err != nil {
		panic(err)
	}

	return signed.Record{JWS: "e30." + directory.B64.EncodeToString(payload) + ".AA"}.String()
}

// A run is one start of the command.
type run struct {
	events []event
	notes  string
	err    error
}

func (r *run) kinds() string {
	var kinds []string
	for _, e := range r.events {
		kinds = append(kinds, e.Event)
	}

	return strings.Join(kinds, ", ")
}

// watch follows domains for a time. Each is named by its index.
func watch(t *testing.T, dir string, long time.Duration, sender *webhook.Sender, domains ...*domain) *run {
	t.Helper()

	var out, notes bytes.Buffer

	m := &monitor{sender: sender, every: 10 * time.Second, silence: 5 * time.Minute, agent: "pay*",
		session: &connect.Session{Console: &cli.Console{Stdout: &out, Stderr: &notes, Format: cli.FormatJSON}}}

	var all []*follower

	for i, d := range domains {
		client := apiclient.NewDirect("https://alpha.test", &http.Client{Transport: d,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
		session := &connect.Session{Console: m.session.Console, Directory: &connect.Directory{
			Dial: func() (*apiclient.Client, error) { return client, nil },
		}}

		name := fmt.Sprintf("log%d", i)

		f := &follower{monitor: m, session: session, name: name, file: filepath.Join(dir, name)}
		if err := f.load(); err != nil {
			t.Fatal(err)
		}

		all = append(all, f)
	}

	ctx, stop := context.WithCancel(t.Context())
	timer := time.AfterFunc(long, stop)
	r := &run{err: m.run(ctx, all)}

	timer.Stop()
	stop()

	r.notes = notes.String()

	for line := range strings.Lines(out.String()) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}

		r.events = append(r.events, e)
	}

	return r
}

func expect(t *testing.T, r *run, code int, kinds ...string) {
	t.Helper()

	if got := r.kinds(); got != strings.Join(kinds, ", ") {
		t.Errorf("got the events %s, want %s; notes:\n%s", got, strings.Join(kinds, ", "), r.notes)
	}

	if got := cli.FailureOf(r.err).Code; got != code {
		t.Errorf("exit code %d (%v), want %d", got, r.err, code)
	}
}

// A watch reports each entry that says who speaks for the domain, and changes of policy, trust bundle and
// names, each once, over restarts too.
//
// Requirement: LOG-016
func TestAWatchReportsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, d := t.TempDir(), newDomain(t, 260)

		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted, "begun")
		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted)

		d.shown = 267 // entries of the types 2 to 7 and 1, of which 2 and 1 are registrations
		d.lacks = 3   // a node that is behind answers first
		r := watch(t, dir, time.Minute, nil, d)
		expect(t, r, cli.ExitInterrupted, "key document", "bundle", "epoch", "operator command", "audit head")

		if len(r.events) == 5 && (*r.events[0].Index != 261 || r.events[0].Log != "alpha.test/roster/1" ||
			r.events[2].Detail != "follows alpha.test/roster/8, which ended with 31 entries; revision 20 was restored: a test") {
			t.Errorf("got %+v", r.events)
		}

		d.shown = 271 // the payload that is served is not that of the second one
		r = watch(t, dir, time.Minute, nil, d)
		expect(t, r, cli.ExitInterrupted, "key document", "bundle", "epoch")

		if len(r.events) == 3 && strings.Contains(r.events[2].Detail, "follows") {
			t.Errorf("got %+v", r.events[2])
		}

		d.seed = "b"
		d.bundle = `{"keys":[]}`
		d.agents = []string{"pay", "payments"}

		r = watch(t, dir, time.Minute, nil, d)
		expect(t, r, cli.ExitInterrupted, "policy", "trust bundle", "registration", "registration")

		if len(r.events) == 4 && (strings.Count(r.events[0].Detail, "log alpha.test/roster/1+") != 2 ||
			r.events[2].BroughtBy != "" || r.events[3].BroughtBy != "spiffe://beta.test/roster/node/2" ||
			r.events[3].Agent != "payments" || r.events[3].RID != "R-payments" || r.events[3].Origin != "beta.test") {
			t.Errorf("got %+v", r.events)
		}

		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted)
	})
}

// Entries are reported once, also while the directory can't be asked for names. While too many match, one event says
// so, and no earlier report is repeated afterwards.
//
// Requirement: LOG-016
func TestAWatchReportsNothingTwiceForItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, d := t.TempDir(), newDomain(t, 260)
		d.agents = []string{"pay"}
		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted, "begun", "registration")

		d.sheds, d.shown = true, 262 // a batch and a key document
		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted, "key document")

		d.sheds = false
		for i := range maxMatching {
			d.agents = append(d.agents, fmt.Sprintf("pay-%d", i))
		}

		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted, "too many matches")
		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted)

		d.agents = []string{"pay", "payments"}
		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted, "registration")
	})
}

// The event of a new log names the log that was seen before. It doesn't claim that the new one names it.
//
// Requirement: LOG-016
func TestAWatchReportsANewLogBesideTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, d := t.TempDir(), newDomain(t, 260)

		old := d.checkpoint(7)
		old.Origin = "alpha.test/roster/0"

		if err := os.WriteFile(filepath.Join(dir, "log0.checkpoint"), []byte(checkpoint.Sign(old, d.key())),
			0o600); err != nil {
			t.Fatal(err)
		}

		r := watch(t, dir, time.Minute, nil, d)
		if len(r.events) == 0 || r.events[0].Event != "new log" || r.events[0].Log != "alpha.test/roster/1" ||
			r.events[0].Detail != "the log seen before was alpha.test/roster/0, with 7 entries" {
			t.Errorf("got %+v; notes:\n%s", r.events, r.notes)
		}
	})
}

// A log that breaks its word is reported and kept as broken, with both checkpoints, also if it is honest again
// later. Other logs are followed on, and the exit code is that of the verdict.
//
// Requirement: LOG-016, LOG-017
func TestAWatchEndsWithTheVerdictOnABrokenLog(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*checkpoint.Checkpoint)
		shown  int64
		code   int
	}{
		"two roots":   {func(c *checkpoint.Checkpoint) { c.Root[0]++ }, 260, exitEquivocation},
		"another log": {func(c *checkpoint.Checkpoint) { c.Root[0]++ }, 300, exitInclusion},
		"smaller":     {nil, 200, exitRollback},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, liar, honest := t.TempDir(), newDomain(t, 260), newDomain(t, 260)
				watch(t, dir, time.Minute, nil, liar, honest)

				liar.change, liar.shown = c.change, c.shown

				began := time.Now()
				first := watch(t, dir, 2*time.Minute, nil, liar, honest)
				expect(t, first, c.code, "broken")

				if took := time.Since(began); took < 2*time.Minute {
					t.Errorf("the honest log was followed for %v", took)
				}

				if len(first.events) == 0 {
					t.FailNow()
				}

				kept, err := os.ReadFile(filepath.Join(dir, "log0.broken"))
				if err != nil || strings.Count(string(kept), "\nalpha.test/roster/1\n") != 2 {
					t.Errorf("kept %s, %v", kept, err)
				}

				liar.change, liar.shown, honest.shown = nil, 260, 265

				again := watch(t, dir, 2*time.Minute, nil, liar, honest)

				same := slices.ContainsFunc(again.events, func(e event) bool { return e.ID == first.events[0].ID })
				if !same || len(again.events) < 2 || cli.FailureOf(again.err).Code != c.code {
					t.Errorf("the next start reports %+v after %+v, and ends with %v", again.events, first.events,
						again.err)
				}

				began = time.Now()
				alone := watch(t, dir, time.Hour, nil, liar)
				expect(t, alone, c.code, "broken")

				if took := time.Since(began); took > time.Minute {
					t.Errorf("without a log to follow it ended after %v", took)
				}
			})
		})
	}
}

// A log that can't be read, or that no key of the policy signed, is not taken for a quiet one.
//
// Requirement: LOG-016
func TestAWatchReportsASilentLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, d := t.TempDir(), newDomain(t, 260)
		watch(t, dir, time.Minute, nil, d)

		d.away = true
		expect(t, watch(t, dir, 4*time.Minute, nil, d), cli.ExitInterrupted)
		expect(t, watch(t, dir, 4*time.Minute, nil, d), cli.ExitInterrupted, "silent")
		expect(t, watch(t, dir, time.Hour, nil, d), cli.ExitInterrupted)

		d.away = false
		expect(t, watch(t, dir, time.Minute, nil, d), cli.ExitInterrupted, "well again")

		d.change = func(c *checkpoint.Checkpoint) { c.Origin = "mallory.test/roster/1" }
		r := watch(t, dir, 7*time.Minute, nil, d)
		expect(t, r, cli.ExitInterrupted, "silent")

		if len(r.events) == 1 && !strings.Contains(r.events[0].Detail, "no log of the policy signed") {
			t.Errorf("got %+v", r.events[0])
		}
	})
}

// A receiver refuses for a while, and keeps the ids of the messages that it took.
type receiver struct {
	refuses bool
	ids     []string
	body    []byte // of the last request
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	status := http.StatusServiceUnavailable
	if !r.refuses {
		status = http.StatusNoContent
		r.ids = append(r.ids, req.Header.Get("webhook-id"))
	}

	var err error
	if r.body, err = io.ReadAll(req.Body); err != nil {
		return nil, err
	}

	return &http.Response{StatusCode: status, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader(""))}, nil
}

// An event that was not delivered before the command was killed is reported again, by the same id.
//
// Requirement: LOG-016, LOG-026
func TestAnEventThatWasNotDeliveredIsReportedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, d, r := t.TempDir(), newDomain(t, 260), &receiver{}
		sender := webhook.NewSender(&url.URL{Scheme: "https", Host: "hooks.example"}, []byte("secret"),
			&cli.Console{Quiet: true}, r)

		watch(t, dir, time.Minute, sender, d)

		d.shown = 263
		r.refuses = true
		r.ids = nil
		before := watch(t, dir, time.Minute, sender, d)

		d.shown = 267
		r.refuses = false
		after := watch(t, dir, time.Minute, sender, d)

		expect(t, before, cli.ExitInterrupted, "key document")
		expect(t, after, cli.ExitInterrupted, "key document", "bundle", "epoch", "operator command", "audit head")

		if len(r.ids) != 5 || len(before.events) != 1 || r.ids[0] != before.events[0].ID {
			t.Errorf("took %q after %+v", r.ids, before.events)
		}
	})
}

// The time in a message is absolute, even if the command prints a table on a terminal.
//
// Requirement: LOG-026
func TestAMessageHasAnAbsoluteTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{}
		console := cli.NewConsole(cli.Streams{Out: io.Discard, Err: io.Discard, OutIsTerminal: true}, "roster")
		m := &monitor{session: &connect.Session{Console: console},
			sender: webhook.NewSender(&url.URL{Scheme: "https", Host: "hooks.example"}, []byte("secret"), console, r)}

		err := m.run(t.Context(), nil)
		if err := errors.Join(err, m.report(t.Context(), event{Event: "begun", Name: theLog})); err != nil {
			t.Fatal(err)
		}

		var message struct {
			Data struct {
				At string `json:"at"`
			} `json:"data"`
		}
		if err := json.Unmarshal(r.body, &message); err != nil {
			t.Fatal(err)
		}

		if want := cli.FormatTime(time.Now()); message.Data.At != want {
			t.Errorf("the message is of %q, want %q", message.Data.At, want)
		}
	})
}

// A log that wasn't read when the time is over is a failure, so that a check that sees nothing isn't taken for a good
// one.
//
// Requirement: LOG-026
func TestAWatchThatReadNothingFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()

	for trouble, want := range map[error]bool{nil: false, io.ErrUnexpectedEOF: true} {
		err := verdictOf(ctx, []*follower{{name: theLog}, {name: "beta", trouble: trouble}}, make([]error, 2))
		if failed := err != nil; failed != want {
			t.Errorf("after %v: %v", trouble, err)
		}
	}
}

// pages answers a lookup in two pages.
type pages struct{}

func (pages) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")

	if r.URL.Query().Get("after") == "" {
		w.Header().Set("Link", `</ad/l?after=1>; rel="next"`)
	}

	_, _ = io.WriteString(w, `{"agents":[{"agent":"printer","href":"/ad/r/1"}]}`)

	return w.Result(), nil
}

// The registrations of a name are those of all pages.
//
// Requirement: LOG-026
func TestAllRegistrationsOfANameAreWatched(t *testing.T) {
	m := &monitor{agent: "printer"}

	found, err := m.matching(t.Context(), apiclient.NewDirect("https://alpha.test", &http.Client{Transport: pages{}}))
	if err != nil || len(found) != 2 {
		t.Errorf("found %+v, %v", found, err)
	}
}

// A log that is smaller than it was may be that of a node behind for a minute. Another time it has a minute again.
func TestANodeMayBeBehindForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &follower{old: &checkpoint.Note{Checkpoint: checkpoint.Checkpoint{Origin: "alpha.test", Size: 10}}}

		for _, step := range []struct {
			after time.Duration
			size  uint64
			want  bool
		}{
			{0, 9, true}, {lagsFor - 1, 8, true}, {1, 9, false}, {0, 10, false}, // it has caught up
			{lagsFor, 9, true}, {lagsFor - 1, 9, true}, {lagsFor, 9, false},
		} {
			<-time.After(step.after)

			note := &checkpoint.Note{Checkpoint: checkpoint.Checkpoint{Origin: "alpha.test", Size: step.size}}
			if got := f.lags(note); got != step.want {
				t.Errorf("%+v: %t", step, got)
			}
		}
	})
}
