package invoke

import (
	"io"
	"strings"

	"github.com/roster-mesh/roster/directory"
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

// An Request asks an agent to do something (draft-cui, 5; draft-gaikwad-woa,
// 5).
type Request struct {
	// Operation is the one that the path names; "" where the body may name it, and
	// may be an envelope.
	Operation string
	Body      []byte // JSON
	Caller    directory.Identity
	Key       string // the Idempotency-Key; "" for none
	// Proof is what the caller showed that is good once, and until when it would be
	// (Unix seconds); zero where it may be shown again.
	Proof      directory.Hash
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
