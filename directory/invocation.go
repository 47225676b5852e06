package directory

import (
	"io"
	"strings"
)

// ViaGateway is what a gateway adds to Via in what it sends to agents (RFC 9110, 7.6.3).
// It speaks there as its node, and where that goes is a registrant's word: a directory
// tells it by this from what the node asks of its own.
const ViaGateway = "1.1 roster-gateway"

// Gateways returns how many gateways a request with these header fields came through.
func Gateways(header map[string][]string) (n int) {
	for _, line := range header["Via"] {
		for hop := range strings.SplitSeq(line, ",") {
			if said := strings.Fields(hop); len(said) > 1 && said[0]+" "+said[1] == ViaGateway { // a comment may follow
				n++
			}
		}
	}
	return n
}

// An Invocation asks an agent to do something (draft-cui, 5; draft-gaikwad-woa,
// 5).
type Invocation struct {
	// Operation is the one that the path names; "" where the body may name it, and
	// may be an envelope.
	Operation string
	Body      []byte // JSON
	Caller    Identity
	Key       string // the Idempotency-Key; "" for none
	// Proof is what the caller showed that is good once, and until when it would be
	// (Unix seconds); zero where it may be shown again.
	Proof      Hash
	ProofUntil int64
	// Header is the caller's own, of which the agent gets what an operator names.
	Header    map[string][]string
	Stream    bool // the caller takes an answer as it comes
	RequestID string
	// More takes n more invocations from what the caller may ask for, and refuses where
	// there are none; nil where nobody counts them.
	More func(n int) error
}

// A Reply is an agent's answer to an operation that succeeded.
type Reply struct {
	Status      int // 2xx, the agent's own
	ContentType string
	Body        []byte        // the whole answer, where Stream is nil
	Stream      io.ReadCloser // the answer as it comes; whoever has it closes it
	Replayed    bool          // the first answer to the same key
}

// An Operation is what an agent can be asked to do.
type Operation struct {
	Name          string // as the agent calls it; "" where it has but one, without a name
	Input, Output []byte // schemas; nil where nothing is known of them
	Batch         bool   // the agent takes an array of inputs itself
}

// Operations returns what an agent can be asked to do, by its document and the
// projection of that.
func Operations(d Document, p *Projection) []Operation {
	doc := readDocument(d)
	batch := string(doc.any("batch")) == "true"
	var all []Operation
	for _, c := range p.Capabilities {
		if c.Type != typeTool {
			continue
		}
		o := Operation{Name: c.Name, Input: c.InputSchema, Output: c.OutputSchema, Batch: batch}
		if c.Operation != "" {
			o.Name = c.Operation
		}
		if c.Raw != nil {
			o.Batch = batch || string(doc.reading.object("", c.Raw).any("batch")) == "true"
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		o := Operation{Batch: batch}
		if d.Kind() == KindAIDIP {
			o.Input, o.Output = doc.schema("inputs"), doc.schema("outputs")
		}
		return []Operation{o}
	}
	return all
}

// Pace is how much an agent's registration says that it takes; 0 where it doesn't
// say.
type Pace struct {
	PerSecond  float64
	Concurrent int
}

// PaceOf reads rate_limit (or rate_limits): {"requests_per_second",
// "requests_per_minute", "max_concurrent"}, and max_calls_per_minute, as drafts
// show it without standardising it (draft-cui, 3). Of several that say the same, the
// lowest holds.
func PaceOf(d Document) (p Pace) {
	doc := readDocument(d)
	slower := func(perSecond float64) {
		if perSecond > 0 && (p.PerSecond == 0 || perSecond < p.PerSecond) {
			p.PerSecond = perSecond
		}
	}
	slower(doc.number("max_calls_per_minute") / 60)
	for _, name := range []string{"rate_limit", "rate_limits"} {
		o := doc.child(name)
		slower(o.number("requests_per_second"))
		slower(o.number("requests_per_minute") / 60)
		if n := int(o.number("max_concurrent")); n > 0 && (p.Concurrent == 0 || n < p.Concurrent) {
			p.Concurrent = n
		}
	}
	return p
}

// number returns a member that is a number; 0 where it is none.
func (o *object) number(name string) (n float64) {
	if raw := o.any(name); raw == nil || decode(raw, &n) != nil {
		return 0
	}
	return n
}
