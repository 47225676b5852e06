package agents

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/webhook"
)

// A receiver keeps the messages that it takes. While it is away, no request ends before its context.
type receiver struct {
	away  bool
	ids   []string
	taken []string // type and agent, and why it was removed
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	r.ids = append(r.ids, req.Header.Get("webhook-id"))

	if r.away {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}

	var message struct {
		Type string `json:"type"`
		Data struct {
			Agent string `json:"agent"`
			Why   string `json:"why"`
		} `json:"data"`
	}

	if err := json.UnmarshalRead(req.Body, &message); err != nil {
		return nil, err
	}

	r.taken = append(r.taken, strings.TrimSpace(message.Type+" "+message.Data.Agent+" "+message.Data.Why))

	return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader(""))}, nil
}

// begin starts a command with the receiver and a position.
func (r *receiver) begin(t *testing.T, file string) *delivery {
	t.Helper()

	sender := webhook.NewSender(&url.URL{Scheme: "https", Host: "hooks.example"}, []byte("secret"),
		&cli.Console{Quiet: true}, r)

	d, err := openDelivery(sender, file, "watch")
	must(t, err)

	t.Cleanup(d.close)

	return d
}

func (r *receiver) expect(t *testing.T, want ...string) {
	t.Helper()

	if strings.Join(r.taken, "; ") != strings.Join(want, "; ") {
		t.Errorf("the receiver took %q, want %q", r.taken, want)
	}

	r.taken = nil
}

// shown is an event about a registration with a base, as a node shows it at some moment.
func shown(kind, id, agent, base, moment string) *apiclient.WatchEvent {
	moment = "2026-11-28T17:00:0" + moment + "Z"
	data := fmt.Sprintf(`{"agent":%q,"base":%q,"href":"/ad/r/R-%s","provenance":{"origin_authority":"alpha.test",`+
		`"registrant":"spiffe://alpha.test/a","expires_at":%q,"verification":{"checked_at":%q}}}`,
		agent, base, agent, moment, moment)
	event := &apiclient.WatchEvent{Kind: kind, ID: id, Data: []byte(data), Item: &apiclient.Item{}}

	if err := json.Unmarshal(event.Data, event.Item); err != nil {
		panic(err)
	}

	return event
}

func removed(id, agent string) *apiclient.WatchEvent {
	data := fmt.Sprintf(`{"agent":%q,"rid":"R-%s","origin":"alpha.test","why":"expired"}`, agent, agent)

	return &apiclient.WatchEvent{Kind: apiclient.EventRemoved, ID: id, Data: []byte(data),
		Removed: &apiclient.Removal{Agent: agent, RID: "R-" + agent, Origin: "alpha.test"}}
}

func feed(t *testing.T, d *delivery, events ...*apiclient.WatchEvent) {
	t.Helper()

	for _, event := range events {
		must(t, d.take(t.Context(), event))
	}
}

// A peer that registers by the rid of another domain's registration hides no change of that one.
//
// Requirement: LOG-026
func TestAPeersRegistrationHidesNoOther(t *testing.T) {
	r := &receiver{}
	d := r.begin(t, filepath.Join(t.TempDir(), "position"))

	foreign := func(event *apiclient.WatchEvent) *apiclient.WatchEvent {
		event.Data = []byte(strings.ReplaceAll(string(event.Data), "alpha.test", "beta.test"))
		if event.Item != nil {
			event.Item.Provenance.Authority = "beta.test"
		} else {
			event.Removed.Origin = "beta.test"
		}

		return event
	}

	feed(t, d, reset, shown("added", "", "one", "https://a", "1"), current,
		foreign(shown("added", "e10", "one", "https://a", "1")), foreign(removed("e11", "one")), removed("e12", "one"))
	r.expect(t, "agent.added one", "agent.removed one expired", "agent.removed one expired")
}

var (
	reset   = &apiclient.WatchEvent{Kind: apiclient.EventReset}
	current = &apiclient.WatchEvent{Kind: apiclient.EventCurrent, ID: "e9"}
)

// The state at the first start is no change. Behind it each change is delivered once, also over a restart and a
// reset, with what changed meanwhile; that a node shows a registration at another moment is no change.
//
// Requirement: LOG-026
func TestOnlyChangesAreDelivered(t *testing.T) {
	r := &receiver{}
	file := filepath.Join(t.TempDir(), "position")

	d := r.begin(t, file)
	feed(t, d, reset, shown("added", "", "one", "https://a", "1"), shown("added", "", "two", "https://a", "1"),
		shown("added", "", "three", "https://a", "1"), current)
	r.expect(t)

	feed(t, d, shown("added", "e10", "four", "https://a", "1"), shown("updated", "e11", "one", "https://b", "2"),
		removed("e12", "two"), removed("e13", "unknown"))
	r.expect(t, "agent.added four", "agent.updated one", "agent.removed two expired")
	d.close()

	d = r.begin(t, file)
	if d.lastID != "e12" {
		t.Errorf("the watch is resumed behind %q", d.lastID)
	}

	feed(t, d, reset, shown("added", "", "one", "https://b", "3"), shown("added", "", "three", "https://c", "3"),
		shown("added", "", "five", "https://a", "3"), current)
	r.expect(t, "agent.updated three", "agent.added five", "agent.removed four missed")

	// A state that breaks off does not show which registrations have ended.
	feed(t, d, reset, shown("added", "", "one", "https://b", "4"), reset, shown("added", "", "five", "https://a", "4"),
		shown("added", "", "one", "https://b", "4"), shown("added", "", "three", "https://c", "4"), current)
	r.expect(t)
}

// A command that is killed while the receiver is away sends that message again by its ID, before others, and no
// change twice.
//
// Requirement: LOG-026
func TestAMessageOfAKilledCommandIsSentAgain(t *testing.T) {
	r := &receiver{}
	file := filepath.Join(t.TempDir(), "position")

	d := r.begin(t, file)
	feed(t, d, reset, current)

	r.away = true

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	if err := d.take(ctx, shown("added", "e10", "one", "https://a", "1")); err == nil {
		t.Fatal("a message was taken by no receiver")
	}

	id := r.ids[0]
	r.away = false
	r.ids = nil
	d.close() // as the end of the process does

	// The last line was cut off by the crash of the machine.
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(text, `{"rid":"R-tw`...), 0o600)
	}

	must(t, err)

	d = r.begin(t, file)
	must(t, d.flush(t.Context()))

	feed(t, d, shown("added", "e10", "one", "https://a", "1"), shown("added", "e11", "two", "https://a", "1"))
	r.expect(t, "agent.added one", "agent.added two")

	if len(r.ids) != 2 || r.ids[0] != id || r.ids[1] == id {
		t.Errorf("sent as %q, and first as %q", r.ids, id)
	}
}

// The journal does not grow with the changes.
func TestThePositionIsCompacted(t *testing.T) {
	r := &receiver{}
	file := filepath.Join(t.TempDir(), "position")
	d := r.begin(t, file)
	d.begun = true

	for range maxLines {
		must(t, d.keep(&line{Taken: "x"}))
	}

	feed(t, d, shown("added", "e10", "one", "https://a", "1"))

	if info, err := os.Stat(file); err != nil || info.Size() > 4096 {
		t.Errorf("got %v, %v", info.Size(), err)
	}

	d.close()

	if d = r.begin(t, file); len(d.known) != 1 || !d.begun || d.lastID != "e10" || d.pending != nil {
		t.Errorf("read as %+v", d)
	}
}

// A position is bound to the domain whose directory answered first, also after a restart.
//
// Requirement: LOG-026
func TestAPositionIsOfOneDirectory(t *testing.T) {
	r := &receiver{}
	file := filepath.Join(t.TempDir(), "position")
	answer := func(index string) http.Header { return http.Header{"Roster-Index": {index}} }

	for range 2 {
		d := r.begin(t, file)

		for _, index := range []string{"alpha.test=1.5", "alpha.test=2.1, beta.test=1.7", ""} {
			if err := d.answered(answer(index)); err != nil {
				t.Errorf("%q: %v", index, err)
			}
		}

		failure := cli.FailureOf(d.answered(answer("beta.test=1.7")))
		if failure.Code != cli.ExitUsage || !strings.Contains(failure.Message,
			"is of the directory of alpha.test, and beta.test answered") {
			t.Errorf("another directory: %+v", failure)
		}

		d.close()
	}
}

// A position that is of another watch, in use or none is refused, and left as it is.
func TestAPositionIsOfOneWatch(t *testing.T) {
	r := &receiver{}
	file := filepath.Join(t.TempDir(), "position")
	d := r.begin(t, file)

	if _, err := openDelivery(d.sender, file, "watch"); cli.FailureOf(err).Code != cli.ExitConflict {
		t.Errorf("a second command: %v", err)
	}

	d.close()

	if _, err := openDelivery(d.sender, file, "watch --agent=x"); cli.FailureOf(err).Code != cli.ExitUsage {
		t.Errorf("another filter: %v", err)
	}

	must(t, os.WriteFile(file, []byte("hello\n"), 0o600))

	if _, err := openDelivery(d.sender, file, "watch"); cli.FailureOf(err).Code != cli.ExitFormat {
		t.Errorf("another file: %v", err)
	}

	if text, err := os.ReadFile(file); string(text) != "hello\n" {
		t.Errorf("it is %q, %v", text, err)
	}
}

// A position is of what a watch selects, and outlives a change of the receiver and the output.
func TestAPositionIsOfTheFilters(t *testing.T) {
	cmd := watchCommand(nil)
	must(t, cmd.ParseFlags([]string{"--webhook=https://hooks.example", "--position=p", "--cap=print"}))

	if got := filters(cmd); got != "watch --cap=[print]" {
		t.Errorf("the filters are %q", got)
	}
}
