package directory

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Provenance names the identities that took part in the current contents of a registration
// besides its owner (docs/threats.md, S5). The zero value means that the owner registered
// them. It is disclosed together with the owner or not at all.
type Provenance struct {
	Registrant    Identity // authenticated when the contents were registered; zero if that is the owner
	RegisteredBy  Identity // the commissioning tool that registered them for the owner
	TransferredBy Identity // the operator that gave the registration to its owner
	ImportedFrom  string   // URI of the source from which the contents were imported
}

// IsZero reports whether p names no identity and no source.
func (p Provenance) IsZero() bool { return p == Provenance{} }

// Equal reports whether p and other, each of which may be nil, name the same identities and
// source.
func (p *Provenance) Equal(other *Provenance) bool {
	if p == nil || other == nil {
		return p == other
	}

	return *p == *other
}

// Identities returns the identities that p names.
func (p Provenance) Identities() []Identity {
	return slices.DeleteFunc([]Identity{p.Registrant, p.RegisteredBy, p.TransferredBy}, Identity.IsZero)
}

// The names of Provenance's members in a statement's reg.
const (
	memberRegistrant    = "registrant"
	memberRegisteredBy  = "registered_by"
	memberTransferredBy = "transferred_by"
	memberImportedFrom  = "imported_from"
)

// MemberOwner is the name in a statement's reg with which those of Provenance are
// disclosed.
const MemberOwner = "owner"

// isProvenanceMember reports whether a name in reg is one of Provenance's.
func isProvenanceMember(name string) bool {
	switch name {
	case memberRegistrant, memberRegisteredBy, memberTransferredBy, memberImportedFrom:
		return true
	}

	return false
}

// Members returns the members of reg that p has.
func (p Provenance) Members() []strictjson.Member {
	var members []strictjson.Member

	add := func(name, value string) {
		if value != "" {
			members = append(members, strictjson.Member{Name: name, Value: strictjson.AppendString(nil, value)})
		}
	}
	add(memberRegistrant, p.Registrant.String())
	add(memberRegisteredBy, p.RegisteredBy.String())
	add(memberTransferredBy, p.TransferredBy.String())
	add(memberImportedFrom, p.ImportedFrom)

	return members
}

// SetMember sets the member of that name from its value in reg.
func (p *Provenance) SetMember(name, value string) (err error) {
	switch name {
	case memberRegistrant:
		p.Registrant, err = ParseIdentity(value)
	case memberRegisteredBy:
		p.RegisteredBy, err = ParseIdentity(value)
	case memberTransferredBy:
		p.TransferredBy, err = ParseIdentity(value)
	case memberImportedFrom:
		p.ImportedFrom, err = value, checkSource(value)
	}

	return err
}

// A RegistrantState says how far the identities that a registration names are known.
type RegistrantState string

// RegistrantVerified is the state of identities of the origin's trust domain, whom the origin
// authenticates. RegistrantClaimed is the state of all others, the subjects of OAuth issuers
// among them: the origin's word is all that is known.
const (
	RegistrantVerified RegistrantState = "verified"
	RegistrantClaimed  RegistrantState = "claimed"
)

// Registrant returns the identity that authenticated when the contents of e were registered;
// zero if it is withheld.
func (e *Entry) Registrant() Identity {
	if e.Provenance == nil || e.Provenance.Registrant.IsZero() {
		return e.Owner
	}

	return e.Provenance.Registrant
}

// RegistrantState is Provenance.State for e.
func (e *Entry) RegistrantState() RegistrantState {
	if e.Provenance == nil {
		return Provenance{}.State(e.Owner, e.Origin)
	}

	return e.Provenance.State(e.Owner, e.Origin)
}

// State returns the state of the owner and of all identities that p names:
// RegistrantVerified if each is an identity of the origin's trust domain.
func (p Provenance) State(owner Identity, origin spiffeid.TrustDomain) RegistrantState {
	for _, identity := range append(p.Identities(), owner) {
		if !identity.MemberOf(origin) {
			return RegistrantClaimed
		}
	}

	return RegistrantVerified
}

// Source returns the URI of the source from which the document says that it was imported; empty
// if it names none, or none that is an absolute URI without credentials, such as a file.
func (d Document) Source() string {
	// Most documents lack the member, and a search for its name is faster than splitting them.
	if !bytes.Contains(d.Bytes(), []byte(`"`+ImportedFrom+`"`)) {
		return ""
	}

	value, ok := strictjson.FindMember(d.Members(), ImportedFrom)
	if !ok {
		return ""
	}

	var from struct {
		Source string `json:"source"`
	}
	if json.Unmarshal(value, &from) != nil || from.Source == "" || checkSource(from.Source) != nil {
		return ""
	}

	return from.Source
}

// MaxSource bounds the URI of a source in bytes.
const MaxSource = 2048

// checkSource refuses a text that is not an absolute URI without credentials.
func checkSource(source string) error {
	if len(source) > MaxSource || !utf8.ValidString(source) {
		return fmt.Errorf("the URI of a source has over %d bytes", MaxSource)
	}

	uri, err := url.Parse(source)
	if err != nil || !uri.IsAbs() || uri.User != nil {
		return errors.New("not an absolute URI of a source")
	}

	return nil
}

// IsRegMember reports whether this release knows a name in a statement's reg.
func IsRegMember(name string) bool {
	switch name {
	case "agent", "kind", MemberOwner:
		return true
	}

	return isProvenanceMember(name)
}
