package directory

import (
	"fmt"
	"strings"
)

// An IdentityPattern is one identity, or a prefix that ends in / or # followed by *, such as
// spiffe://alpha.test/team/*, which does not match /teams/. Matching is byte by byte, as
// identities are compared. The zero value matches nothing.
type IdentityPattern struct{ text string }

// ParseIdentityPattern parses the text form of a pattern.
func ParseIdentityPattern(s string) (IdentityPattern, error) {
	sample, err := s, error(nil)
	if begins, ok := strings.CutSuffix(s, "*"); ok {
		// An identity behind the prefix shows whether any can begin so.
		sample = begins + "x"
		if strings.HasSuffix(begins, "//") || !strings.HasSuffix(begins, "/") && !strings.HasSuffix(begins, "#") {
			err = errIdentity // though a subject may end so
		}
	}

	if err == nil {
		_, err = ParseIdentity(sample)
	}

	if err != nil {
		return IdentityPattern{}, fmt.Errorf("%q is no identity, and no beginning of some up to a / or # with a "+
			"* behind it: %w", s, err)
	}

	return IdentityPattern{s}, nil
}

// Matches reports whether the pattern matches id. The zero identity never matches.
func (p IdentityPattern) Matches(id Identity) bool {
	if begins, ok := strings.CutSuffix(p.text, "*"); ok && len(id.uri) > len(begins) &&
		strings.HasPrefix(id.uri, begins) {
		return true
	}

	return p.text == id.uri && !id.IsZero()
}

// IsZero reports whether p is the zero pattern.
func (p IdentityPattern) IsZero() bool { return p.text == "" }

func (p IdentityPattern) String() string { return p.text }

// MarshalText gives the text form; the zero pattern is the empty text.
func (p IdentityPattern) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// UnmarshalText parses the text form; the empty text is the zero pattern.
func (p *IdentityPattern) UnmarshalText(data []byte) (err error) {
	if len(data) == 0 {
		*p = IdentityPattern{}
		return nil
	}

	*p, err = ParseIdentityPattern(string(data))

	return err
}
