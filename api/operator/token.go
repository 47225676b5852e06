package operator

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// A Token invites one domain to peer. The invited domain trusts the bundle in it, and
// shows the secret to accept.
type Token struct {
	Domain    string         `json:"domain"`  // that invites
	Invited   string         `json:"invited"` // the domain that it is for
	Bundle    jsontext.Value `json:"bundle"`
	Addresses []string       `json:"addresses"`
	Gossip    []string       `json:"gossip,omitempty"`
	// Endpoint is the URL from which the bundle is refreshed.
	Endpoint directory.BundleEndpoint `json:"bundle_endpoint,omitzero"`
	Secret   string                   `json:"secret"`
	Until    int64                    `json:"until"` // Unix seconds
}

const (
	tokenPrefix = "roster-peer-1." // the first characters of a token's text
	// MaxToken bounds a token in bytes: its bundle must fit into a request's body.
	MaxToken = 60 << 10
)

// String returns the token as one word.
func (t *Token) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err) // only if a bundle is not JSON; such a bundle is never trusted
	}

	return tokenPrefix + directory.B64.EncodeToString(data)
}

// ParseToken reads a token. Another domain made it, perhaps by a later release, so
// unknown members are ignored (FORM-004). Peering checks its contents.
func ParseToken(word string) (Token, error) {
	var t Token
	text, marked := strings.CutPrefix(word, tokenPrefix)

	b, err := directory.B64.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}

	if !marked || err != nil || len(word) > MaxToken || t.Secret == "" {
		return Token{}, directory.Refuse(directory.BadRequest, "The token is invalid or incomplete. "+
			"It must be the whole word that roster peer invite printed; it begins with %s", tokenPrefix).At("/token")
	}

	return t, nil
}

// Peering is the inviting domain as the token describes it, as a pending peering of the
// domain own.
func (t *Token) Peering(own spiffeid.TrustDomain) (directory.Peering, error) {
	peering, err := parsePeering(&wire.Peering{
		Domain:         t.Domain,
		State:          string(directory.PeeringPending),
		Bundle:         wire.RawJSON(t.Bundle),
		Addresses:      t.Addresses,
		Gossip:         t.Gossip,
		BundleEndpoint: wire.BundleEndpoint(t.Endpoint),
	}, own)
	if err == nil && t.Invited != own.Name() {
		err = directory.Refuse(directory.BadRequest, "The token invites %.100q, but this is %s. "+
			"Ask for a token for this domain.", t.Invited, own.Name()).At("/token")
	}

	return peering, err
}
