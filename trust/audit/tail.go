package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

const (
	tailSize    = 16 << 20    // bytes of a log that ReadTail reads
	maxLine     = 1 << 20     // bytes of a line
	outcomeLate = time.Minute // after its intent
)

// An Entry is a line as readers show it.
type Entry struct {
	Time      time.Time `json:"time"`
	Phase     string    `json:"phase"`
	RequestID string    `json:"request_id"`
	Action    string    `json:"action"`
	Actor     string    `json:"actor"`
	By        string    `json:"by"`
	Agent     string    `json:"agent"`
	Target    string    `json:"target"`
	RID       string    `json:"rid"`
	Revision  string    `json:"revision"`
	Outcome   string    `json:"outcome"`
	Policies  []string  `json:"policies"`
	Count     uint64    `json:"count"`
	Reason    string    `json:"reason"`
	BroughtBy string    `json:"brought_by"`
	Number    uint64    `json:"n"`

	Lifetime   int64 `json:"lt"`           // of the registration, in seconds
	Credential int64 `json:"credential_s"` // lifetime of the registrant's credential; 0 if unknown

	Difference *directory.AuditDifference `json:"difference"` // of an operator's change
}

var errEntry = errors.New("not a line of an audit log")

// ParseEntry parses a line.
func ParseEntry(line []byte) (Entry, error) {
	var entry Entry
	if err := json.Unmarshal(line, &entry); err != nil || entry.Phase == "" {
		return entry, errEntry
	}

	return entry, nil
}

// A Tail is the end of an audit log.
type Tail struct {
	Lines   int
	Faults  []string // places at which it is not as it was written
	Open    []Entry  // intents without an outcome that is late, in order of time
	Suspect []Entry  // operators' commands that were applied without a valid proof, or unchecked
	// Misconduct are messages of members that were refused.
	Misconduct []Entry
	Granted    map[string]Entry // by RID: the last successful change of each registration
}

// ReadTail reads the end of the current file of an audit log.
func ReadTail(path string, now time.Time) (Tail, error) {
	tail := Tail{Granted: map[string]Entry{}}

	file, err := os.Open(path)
	if err != nil {
		return tail, err
	}
	defer file.Close()

	cut, err := seekTail(file)
	if err != nil {
		return tail, err
	}

	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)

	intents := map[string][]Entry{}

	var verifier Verifier

	for lines.Scan() {
		// The first line after a seek is not whole.
		if cut {
			cut = false
			continue
		}

		tail.Lines++

		if fault := verifier.Line(lines.Bytes()); fault != nil && len(tail.Faults) < maxFaults {
			tail.Faults = append(tail.Faults, fault.Reason)
		}

		entry, err := ParseEntry(lines.Bytes())

		// The verifier has reported this line as a fault already.
		if err != nil {
			continue
		}

		// A request may intend several changes, and each outcome ends the oldest intent of its action.
		key := entry.RequestID + " " + entry.Action

		switch waiting := intents[key]; {
		case entry.Phase == "intent":
			intents[key] = append(waiting, entry)
		case entry.Phase == "outcome" && len(waiting) > 0:
			intents[key] = waiting[1:]
		}

		if entry.Outcome == directory.OutcomeUnproven || entry.Outcome == directory.OutcomeUnchecked ||
			entry.Outcome == directory.OutcomeUnsent {
			tail.Suspect = append(tail.Suspect, entry)
		}

		if entry.Outcome == directory.OutcomeMisconduct {
			tail.Misconduct = append(tail.Misconduct, entry)
		}

		if entry.Phase == "outcome" && entry.Outcome == "ok" && entry.RID != "" {
			tail.Granted[entry.RID] = entry
		}
	}

	if err := lines.Err(); err != nil {
		return tail, fmt.Errorf("%s: %w", path, err)
	}

	for waiting := range maps.Values(intents) {
		for _, entry := range waiting {
			// A younger intent may still get its outcome.
			if now.Sub(entry.Time) > outcomeLate {
				tail.Open = append(tail.Open, entry)
			}
		}
	}

	slices.SortFunc(tail.Open, func(a, b Entry) int { return a.Time.Compare(b.Time) })

	return tail, nil
}

// seekTail moves to the last tailSize bytes of a larger file; cut reports whether it is
// one.
func seekTail(file *os.File) (cut bool, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() <= tailSize {
		return false, err
	}

	_, err = file.Seek(-tailSize, io.SeekEnd)

	return true, err
}
