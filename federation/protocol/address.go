package protocol

import (
	"net/http"
	"net/url"
)

// HeaderAddress is the header by which a node tells a peer's node, in each request, the base URL at
// which it is reached. A domain that was restored onto other machines is found by it, as long as
// the bundle that its peers hold certifies its nodes.
const HeaderAddress = "Roster-Address"

// maxAddress bounds a node's base URL in bytes.
const maxAddress = 256

// ParseAddress reads the header of a request of a node. ok is false unless it is a base URL.
func ParseAddress(header http.Header) (base string, ok bool) {
	base = header.Get(HeaderAddress)
	if base == "" || len(base) > maxAddress || base != printable(base) {
		return "", false
	}

	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || base != "https://"+u.Host {
		return "", false
	}

	return base, true
}
