package agents

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/webhook"
	"github.com/roster-mesh/roster/directory/durable"
)

// A delivery delivers the changes of a watch. Its file is a journal of the registrations as the receiver knows
// them, so that neither a restart nor a reset of the stream repeats or loses a change. A message is in the file
// before it is sent: if the command is killed, the next one sends it again by the same ID.
type delivery struct {
	sender *webhook.Sender
	name   string // of the journal
	watch  string // the command's name and filters
	lock   *os.File
	file   *os.File
	lines  int // since the journal was written whole

	domain  string // of the directory; empty before the first answer
	begun   bool   // the first state is complete, so that later events are changes
	lastID  string
	known   map[string]delivered // by keyOf
	pending *webhook.Message     // not taken by the receiver, as far as the journal says
	again   map[string]bool      // after a reset: the registrations that were sent again; else nil
}

// A delivered is a registration as the receiver knows it.
type delivered struct {
	Agent  string `json:"agent"`
	Origin string `json:"origin"`
	Hash   string `json:"hash"` // of the members that a refresh doesn't change
}

// A line of the journal. A message stands in the line of the change that it is about.
type line struct {
	Watch   string           `json:"watch,omitempty"`  // in the first line
	Domain  string           `json:"domain,omitempty"` // of the directory
	RID     string           `json:"rid,omitempty"`    // with its origin, as of keyOf
	Known   *delivered       `json:"known,omitempty"`  // nil after its removal
	Message *webhook.Message `json:"message,omitempty"`
	Taken   string           `json:"taken,omitempty"`  // the ID of the message that the receiver took
	Resume  string           `json:"resume,omitempty"` // the event behind which the stream goes on
	Current bool             `json:"current,omitzero"` // the first state is complete
}

// maxLines bounds the lines of the journal beyond one for each registration.
const maxLines = 10_000

// openDelivery opens the journal of a watch, and makes it if it doesn't exist.
func openDelivery(sender *webhook.Sender, name, watch string) (*delivery, error) {
	d := &delivery{sender: sender, name: name, watch: watch, known: map[string]delivered{}}

	err := d.open()
	if err != nil {
		d.close()
	}

	return d, err
}

func (d *delivery) open() (err error) {
	// Two commands with one journal would deliver everything twice. The journal itself is replaced.
	if d.lock, err = os.OpenFile(d.name+".lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return keepFailed(err)
	}

	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return cli.Failed(cli.ExitConflict, "another command delivers from the position %s (%w)", d.name, err)
	}

	text, err := os.ReadFile(d.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.Failed(cli.ExitFailed, "cannot read the position: %w", err)
	}

	for i, one := range bytes.SplitAfter(text, []byte("\n")) {
		if !bytes.HasSuffix(one, []byte("\n")) {
			// A command that was killed can leave a part of a line. Its message was not sent: messages are synced
			// first.
			break
		}

		var l line

		switch err := json.Unmarshal(one, &l, json.RejectUnknownMembers(true)); {
		case err != nil || i == 0 && l.Watch == "":
			return cli.Failed(cli.ExitFormat, "%s is no position of a watch: line %d is malformed", d.name, i+1)
		case i == 0 && l.Watch != d.watch:
			return cli.Usage("the position %s is of %q, and this is %q", d.name, l.Watch, d.watch).
				WithHint("Another filter has other changes: name another file with --position.")
		}

		d.apply(&l)
	}

	// From here on the file ends with a whole line: behind a part of one, the next line would be malformed.
	return d.compact()
}

func keepFailed(err error) error {
	return cli.Failed(cli.ExitFailed, "cannot keep the position: %w", err)
}

func (d *delivery) close() {
	for _, file := range []*os.File{d.file, d.lock} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// apply brings the state behind a line.
func (d *delivery) apply(l *line) {
	switch {
	case l.RID != "" && l.Known != nil:
		d.known[l.RID] = *l.Known
	case l.RID != "":
		delete(d.known, l.RID)
	}

	if l.Message != nil {
		d.pending = l.Message
	} else if d.pending != nil && l.Taken == d.pending.ID {
		d.pending = nil
	}

	if l.Resume != "" {
		d.lastID = l.Resume
	}

	d.begun = d.begun || l.Current
	d.domain = cmp.Or(l.Domain, d.domain)
}

// compact writes the journal whole.
func (d *delivery) compact() error {
	// The first line has the pending message, because a removed registration has no line of its own.
	lines := []line{{Watch: d.watch, Domain: d.domain, Resume: d.lastID, Current: d.begun, Message: d.pending}}

	for _, rid := range slices.Sorted(maps.Keys(d.known)) {
		known := d.known[rid]
		lines = append(lines, line{RID: rid, Known: &known})
	}

	var text bytes.Buffer

	for _, l := range lines {
		if err := appendLine(&text, &l); err != nil {
			return err
		}
	}

	// The file is replaced in one step, so that a crash leaves the old journal or the new one.
	err := durable.WriteFile(d.name, text.Bytes(), 0o600)
	if err != nil {
		return keepFailed(err)
	}

	if d.file != nil {
		// The open file is the replaced one, and lines that are appended to it would be lost.
		_ = d.file.Close()
	}

	if d.file, err = os.OpenFile(d.name, os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return keepFailed(err)
	}

	d.lines = 0

	return nil
}

func appendLine(to io.Writer, l *line) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = to.Write(append(text, '\n'))
	}

	if err != nil {
		return keepFailed(err)
	}

	return nil
}

// keep adds a line to the journal.
func (d *delivery) keep(l *line) error {
	if err := appendLine(d.file, l); err != nil {
		return err
	}

	// Memory follows the file: a change that could not be kept comes again after a restart.
	d.apply(l)

	if d.lines++; d.lines > len(d.known)+maxLines {
		return d.compact()
	}

	return nil
}

// flush delivers the pending message.
func (d *delivery) flush(ctx context.Context) error {
	if d.pending == nil {
		return nil
	}

	if err := d.sender.Send(ctx, d.pending); err != nil {
		return err
	}

	return d.keep(&line{Taken: d.pending.ID})
}

// answered binds the journal to the domain of the directory that answered first. The state of another one would
// remove everything that the receiver knows.
func (d *delivery) answered(header http.Header) error {
	// The directory's own domain comes first in its index.
	own, _, _ := strings.Cut(header.Get("Roster-Index"), "=")

	switch {
	case own == d.domain || own == "":
		return nil
	case d.domain == "":
		return d.keep(&line{Domain: own})
	}

	return cli.Usage("the position %s is of the directory of %s, and %s answered", d.name, d.domain, own).
		WithHint("Another directory has other registrations: name another file with --position, or choose the " +
			"connection with --context.")
}

// change keeps a change, and delivers it unless it belongs to the first state.
func (d *delivery) change(ctx context.Context, l *line, kind string, data jsontext.Value) error {
	if d.begun {
		l.Message = &webhook.Message{ID: "msg_" + rand.Text(), Type: "agent." + kind, At: time.Now().UTC(), Data: data}
	}

	if err := d.keep(l); err != nil {
		return err
	}

	if l.Message == nil {
		return nil
	}

	// A message that the disk lost would be made anew, with another ID.
	if err := d.file.Sync(); err != nil {
		return keepFailed(err)
	}

	return d.flush(ctx)
}

// keyOf returns by what a registration is known: each domain chooses its rids, and may choose another one's.
func keyOf(origin, rid string) string { return origin + "/" + rid }

// take applies an event of the watch, and delivers the change.
func (d *delivery) take(ctx context.Context, event *apiclient.WatchEvent) error {
	switch event.Kind {
	case apiclient.EventReset:
		// The registrations that come again are noted from here on, so that current finds those that ended.
		d.again = map[string]bool{}
		return nil

	case apiclient.EventAdded, apiclient.EventUpdated:
		return d.shown(ctx, event)

	case apiclient.EventRemoved:
		// The receiver never got a registration that the journal doesn't have, so its end is no change.
		key := keyOf(event.Removed.Origin, event.Removed.RID)
		if _, known := d.known[key]; !known {
			return nil
		}

		return d.change(ctx, &line{RID: key, Resume: event.ID}, event.Kind, event.Data)

	case apiclient.EventCurrent:
		return d.current(ctx, event.ID)
	}

	return nil
}

// shown applies the present state of a registration.
func (d *delivery) shown(ctx context.Context, event *apiclient.WatchEvent) error {
	key := keyOf(event.Item.Provenance.Authority, event.Item.Href[strings.LastIndexByte(event.Item.Href, '/')+1:])

	hash, err := hashOf(event.Data)
	if err != nil {
		return err
	}

	before, known := d.known[key]
	now := delivered{event.Item.Agent, event.Item.Provenance.Authority, hash}

	if d.again != nil {
		d.again[key] = true
	}

	kind := apiclient.EventAdded

	switch {
	// The state after a reset repeats known registrations, and the hash leaves out changes by a refresh.
	case before == now:
		return nil
	case known:
		kind = apiclient.EventUpdated
	}

	return d.change(ctx, &line{RID: key, Known: &now, Resume: event.ID}, kind, event.Data)
}

// current ends the state that follows a reset. Registrations that did not come again ended in between.
func (d *delivery) current(ctx context.Context, id string) error {
	for _, key := range slices.Sorted(maps.Keys(d.known)) {
		if d.again[key] {
			continue
		}

		before := d.known[key]

		// The stream has no event of this removal any more, so the message is made from the journal.
		data, err := json.Marshal(struct {
			Agent  string `json:"agent"`
			RID    string `json:"rid"`
			Origin string `json:"origin"`
			Why    string `json:"why"`
		}{before.Agent, strings.TrimPrefix(key, before.Origin+"/"), before.Origin, "missed"})
		if err != nil {
			return err
		}

		// The line names no event: after a crash here, the old position leads to a new reset or to the missed events.
		if err := d.change(ctx, &line{RID: key}, apiclient.EventRemoved, data); err != nil {
			return err
		}
	}

	d.again = nil

	return d.keep(&line{Resume: id, Current: true})
}

// momentary are the members of a provenance that differ from node to node or change with each refresh.
var momentary = []string{"expires_at", "received_at", "received_from", "revision", "verification", "origin_service"}

// hashOf returns a hash of a registration that is the same at each node and after each refresh.
func hashOf(data []byte) (string, error) {
	var item map[string]jsontext.Value
	if err := json.Unmarshal(data, &item); err != nil {
		return "", err
	}

	var provenance map[string]jsontext.Value
	if err := json.Unmarshal(item["provenance"], &provenance); err != nil {
		return "", err
	}

	for _, name := range momentary {
		delete(provenance, name)
	}

	delete(item, "provenance")

	text, err := json.Marshal([]map[string]jsontext.Value{item, provenance}, json.Deterministic(true))
	sum := sha256.Sum256(text)

	return base64.RawURLEncoding.EncodeToString(sum[:]), err
}
