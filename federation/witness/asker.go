package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/contain"
)

// A Target is a witness of the domain's ledger: a peer, any of whose nodes cosigns, or an outside one.
type Target struct {
	Name   string                   // the peer's domain, or the name of the witness's key
	URLs   []string                 // prefixes of submissions, one of each node
	Keys   []checkpoint.VerifierKey // it cosigns by one of them
	Every  time.Duration            // at least that lies between two submissions
	Client *http.Client
}

// A Ledger is the domain's own, with the cosignatures that its members keep.
type Ledger interface {
	// Leads reports whether this member asks the witnesses.
	Leads() bool
	// Checkpoint returns the newest checkpoint, signed by this node.
	Checkpoint() (note string, err error)
	// Consistency returns the proof that a checkpoint continues the ledger of a smaller size.
	Consistency(old uint64, c checkpoint.Checkpoint) ([]directory.Hash, error)
	// Cosigned returns the checkpoint whose cosignatures are kept, and these; size 0 without any.
	Cosigned() (c checkpoint.Checkpoint, lines string)
	// Suffices reports whether the cosignatures of a checkpoint are the quorum that the domain asks for.
	Suffices(c checkpoint.Checkpoint, lines string) bool
	// Keep keeps the cosignatures of a checkpoint, for all members.
	Keep(ctx context.Context, c checkpoint.Checkpoint, lines string) error
}

// AskerConfig configures an Asker.
type AskerConfig struct {
	Ledger  Ledger
	Targets func() []Target
	Logger  *slog.Logger
	Panics  *contain.Panics // counts panics on the answers of witnesses; nil counts nothing
	// Asked is called with the outcome of each submission; nil is nothing.
	Asked func(target string, err error)
	// Pace lengthens the waits between looks at the ledger; nil is 1.
	Pace func() float64
}

const (
	lookEvery   = time.Second      // how often the ledger is looked at
	askWithin   = 5 * time.Second  // of one witness, all of its nodes together
	renewAfter  = 30 * time.Minute // a ledger that doesn't grow is cosigned anew
	spare       = 250 * time.Millisecond
	maxAnswer   = 64 << 10
	maxBackoff  = 5 * time.Minute
	logSilently = 3 // failures of a witness in a row that are no warning yet
	// A new checkpoint waits so long for a witness that may not be asked yet: a quorum cosigns one checkpoint
	// only if it is submitted to all of them.
	alignWithin = 15 * time.Second
)

// An Asker has the checkpoints of the domain's ledger cosigned, while this member leads. A witness that is
// down holds up nothing.
type Asker struct {
	cfg      AskerConfig
	asked    map[string]*asked // by the name of the target
	proposal *proposal         // nil before the first
}

// A proposal is the checkpoint that is submitted to the witnesses, to each when it may be asked. Another one
// follows it when all that answer have cosigned it, so that their cosignatures are of one checkpoint.
type proposal struct {
	note     *checkpoint.Note
	at       time.Time
	lines    string
	cosigned map[string]bool // by the name of the target
}

// asked is the asker's state of one witness. One round at a time uses it.
type asked struct {
	size     uint64 // cosigned last
	due      time.Time
	failures int
	prefer   int // of the target's URLs
}

// NewAsker returns an asker, which Run has work.
func NewAsker(cfg AskerConfig) *Asker { return &Asker{cfg: cfg, asked: map[string]*asked{}} }

// Run asks until ctx ends.
func (a *Asker) Run(ctx context.Context) {
	for {
		wait := lookEvery
		if a.cfg.Pace != nil {
			wait = time.Duration(float64(wait) * a.cfg.Pace())
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}

		if a.cfg.Ledger.Leads() {
			a.round(ctx)
		}
	}
}

// round submits a checkpoint to the witnesses that are due, and keeps their cosignatures.
func (a *Asker) round(ctx context.Context) {
	targets := a.cfg.Targets()
	if len(targets) == 0 {
		return
	}

	text, err := a.cfg.Ledger.Checkpoint()
	if err != nil {
		return // this node lacks entries, or its key is not listed yet
	}

	note, err := checkpoint.Parse(text)
	if err != nil {
		a.cfg.Logger.Error("the ledger's own checkpoint", "err", err)
		return
	}

	if a.proposal != nil && note.Origin != a.proposal.note.Origin { // a new epoch
		a.proposal = nil
	}

	a.know(targets)

	if now := time.Now(); a.mayPropose(targets, note, now) {
		a.proposal = &proposal{note: note, at: now, cosigned: map[string]bool{}}
	}

	a.collect(ctx, targets)
}

// know takes up new targets.
func (a *Asker) know(targets []Target) {
	for _, target := range targets {
		if a.asked[target.Name] == nil {
			last, _ := a.cfg.Ledger.Cosigned() // a guess; the witness states its own size
			a.asked[target.Name] = &asked{size: last.Size}
		}
	}
}

// mayPropose reports whether a checkpoint takes the place of the present proposal: the witnesses that
// answer have cosigned that one, and at least one of them may be asked again.
func (a *Asker) mayPropose(targets []Target, note *checkpoint.Note, now time.Time) bool {
	last := a.proposal

	switch {
	case last == nil:
		return true
	case last.note.Size == note.Size && now.Sub(last.at) < renewAfter:
		return false
	case a.isOvertaken(targets, note):
		return true
	}

	// The cosignatures of a checkpoint without the quorum are worth nothing: the rest of it is waited for.
	patience := alignWithin
	if !a.cfg.Ledger.Suffices(last.note.Checkpoint, last.lines) {
		patience = renewAfter
	}

	due := false

	for _, target := range targets {
		state := a.asked[target.Name]
		wait := state.due.Sub(now)
		due = due || wait <= 0

		switch {
		case state.failures > 0:
			// A witness that fails isn't waited for.
		case !last.cosigned[target.Name] && wait <= patience, wait > 0 && wait <= alignWithin:
			return false
		}
	}

	return due
}

// isOvertaken reports whether a witness has cosigned a later checkpoint than the proposal, as it did for a former
// leader. A size beyond the ledger is a false one, and must not keep the others from cosigning one checkpoint.
func (a *Asker) isOvertaken(targets []Target, note *checkpoint.Note) bool {
	return slices.ContainsFunc(targets, func(target Target) bool {
		size := a.asked[target.Name].size
		return size > a.proposal.note.Size && size <= note.Size
	})
}

// collect submits the proposal to the witnesses that are due, and keeps it once it has the quorum. One
// without the quorum does not take the place of one that has it.
func (a *Asker) collect(ctx context.Context, targets []Target) {
	var (
		p      = a.proposal
		lines  = make([]string, len(targets))
		asking sync.WaitGroup
	)

	for i, target := range targets {
		if state := a.asked[target.Name]; !p.cosigned[target.Name] && !time.Now().Before(state.due) {
			asking.Go(func() { lines[i] = a.ask(ctx, target, state, p.note) })
		}
	}

	asking.Wait()

	added := strings.Join(lines, "")
	for i, target := range targets {
		if lines[i] != "" {
			p.cosigned[target.Name] = true
		}
	}

	if added == "" {
		return
	}

	p.lines = merge(p.lines, added)

	// A former leader may have kept cosignatures of this checkpoint.
	last, kept := a.cfg.Ledger.Cosigned()
	if last == p.note.Checkpoint {
		p.lines = merge(kept, p.lines)
	}

	if last.Size > 0 && a.cfg.Ledger.Suffices(last, kept) &&
		!a.cfg.Ledger.Suffices(p.note.Checkpoint, p.lines) {
		return
	}

	if err := a.cfg.Ledger.Keep(ctx, p.note.Checkpoint, p.lines); err != nil && ctx.Err() == nil {
		a.cfg.Logger.Warn("cosignatures of the ledger can't be kept", "size", p.note.Size, "err", err)
	}
}

// ask submits a checkpoint to a witness, at each of its nodes until one cosigns it, and returns its line.
func (a *Asker) ask(ctx context.Context, target Target, state *asked, note *checkpoint.Note) (line string) {
	err := errors.New("no address of it is known")

	// The cosignatures of the other witnesses wait for this one, however many nodes it has that don't answer.
	within, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()

	for range target.URLs {
		url := target.URLs[state.prefer%len(target.URLs)]

		err = a.cfg.Panics.Run(contain.Ledger, func() (err error) {
			line, err = a.submit(within, target, url, state, note)
			return err
		})
		if err == nil {
			break
		}

		// The next attempt begins at the next node, even if this one has taken all of the time.
		if state.prefer++; within.Err() != nil {
			break
		}
	}

	// The end of Run says nothing about the witness.
	if ctx.Err() != nil {
		return ""
	}

	if a.cfg.Asked != nil {
		a.cfg.Asked(target.Name, err)
	}

	now := time.Now()

	if err == nil {
		if state.failures >= logSilently {
			a.cfg.Logger.Info("a witness cosigns the ledger again", "witness", target.Name)
		}

		state.size = note.Size
		state.due = now.Add(target.Every + spare)
		state.failures = 0

		return line
	}

	state.failures++
	state.due = now.Add(backoff(target.Every, state.failures, err))

	if state.failures == logSilently {
		a.cfg.Logger.Warn("a witness does not cosign the ledger; nothing else is held up", "witness", target.Name,
			"err", err)
	}

	return ""
}

// backoff returns how long to wait after so many failures in a row.
func backoff(every time.Duration, failures int, err error) time.Duration {
	var limited *limitedError
	if errors.As(err, &limited) {
		return limited.after
	}

	return min(every<<min(failures-1, 8), max(maxBackoff, every))
}

// A limitedError is a witness's wish to be asked later.
type limitedError struct{ after time.Duration }

func (e *limitedError) Error() string {
	return fmt.Sprintf("it wants to be asked again in %s", e.after)
}

// submit submits a checkpoint at one address, and once more if the witness has cosigned another size than
// was thought.
func (a *Asker) submit(ctx context.Context, target Target, url string, state *asked, note *checkpoint.Note) (string,
	error) {
	old := min(state.size, note.Size)

	for range 2 {
		proof, err := a.cfg.Ledger.Consistency(old, note.Checkpoint)
		if err != nil {
			return "", err
		}

		body := (&Submission{Old: old, Proof: proof, Checkpoint: note.String()}).Text()

		status, answer, err := post(ctx, target.Client, url+"/add-checkpoint", body)
		switch {
		case err != nil:
			return "", err
		case status == http.StatusOK:
			return cosignatures(note, answer, target.Keys)
		case status != http.StatusConflict:
			return "", fmt.Errorf("%s answered %d: %.200s", url, status, strings.TrimSpace(answer))
		}

		size, err := strconv.ParseUint(strings.TrimSuffix(answer, "\n"), 10, 63)
		if err != nil {
			return "", fmt.Errorf("%s answered %d without a size: %.200q", url, status, answer)
		}

		if size > note.Size {
			state.size = size // the next proposal is a later one

			return "", fmt.Errorf("%s has cosigned size %d, and the ledger has size %d here", url, size, note.Size)
		}

		old = size
	}

	return "", fmt.Errorf("%s names another size each time", url)
}

// post sends a body, and returns a status with a bounded answer.
func post(ctx context.Context, client *http.Client, url, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}

	req.Header.Set("Content-Type", typeText)

	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()

	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, "", err
	}

	if resp.StatusCode == http.StatusTooManyRequests {
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			after := time.Duration(min(seconds, int(maxBackoff/time.Second))) * time.Second
			return 0, "", &limitedError{after}
		}
	}

	return resp.StatusCode, string(raw), nil
}

// cosignatures returns the lines of an answer that are by keys of the witness and hold.
func cosignatures(note *checkpoint.Note, answer string, keys []checkpoint.VerifierKey) (lines string, err error) {
	signatures, err := checkpoint.ParseSignatures(answer)
	if err != nil {
		return "", fmt.Errorf("its cosignature: %w", err)
	}

	for _, signature := range signatures {
		for _, key := range keys {
			if key.Name != signature.Name || key.ID() != signature.ID {
				continue
			}

			one := checkpoint.Note{Checkpoint: note.Checkpoint, Text: note.Text,
				Signatures: []checkpoint.Signature{signature}}
			if _, err := one.Verify(key); err != nil {
				return "", fmt.Errorf("its cosignature: %w", err)
			}

			lines += signature.String()
		}
	}

	if lines == "" {
		return "", errors.New("its cosignature is by no key that is known of it")
	}

	return lines, nil
}

// merge returns the lines of added, and those of known by other keys.
func merge(known, added string) string {
	before, err := checkpoint.ParseSignatures(known)
	if err != nil {
		return added
	}

	after, err := checkpoint.ParseSignatures(added)
	if err != nil {
		return added
	}

	for _, old := range before {
		replaced := false
		for _, line := range after {
			replaced = replaced || line.Name == old.Name && line.ID == old.ID
		}

		if !replaced {
			added += old.String()
		}
	}

	return added
}
