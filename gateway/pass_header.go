package gateway

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
)

// neverPassed are the header fields that no configuration can pass on, with the reason.
var neverPassed = []struct {
	reason string
	names  []string
}{
	{"it is about the connection or the message", []string{
		"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Content-Range", "Expect", "Host",
		"Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Range", "Te", "Trailer", "Transfer-Encoding",
		"Upgrade",
	}},
	{"it is this node's own", []string{
		"Accept", "Accept-Encoding", "A2a-Version", "Idempotency-Key", "Last-Event-Id", "Mcp-Method", "Mcp-Name",
		"Mcp-Protocol-Version", "Mcp-Session-Id", "Traceparent", "User-Agent", "Via", "X-Request-Id",
	}},
	{"it authenticates callers to this node, and an agent that has it could act as them", []string{
		"Authorization", "Cookie", "Dpop", "Proxy-Authorization", "Workload-Identity-Token",
		"Workload-Proof-Token",
	}},
}

// fieldName is RFC 9110's token.
var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// CheckPassHeader returns an error if a header field can't be passed on to agents.
func CheckPassHeader(name string) error {
	if !fieldName.MatchString(name) {
		return fmt.Errorf("%q is not the name of a header field", name)
	}

	for _, kind := range neverPassed {
		if slices.Contains(kind.names, http.CanonicalHeaderKey(name)) {
			return fmt.Errorf("%s can't be passed on: %s", name, kind.reason)
		}
	}

	return nil
}
