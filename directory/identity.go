package directory

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An Identity is a verified caller: a SPIFFE or WIMSE URI, or the subject of an OAuth issuer
// as oauth:ISSUER#SUBJECT. Identities are compared as a whole and byte by byte with ==;
// those of two schemes never equal each other. The zero value is no identity.
type Identity struct{ uri string }

var errIdentity = errors.New("not a spiffe:, wimse: or oauth: identity")

// The paths under which the own programs of a domain's directory have their SPIFFE IDs.
// No agent or caller has one: nothing under ReservedPath is registered or acts as an owner,
// except the accounts of followed sources, which no caller can present.
const (
	ReservedPath = "/roster/"
	NodePath     = ReservedPath + "node/"    // nodes
	GatewayPath  = ReservedPath + "gateway/" // gateways, as clients of agents
	SourcePath   = ReservedPath + "source/"  // accounts of followed sources
)

// MaxIdentity bounds an identity in bytes (draft-ietf-wimse-identifier-03, 4.1,
// asks that 2,048 are accepted).
const MaxIdentity = 2048

// ParseIdentity parses the text form of an identity, which must be canonical: nothing is
// normalised.
func ParseIdentity(s string) (Identity, error) {
	if len(s) > MaxIdentity || !utf8.ValidString(s) {
		return Identity{}, errIdentity
	}

	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "spiffe":
		if _, err := spiffeid.FromString(s); err != nil {
			return Identity{}, fmt.Errorf("identity %q: %w", s, err)
		}
	case "wimse":
		// A WIMSE identifier has the syntax of a SPIFFE ID under another scheme
		// and is another name space.
		if _, err := spiffeid.FromString("spiffe:" + rest); err != nil {
			return Identity{}, fmt.Errorf("identity %q: %w", s, err)
		}
	case "oauth":
		issuer, subject, ok := strings.Cut(rest, "#")
		if !ok || issuer == "" || subject == "" || strings.ContainsFunc(rest, isControl) {
			return Identity{}, errIdentity
		}
	default:
		return Identity{}, errIdentity
	}

	return Identity{s}, nil
}

// IdentityOf returns the identity of a SPIFFE ID.
func IdentityOf(id spiffeid.ID) Identity { return Identity{id.String()} }

func (i Identity) String() string { return i.uri }

// IsZero reports whether i is no identity.
func (i Identity) IsZero() bool { return i.uri == "" }

// SPIFFE returns i as a SPIFFE ID, and whether it is one.
func (i Identity) SPIFFE() (spiffeid.ID, bool) {
	if !strings.HasPrefix(i.uri, "spiffe:") {
		return spiffeid.ID{}, false
	}

	id, err := spiffeid.FromString(i.uri)

	return id, err == nil
}

// MemberOf reports whether i is a SPIFFE or WIMSE identity of that trust domain. The subject
// of an OAuth issuer belongs to none.
func (i Identity) MemberOf(domain spiffeid.TrustDomain) bool {
	scheme, rest, _ := strings.Cut(i.uri, ":")
	if scheme != "spiffe" && scheme != "wimse" {
		return false
	}

	id, err := spiffeid.FromString("spiffe:" + rest)

	return err == nil && id.MemberOf(domain)
}

// MarshalText gives the text form; the zero value is the empty text.
func (i Identity) MarshalText() ([]byte, error) { return []byte(i.uri), nil }

// UnmarshalText parses the text form; the empty text is the zero value.
func (i *Identity) UnmarshalText(data []byte) error {
	if len(data) == 0 {
		*i = Identity{}
		return nil
	}

	id, err := ParseIdentity(string(data))
	*i = id

	return err
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }
