package view

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// Profile is the surface of draft-xu-efficient-agent-discovery-profile-00.
func (r *Renderer) Profile() Surface { return Surface{Href: ProfileHref, Append: r.appendMetadata} }

// ProfileHref is the path of a registration on the discovery profile's surface.
func ProfileHref(e *directory.Entry) string { return "/discovery/agents/" + e.RID.String() }

// appendMetadata appends the whole registration (xu 4). A profile's document is shown as
// it was written, byte for byte (XU-003).
func (r *Renderer) appendMetadata(b []byte, e *directory.Entry, opt Options) []byte {
	b = append(b, '{')
	expires := false // the document says itself when it expires
	if e.Document.Kind() == directory.KindProfile {
		b = appendMembers(b, e.Document)
		_, expires = strictjson.FindMember(e.Document.Members(), "expires_at")
	} else {
		b = appendAsMetadata(b, e, Projection(e))
		b = response.AppendTime(b, "updated_at", e.UpdatedAt)
	}
	if !expires {
		b = response.AppendTime(b, "expires_at", e.ExpiresAt)
	}

	return r.appendMarks(b, e, opt, directory.KindProfile)
}

// appendAsMetadata appends the members of a document of another kind.
func appendAsMetadata(b []byte, e *directory.Entry, p *directory.Projection) []byte {
	b = strictjson.AppendText(b, "id", PublicID(e))
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = response.AppendStrings(strictjson.AppendRaw(b, "tags", nil), metadataTags(e, p))
	if len(p.Examples) > 0 {
		b = response.AppendList(strictjson.AppendRaw(b, "examples", nil), p.Examples, appendExample)
	}
	b = response.AppendList(strictjson.AppendRaw(b, "bindings", nil), p.Bindings, appendBinding)
	b = response.AppendOptionalRaw(b, "auth", p.Authentication)
	b = response.AppendOptionalRaw(b, "constraints", p.Constraints)
	if len(p.Languages) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "supported_languages", nil), p.Languages)
	}
	b = strictjson.AppendText(b, "status", p.Status)

	return response.AppendOptional(b, "version", p.Version)
}

// metadataTags are the tags of the agent and of its capabilities, and its list of
// capabilities, which has no operations in it.
func metadataTags(e *directory.Entry, p *directory.Projection) []string {
	return response.Union(allTags(p), kinds.ListedCapabilities(e.Document, p))
}

func appendBinding(b []byte, x directory.Binding) []byte {
	b = strictjson.AppendText(append(b, '{'), "protocol", x.Protocol)
	b = strictjson.AppendText(b, "endpoint", x.Endpoint)
	if len(x.MediaTypes) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "media_types", nil), x.MediaTypes)
	}
	b = response.AppendOptional(b, "interaction_model", x.InteractionModel)
	b = response.AppendOptional(b, "transport", x.Transport)

	return append(response.AppendOptional(b, "envelope", x.Envelope), '}')
}

// AppendCandidate appends a candidate in as much detail as the request asks for (xu 6.1,
// 7.4; XU-054, XU-058).
func (r *Renderer) AppendCandidate(b []byte, x *discovery.Candidate, ask *discovery.Request, opt Options) []byte {
	e := x.Entry
	p := Projection(e)

	b = strictjson.AppendText(append(b, '{'), "id", PublicID(e))
	if ask.Detail != discovery.DetailMinimal {
		b = strictjson.AppendText(b, "name", title(e, p))
		b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	}

	appendOne := appendPlainBinding
	if ask.Detail == discovery.DetailFull {
		appendOne = appendBinding
	}
	b = response.AppendList(strictjson.AppendRaw(b, "bindings", nil), acceptableFirst(p.Bindings, ask.Protocols), appendOne)
	b = response.AppendNumber(b, "score", x.Score)
	b = strictjson.AppendText(b, "status", p.Status)

	if ask.Detail != discovery.DetailMinimal || ask.IncludeEvidence {
		b = response.AppendStrings(strictjson.AppendRaw(b, "matched_tags", nil), x.MatchedTags)
		b = appendFreshness(b, x, ask)
	}
	if ask.IncludeEvidence {
		b = strictjson.AppendRaw(b, "score_components", response.Encode(x.Components))
		b = strictjson.AppendRaw(b, "matched_examples", response.Encode(x.MatchedExamples))
		b = strictjson.AppendRaw(b, "evidence", response.Encode(x.Evidence))
	}
	if flags := x.Flags.Names(); len(flags) > 0 {
		b = response.AppendStrings(strictjson.AppendRaw(b, "flags", nil), flags)
	}
	if ask.Detail == discovery.DetailFull {
		b = response.AppendStrings(strictjson.AppendRaw(b, "credential_refs", nil), []string{r.Href(e) + "/record"})
		b = strictjson.AppendRaw(b, "metadata", e.Document.Bytes())
	}

	return r.appendMarks(b, e, opt, directory.KindProfile)
}

// appendFreshness appends how old a candidate is (XU-009). A profile says itself when its
// metadata were made.
func appendFreshness(b []byte, x *discovery.Candidate, ask *discovery.Request) []byte {
	made := strictjson.AppendString(nil, x.Freshness.MetadataUpdatedAt)
	if d := x.Entry.Document; d.Kind() == directory.KindProfile && !kinds.DatesOf(d).Updated.IsZero() {
		made, _ = strictjson.FindMember(d.Members(), "updated_at")
	}

	b = strictjson.AppendRaw(strictjson.AppendRaw(b, "freshness", []byte{'{'}), "metadata_updated_at", made)
	b = strictjson.AppendText(b, "indexed_at", x.Freshness.IndexedAt)
	b = strictjson.AppendUint(b, "age_seconds", uint64(x.Freshness.AgeSeconds))
	if ask.Constraints.MaxAge >= 0 {
		b = response.AppendBool(b, "stale", x.Freshness.Stale)
	}

	return append(b, '}')
}

// acceptableFirst returns the bindings, those of acceptable protocols first (XU-050).
func acceptableFirst(bindings []directory.Binding, protocols []string) []directory.Binding {
	bindings = slices.Clone(bindings)
	slices.SortStableFunc(bindings, func(a, b directory.Binding) int {
		acceptableA := slices.Contains(protocols, a.Protocol)
		acceptableB := slices.Contains(protocols, b.Protocol)
		switch {
		case acceptableA == acceptableB:
			return 0
		case acceptableA:
			return -1
		}

		return 1
	})

	return bindings
}

// appendPlainBinding appends enough of a binding to reach the agent, and no part that may
// hold a secret: no user information and no query.
func appendPlainBinding(b []byte, x directory.Binding) []byte {
	b = strictjson.AppendText(append(b, '{'), "protocol", x.Protocol)
	return append(strictjson.AppendText(b, "endpoint", plainEndpoint(x.Endpoint)), '}')
}

func plainEndpoint(endpoint string) string {
	if !strings.ContainsAny(endpoint, "@?") {
		return endpoint
	}

	u, err := url.Parse(endpoint)
	if err != nil || u.Opaque != "" {
		before, _, _ := strings.Cut(endpoint, "?")
		return before
	}

	u.User = nil
	u.RawQuery = ""
	u.ForceQuery = false

	return u.String()
}
