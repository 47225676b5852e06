package audit

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The phases of lines.
const (
	phaseIntent   = "intent"   // a change is about to be proposed
	phaseOutcome  = "outcome"  // how it ended
	phaseApplied  = "applied"  // a command, or a change that another member brought, was applied here
	phaseRefused  = "refused"  // a request was refused, or Count more were
	phaseCounted  = "counted"  // refreshes without a line of their own: they begin, or there were Count
	phaseMissing  = "missing"  // Count lines could not be written here
	phaseRepaired = "repaired" // Bytes of a torn last line were removed at start
	phaseRotated  = "rotated"  // the first line of a file that follows another
	phaseDropped  = "dropped"  // Count older lines were removed, or are gone
)

// Reasons for which lines are gone.
const (
	reasonSize    = "size"    // there were more files than audit.files
	reasonAge     = "age"     // they were older than audit.keep
	reasonRemoved = "removed" // not by this node
)

// logLine is one line of the log without its place in the chain.
type logLine struct {
	Time  time.Time `json:"time"`
	Phase string    `json:"phase"`
	directory.AuditEvent
	Bytes  uint64 `json:"bytes,omitzero"`
	Reason string `json:"reason,omitzero"`
	// From is the number of the oldest line that is kept, and Head the hash of the line
	// before that: of rotated and dropped lines.
	From uint64         `json:"from,omitzero"`
	Head directory.Hash `json:"head,omitzero"`
}

// Bounds of a line. Longer texts end in their hash; a list of policies that is longer is
// counted. In the place of a longer proof or payload is its hash alone: a part proves nothing.
const (
	maxText     = 192
	maxPolicies = 8
	maxProof    = 16 << 10
	maxPayload  = 128 << 10 // of a line of at most maxLine, with escapes
)

// shorten returns a text of at most maxText bytes: s, or its beginning and the SHA-256 of
// the whole.
func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}

	sum := sha256.Sum256([]byte(s))
	end := "...sha256:" + base64.RawURLEncoding.EncodeToString(sum[:])

	at := maxText - len(end)
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}

	return s[:at] + end
}

// append appends the line as JSON without its end, which chain.extend adds. It uses no
// reflection, because each change and each invocation writes two lines.
func (l *logLine) append(data []byte) []byte {
	data = append(l.Time.AppendFormat(append(data, `{"time":"`...), time.RFC3339Nano), '"')
	data = strictjson.AppendText(data, "phase", l.Phase)
	text := func(name, s string) {
		// Callers choose some of these texts, and JSON holds no invalid UTF-8.
		if s != "" {
			data = strictjson.AppendText(data, name, shorten(strings.ToValidUTF8(s, "\ufffd")))
		}
	}
	number := func(name string, n uint64) {
		if n > 0 {
			data = strictjson.AppendUint(data, name, n)
		}
	}

	text("request_id", l.RequestID)
	text("action", l.Action)
	text("owner", l.Owner.String())
	text("actor", l.Actor.String())
	text("authn", l.Authn)
	text("agent", l.Agent)

	if !l.RID.IsZero() {
		data = strictjson.AppendText(data, "rid", l.RID.String())
	}

	if l.RIDs != nil {
		data = strictjson.AppendName(data, "rids")
		data = strictjson.AppendList(data, l.RIDs, func(b []byte, rid directory.RID) []byte {
			return strictjson.AppendString(b, rid.String())
		})
	}

	text("target", l.Target)
	text("revision", l.Revision)
	text("outcome", l.Outcome)

	if l.Policies != nil {
		data = strictjson.AppendList(strictjson.AppendName(data, "policies"), boundPolicies(l.Policies),
			func(b []byte, name string) []byte { return strictjson.AppendString(b, shorten(name)) })
	}

	number("lt", uint64(l.Lifetime))

	if l.Credential > 0 {
		number("credential_s", uint64(l.Credential))
	}

	number("count", l.Count)

	if l.Position != (directory.Position{}) {
		text("position", l.Position.String())
	}

	data = appendWhole(data, "proof", l.Proof, maxProof, l.ProofHash)

	text("brought_by", l.BroughtBy.String())

	if l.Change != (directory.Position{}) {
		text("change", l.Change.String())
	}

	text("by", l.By)
	text("entitlement", l.Entitlement)
	text("attested_by", l.AttestedBy.String())

	data = appendWhole(data, "payload", l.Payload, maxPayload, l.PayloadHash)

	if l.Difference != nil {
		data = appendDifference(strictjson.AppendName(data, "difference"), l.Difference)
	}

	number("bytes", l.Bytes)
	text("reason", l.Reason)
	number("from", l.From)

	if !l.Head.IsZero() {
		text("head", l.Head.String())
	}

	return data
}

// appendWhole appends a text that an auditor verifies. In the place of one that has no room, or is no text, it
// appends its hash.
func appendWhole(data []byte, name, text string, most int, hash directory.Hash) []byte {
	if len(text) > most || !utf8.ValidString(text) {
		text, hash = "", directory.HashOf([]byte(text))
	}

	if text != "" {
		data = strictjson.AppendText(data, name, text)
	}

	if !hash.IsZero() {
		data = strictjson.AppendText(data, name+"_hash", hash.String())
	}

	return data
}

// boundPolicies returns at most maxPolicies names.
func boundPolicies(names []string) []string {
	if len(names) <= maxPolicies {
		return names
	}

	return append(names[:maxPolicies:maxPolicies], "...")
}

// A chain is the end of the trail: the number of its last line, and that line's hash. A
// line's hash is the SHA-256 of its bytes without the newline; the next line carries it.
type chain struct {
	number uint64
	head   directory.Hash // zero if there is no line
}

// maxChain bounds the bytes that extend adds.
const maxChain = len(`,"n":18446744073709551615,"prev":""}`) + 43 + len("\n")

// extend ends the line that begins at from in data with its number and the hash of the
// line before it.
func (c *chain) extend(data []byte, from int) []byte {
	data = strictjson.AppendUint(data, "n", c.number+1)
	if !c.head.IsZero() {
		data = strictjson.AppendText(data, "prev", c.head.String())
	}

	data = append(data, '}')
	c.number++
	c.head = directory.HashOf(data[from:])

	return append(data, '\n')
}
