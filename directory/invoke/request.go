package invoke

import (
	"io"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/limit"
)

// ViaGateway is the member of Via that a gateway adds to its requests to agents (RFC 9110,
// 7.6.3). A registrant chooses the destination of such a request. By this member, and by the
// gateway's identity, a directory distinguishes it from requests of nodes and operators.
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

// An Request asks an agent to do something (draft-cui, 5; draft-gaikwad-woa,
// 5).
type Request struct {
	// Operation is the one that the path names; "" if the body may name it, and
	// may be an envelope.
	Operation string
	Body      []byte // JSON
	Caller    directory.Identity
	Party     limit.Caller // of Caller, in shares
	// Redaction limits the parts of the registration that errors may name.
	Redaction directory.Redaction
	Key       string // the Idempotency-Key; "" for none
	// Proof is the caller's proof that is valid once, and ProofUntil its expiry (Unix seconds).
	// Both are zero if the proof may be repeated.
	Proof      directory.Hash
	ProofUntil int64
	// Header is the caller's own; the agent receives the fields that an operator names.
	Header    map[string][]string
	Stream    bool // the caller takes an answer as it comes
	RequestID string
	// More takes n more invocations from the caller's rate, and returns an error if it is
	// exhausted. It is nil if invocations are not counted.
	More func(n int) error
	// Hold takes memory for n more bytes of answers from the caller's share before they are kept,
	// until the reply is sent. Its error is a *directory.Error. It may be called by several
	// goroutines. It is nil if answers are not counted.
	Hold func(n int64) error
}

// A Reply is an agent's answer to an operation that succeeded.
type Reply struct {
	Status      int // 2xx, the agent's own
	ContentType string
	Body        []byte        // the whole answer, where Stream is nil
	Stream      io.ReadCloser // the answer as it comes; the receiver closes it
	Replayed    bool          // the first answer to the same key
}
