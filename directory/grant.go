package directory

import (
	"slices"
)

// A Grant says which members of a registration one stream discloses. Policy
// writes it into the command; apply only reads it. A registration without a
// grant for a stream is not in that stream.
type Grant struct {
	Audience Audience
	All      bool     // every member of both objects
	Reg      []string // ours: agent, owner, kind; only where All is false
	Doc      []string // theirs: top-level members of the document
}

// GrantOf returns the grant of the members of a document that a Redaction shows.
func GrantOf(to Audience, redaction Redaction, doc Document) Grant {
	if redaction.ShowsAll() {
		return Grant{Audience: to, All: true}
	}

	kind := doc.Kind()

	// A grant is complete only with all required members, even those that this document lacks.
	grant := Grant{Audience: to, Doc: kind.required()}
	for _, name := range []string{"agent", "kind", "owner"} {
		if redaction.Allows(kind, "reg", name) {
			grant.Reg = append(grant.Reg, name)
		}
	}

	for _, m := range doc.Members() {
		if redaction.Shows(kind, m.Name) {
			grant.Doc = append(grant.Doc, m.Name)
		}
	}

	slices.Sort(grant.Doc)
	grant.Doc = slices.Compact(grant.Doc)

	return grant
}

// Allows reports whether g discloses the member name of the object reg or doc.
func (g Grant) Allows(object, name string) bool {
	if g.All {
		return true
	}

	// Provenance is disclosed exactly when the owner is.
	if object == "reg" && isProvenanceMember(name) {
		name = MemberOwner
	}

	if object == "reg" {
		return slices.Contains(g.Reg, name)
	}

	return slices.Contains(g.Doc, name)
}

// Complete reports whether g has the members that every grant of this kind needs: agent, kind,
// and the members that the kind requires.
func (g Grant) Complete(k Kind) bool {
	if g.All {
		return true
	}

	for _, name := range k.required() {
		if !slices.Contains(g.Doc, name) {
			return false
		}
	}

	return slices.Contains(g.Reg, "agent") && slices.Contains(g.Reg, "kind")
}
