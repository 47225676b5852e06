package operator

import (
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// A Token invites one domain to peer: the inviting domain, the base URLs of some of its
// nodes, the SHA-256 of its bundle, a secret for one use, and an end. The invited domain
// fetches the bundle from one of the addresses, and shows the secret to a node that the bundle
// certifies; the answer has all other settings. As text it is about 150 characters, and 20 more
// for each further address:
//
//	roster-peer-2~alpha.test~a.alpha.test:8400,b.alpha.test:8400~END~HASH~SECRET
type Token struct {
	Domain    string   // that invites
	Addresses []string // https://HOST[:PORT]; at most MaxTokenAddresses
	// BundleHash is of the bundle as /bundles/{domain} answers it.
	BundleHash [sha256.Size]byte
	Secret     string
	Until      int64 // Unix seconds

	// described is the inviting domain, from a token of an earlier release.
	described *describedDomain
}

// A describedDomain is the content of a token of the first format, which holds the bundle
// and all addresses.
type describedDomain struct {
	Domain    string                   `json:"domain"`
	Invited   string                   `json:"invited"`
	Bundle    jsontext.Value           `json:"bundle"`
	Addresses []string                 `json:"addresses"`
	Gossip    []string                 `json:"gossip,omitempty"`
	Endpoint  directory.BundleEndpoint `json:"bundle_endpoint,omitzero"`
	Secret    string                   `json:"secret"`
	Until     int64                    `json:"until"`
}

const (
	tokenPrefix    = "roster-peer-2~" // the first characters of a token's text
	tokenSeparator = "~"
	tokenComma     = "," // between addresses
	tokenParts     = 5
	tokenBase      = 36 // of the end
	secretLength   = 26 // of crypto/rand.Text; a word that was cut or continued has another
	oldTokenPrefix = "roster-peer-1."

	// MaxTokenAddresses bounds the addresses in a token: one node of them that answers is enough.
	MaxTokenAddresses = 3

	// MaxToken bounds a token in bytes. Those of the first format hold a bundle.
	MaxToken = 60 << 10
)

// String returns the token as one word.
func (t *Token) String() string {
	hosts := make([]string, len(t.Addresses))
	for i, address := range t.Addresses {
		hosts[i] = strings.TrimPrefix(address, "https://")
	}

	return tokenPrefix + strings.Join([]string{
		t.Domain, strings.Join(hosts, tokenComma), strconv.FormatInt(t.Until, tokenBase),
		directory.B64.EncodeToString(t.BundleHash[:]), t.Secret,
	}, tokenSeparator)
}

// ParseToken reads a token. Peering checks its contents.
func ParseToken(word string) (Token, error) {
	if len(word) <= MaxToken {
		if token, ok := parseToken(word); ok {
			return token, nil
		}
	}

	return Token{}, directory.Refuse(directory.BadRequest, "the token is invalid or incomplete. "+
		"It must be the whole word that roster peer invite printed; it begins with %s", tokenPrefix).At("/token")
}

func parseToken(word string) (token Token, ok bool) {
	if text, isOld := strings.CutPrefix(word, oldTokenPrefix); isOld {
		return parseOldToken(text)
	}

	text, ok := strings.CutPrefix(word, tokenPrefix)

	parts := strings.Split(text, tokenSeparator)
	if !ok || len(parts) != tokenParts {
		return Token{}, false
	}

	token = Token{Domain: parts[0], Secret: parts[4]}

	hosts := strings.Split(parts[1], tokenComma)
	if len(hosts) > MaxTokenAddresses {
		return Token{}, false
	}

	for _, host := range hosts {
		token.Addresses = append(token.Addresses, "https://"+host)
	}

	var err error
	if token.Until, err = strconv.ParseInt(parts[2], tokenBase, 64); err != nil {
		return Token{}, false
	}

	sum, err := directory.B64.DecodeString(parts[3])
	if err != nil || len(sum) != sha256.Size || len(token.Secret) != secretLength {
		return Token{}, false
	}

	token.BundleHash = [sha256.Size]byte(sum)

	return token, true
}

// parseOldToken reads a token of an earlier release. Another domain made it, so unknown
// members are ignored (FORM-004).
func parseOldToken(text string) (token Token, ok bool) {
	decoded, err := directory.B64.DecodeString(text)
	if err != nil {
		return Token{}, false
	}

	described := new(describedDomain)
	if err := json.Unmarshal(decoded, described); err != nil || described.Secret == "" {
		return Token{}, false
	}

	return Token{
		Domain: described.Domain, Secret: described.Secret, Until: described.Until, described: described,
	}, true
}

// NeedsBundle reports whether the inviting domain's bundle must be fetched for Peering. A
// token of an earlier release holds it.
func (t *Token) NeedsBundle() bool { return t.described == nil }

// Peering is the inviting domain as the token describes it, with the bundle that was fetched,
// as a pending peering of the domain own.
func (t *Token) Peering(own spiffeid.TrustDomain, bundle []byte) (directory.Peering, error) {
	if old := t.described; old != nil {
		peering, err := ParsePeering(&wire.Peering{
			Domain: old.Domain, State: string(directory.PeeringPending), Bundle: wire.RawJSON(old.Bundle),
			Addresses: old.Addresses, Gossip: old.Gossip, BundleEndpoint: wire.BundleEndpoint(old.Endpoint),
		}, own)
		if err == nil && old.Invited != own.Name() {
			err = directory.Refuse(directory.BadRequest, "the token invites %.100q, but this is %s. "+
				"Ask for a token for this domain", old.Invited, own.Name()).At("/token")
		}

		return peering, err
	}

	return ParsePeering(&wire.Peering{
		Domain: t.Domain, State: string(directory.PeeringPending), Bundle: bundle, Addresses: t.Addresses,
	}, own)
}

// CheckDomain refuses a token that this domain can't use, before anything is fetched.
func (t *Token) CheckDomain(own spiffeid.TrustDomain) (spiffeid.TrustDomain, error) {
	domain, err := parsePeer(t.Domain, own)
	if err == nil && t.NeedsBundle() {
		err = checkAddresses(t.Addresses)
	}

	return domain, err
}
