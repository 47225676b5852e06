package operator

import (
	"crypto/sha256"
	"strconv"
	"strings"

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
//	roster-peer-1~alpha.test~a.alpha.test:8400,b.alpha.test:8400~END~HASH~SECRET
type Token struct {
	Domain    string   // that invites
	Addresses []string // https://HOST[:PORT]; at most MaxTokenAddresses
	// BundleHash is of the bundle as /bundles/{domain} answers it.
	BundleHash [sha256.Size]byte
	Secret     string
	Until      int64 // Unix seconds
}

const (
	tokenPrefix    = "roster-peer-1~" // the first characters of a token's text
	tokenSeparator = "~"
	tokenComma     = "," // between addresses
	tokenParts     = 5
	tokenBase      = 36 // of the end
	secretLength   = 26 // of crypto/rand.Text; a word that was cut or continued has another

	// MaxTokenAddresses bounds the addresses in a token: one node of them that answers is enough.
	MaxTokenAddresses = 3

	// MaxToken bounds a token in bytes.
	MaxToken = 8 << 10
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

// Peering is the inviting domain as the token describes it, with the bundle that was fetched,
// as a pending peering of the domain own.
func (t *Token) Peering(own spiffeid.TrustDomain, bundle []byte) (directory.Peering, error) {
	return ParsePeering(&wire.Peering{
		Domain: t.Domain, State: string(directory.PeeringPending), Bundle: bundle, Addresses: t.Addresses,
	}, own)
}

// CheckDomain refuses a token that this domain can't use, before anything is fetched.
func (t *Token) CheckDomain(own spiffeid.TrustDomain) (spiffeid.TrustDomain, error) {
	domain, err := parsePeer(t.Domain, own)
	if err == nil {
		err = checkAddresses(t.Addresses)
	}

	return domain, err
}
