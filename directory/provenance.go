package directory

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"unicode/utf8"

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

// IsProvenanceMember reports whether a name in reg is one of Provenance's.
func IsProvenanceMember(name string) bool {
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

	return IsProvenanceMember(name)
}
