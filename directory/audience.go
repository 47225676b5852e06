package directory

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An Audience is the receiver of a stream: the mesh, or one peer domain. The zero value is
// no receiver.
type Audience struct{ name string }

// Mesh is the audience of the stream that every domain of the mesh may receive. No trust
// domain may have this name.
var Mesh = Audience{"mesh"}

// Only returns the audience of one peer domain. A domain with the name of the mesh's
// audience gives the zero value, so that it never becomes the mesh.
func Only(peer spiffeid.TrustDomain) Audience {
	if peer.Name() == Mesh.name {
		return Audience{}
	}

	return Audience{peer.Name()}
}

// ParseAudience parses mesh or a domain's name.
func ParseAudience(s string) (Audience, error) {
	if s == Mesh.name {
		return Mesh, nil
	}

	td, err := spiffeid.TrustDomainFromString(s)
	if err != nil || td.Name() != s {
		return Audience{}, Refuse(BadRequest, "audience must be mesh or a domain, got %.100q", s)
	}

	return Only(td), nil
}

func (a Audience) String() string { return a.name }

// MarshalText gives the form that ParseAudience reads.
func (a Audience) MarshalText() ([]byte, error) { return []byte(a.name), nil }

// UnmarshalText is ParseAudience.
func (a *Audience) UnmarshalText(b []byte) error {
	p, err := ParseAudience(string(b))
	*a = p

	return err
}
