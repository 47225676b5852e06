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
func (r *Renderer) appendMetadata(data []byte, entry *directory.Entry, opt Options) []byte {
	data = append(data, '{')

	expires := false // the document says itself when it expires
	if entry.Document.Kind() == directory.KindProfile {
		data = appendMembers(data, entry.Document)
		_, expires = strictjson.FindMember(entry.Document.Members(), "expires_at")
	} else {
		data = appendAsMetadata(data, entry, Projection(entry))
		data = response.AppendTime(data, "updated_at", entry.UpdatedAt)
	}

	if !expires {
		data = response.AppendTime(data, "expires_at", entry.ExpiresAt)
	}

	return r.appendMarks(data, entry, opt, directory.KindProfile)
}

// appendAsMetadata appends the members of a document of another kind.
func appendAsMetadata(data []byte, entry *directory.Entry, projection *directory.Projection) []byte {
	data = strictjson.AppendText(data, "id", PublicID(entry))
	data = strictjson.AppendText(data, "name", title(entry, projection))
	data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, title(entry, projection)))

	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "tags", nil), metadataTags(entry, projection))
	if len(projection.Examples) > 0 {
		data = strictjson.AppendList(strictjson.AppendRaw(data, "examples", nil), projection.Examples, appendExample)
	}

	data = strictjson.AppendList(strictjson.AppendRaw(data, "bindings", nil), projection.Bindings, appendBinding)
	data = response.AppendOptionalRaw(data, "auth", projection.Authentication)

	data = response.AppendOptionalRaw(data, "constraints", projection.Constraints)
	if len(projection.Languages) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "supported_languages", nil), projection.Languages)
	}

	data = strictjson.AppendText(data, "status", projection.Status)

	return response.AppendOptional(data, "version", projection.Version)
}

// metadataTags are the tags of the agent and of its capabilities, and its list of
// capabilities, which has no operations in it.
func metadataTags(e *directory.Entry, p *directory.Projection) []string {
	return response.Union(allTags(p), kinds.ListedCapabilities(e.Document, p))
}

func appendBinding(data []byte, binding directory.Binding) []byte {
	data = strictjson.AppendText(append(data, '{'), "protocol", binding.Protocol)

	data = strictjson.AppendText(data, "endpoint", binding.Endpoint)
	if len(binding.MediaTypes) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "media_types", nil), binding.MediaTypes)
	}

	data = response.AppendOptional(data, "interaction_model", binding.InteractionModel)
	data = response.AppendOptional(data, "transport", binding.Transport)

	return append(response.AppendOptional(data, "envelope", binding.Envelope), '}')
}

// AppendCandidate appends a candidate in as much detail as the request asks for (xu 6.1,
// 7.4; XU-054, XU-058).
func (r *Renderer) AppendCandidate(data []byte, candidate *discovery.Candidate, ask *discovery.Request,
	opt Options) []byte {
	entry := candidate.Entry
	projection := Projection(entry)

	data = strictjson.AppendText(append(data, '{'), "id", PublicID(entry))

	data = strictjson.AppendText(data, "agent", entry.Agent)
	if ask.Detail != discovery.DetailMinimal {
		data = strictjson.AppendText(data, "name", title(entry, projection))
		data = strictjson.AppendText(data, "description", cmp.Or(projection.Description, title(entry, projection)))
	}

	appendOne := appendPlainBinding
	if ask.Detail == discovery.DetailFull {
		appendOne = appendBinding
	}

	data = strictjson.AppendList(strictjson.AppendRaw(data, "bindings", nil),
		acceptableFirst(projection.Bindings, ask.Protocols), appendOne)
	data = response.AppendNumber(data, "score", candidate.Score)
	data = strictjson.AppendText(data, "status", projection.Status)

	if ask.Detail != discovery.DetailMinimal || ask.IncludeEvidence {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "matched_tags", nil), candidate.MatchedTags)
		data = appendFreshness(data, candidate, ask)
	}

	if ask.IncludeEvidence {
		data = strictjson.AppendRaw(data, "score_components", response.Encode(candidate.Components))
		data = strictjson.AppendRaw(data, "matched_examples", response.Encode(candidate.MatchedExamples))
		data = strictjson.AppendRaw(data, "evidence", response.Encode(candidate.Evidence))
	}

	if flags := candidate.Flags.Names(); len(flags) > 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "flags", nil), flags)
	}

	if ask.Detail == discovery.DetailFull {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "credential_refs", nil),
			[]string{r.Href(entry) + "/record"})
		data = strictjson.AppendRaw(data, "metadata", entry.Document.Bytes())
	}

	return r.appendMarks(data, entry, opt, directory.KindProfile)
}

// appendFreshness appends how old a candidate is (XU-009). A profile says itself when its
// metadata were made.
func appendFreshness(data []byte, candidate *discovery.Candidate, ask *discovery.Request) []byte {
	made := strictjson.AppendString(nil, candidate.Freshness.MetadataUpdatedAt)
	if d := candidate.Entry.Document; !kinds.DatesOf(d).Updated.IsZero() {
		made, _ = strictjson.FindMember(d.Members(), "updated_at")
	}

	data = strictjson.AppendRaw(strictjson.AppendRaw(data, "freshness", []byte{'{'}), "metadata_updated_at", made)
	data = strictjson.AppendText(data, "indexed_at", candidate.Freshness.IndexedAt)

	data = strictjson.AppendUint(data, "age_seconds", uint64(candidate.Freshness.AgeSeconds))
	if ask.Constraints.MaxAge >= 0 {
		data = response.AppendBool(data, "stale", candidate.Freshness.Stale)
	}

	return append(data, '}')
}

// acceptableFirst returns the bindings, those of acceptable protocols first (XU-050).
func acceptableFirst(bindings []directory.Binding, protocols []string) []directory.Binding {
	bindings = slices.Clone(bindings)

	// Among equals, the order of the registration holds.
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

	target, err := url.Parse(endpoint)
	if err != nil {
		before, _, _ := strings.Cut(endpoint, "?")
		return before
	}

	target.User = nil
	target.RawQuery = ""
	target.ForceQuery = false

	return target.String()
}
