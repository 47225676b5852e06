package api

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// The discovery profile's out-functions: a registration of any kind as draft-xu
// shows it (spec/views.md).

// profileHref is the path of a registration on this surface.
func profileHref(e *directory.Entry) string { return "/discovery/agents/" + e.RID.String() }

// appendMetadata appends the whole registration (xu 4). A profile's document is
// as it was written, byte for byte (XU-003).
func (s *Server) appendMetadata(b []byte, e *directory.Entry, l look) []byte {
	b = append(b, '{')
	ends := false
	if e.Document.Kind() == directory.KindProfile {
		for i, m := range e.Document.Members() {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(strictjson.AppendString(b, m.Name), ':')
			b = append(b, m.Value...)
			ends = ends || m.Name == "expires_at"
		}
	} else {
		b = appendAsMetadata(b, e, projection(e))
		b = appendStamp(b, "updated_at", e.UpdatedAt)
	}
	if !ends {
		b = appendStamp(b, "expires_at", e.ExpiresAt)
	}
	return s.appendMarks(b, e, l, directory.KindProfile)
}

// appendAsMetadata appends the members of a document of another kind.
func appendAsMetadata(b []byte, e *directory.Entry, p *directory.Projection) []byte {
	b = strictjson.AppendText(b, "id", publicID(e))
	b = strictjson.AppendText(b, "name", title(e, p))
	b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	b = appendStrings(strictjson.AppendRaw(b, "tags", nil), metadataTags(e, p))
	if len(p.Examples) > 0 {
		b = list(strictjson.AppendRaw(b, "examples", nil), p.Examples, appendExample)
	}
	b = list(strictjson.AppendRaw(b, "bindings", nil), p.Bindings, appendBinding)
	b = appendOptionalRaw(b, "auth", p.Authentication)
	b = appendOptionalRaw(b, "constraints", p.Constraints)
	if len(p.Languages) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "supported_languages", nil), p.Languages)
	}
	b = strictjson.AppendText(b, "status", p.Status)
	return appendOptional(b, "version", p.Version)
}

// metadataTags are the agent's tags, its capabilities', and the list of
// capabilities, which has no operations in it (spec/views.md, 6).
func metadataTags(e *directory.Entry, p *directory.Projection) []string {
	tags := union(nil, p.Tags)
	for i := range p.Capabilities {
		tags = union(tags, p.Capabilities[i].Tags)
	}
	return union(tags, kinds.ListedCapabilities(e.Document, p))
}

func appendBinding(b []byte, x directory.Binding) []byte {
	b = strictjson.AppendText(append(b, '{'), "protocol", x.Protocol)
	b = strictjson.AppendText(b, "endpoint", x.Endpoint)
	if len(x.MediaTypes) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "media_types", nil), x.MediaTypes)
	}
	b = appendOptional(b, "interaction_model", x.InteractionModel)
	b = appendOptional(b, "transport", x.Transport)
	return append(appendOptional(b, "envelope", x.Envelope), '}')
}

// appendCandidate appends a candidate in as much detail as was asked for (xu 6.1,
// 7.4; XU-054, XU-058).
func (s *Server) appendCandidate(b []byte, c *discovery.Candidate, r *discovery.Request, l look) []byte {
	e := c.Entry
	p := projection(e)
	b = strictjson.AppendText(append(b, '{'), "id", publicID(e))
	if r.Detail != discovery.DetailMinimal {
		b = strictjson.AppendText(b, "name", title(e, p))
		b = strictjson.AppendText(b, "description", cmp.Or(p.Description, title(e, p)))
	}
	show := appendPlainBinding
	if r.Detail == discovery.DetailFull {
		show = appendBinding
	}
	b = list(strictjson.AppendRaw(b, "bindings", nil), acceptableFirst(p.Bindings, r.Protocols), show)
	b = appendNumber(b, "score", c.Score)
	b = strictjson.AppendText(b, "status", p.Status)
	if r.Detail != discovery.DetailMinimal || r.IncludeEvidence {
		b = appendStrings(strictjson.AppendRaw(b, "matched_tags", nil), c.MatchedTags)
		b = appendFreshness(b, c, r)
	}
	if r.IncludeEvidence {
		b = strictjson.AppendRaw(b, "score_components", encoded(c.Components))
		b = strictjson.AppendRaw(b, "matched_examples", encoded(c.MatchedExamples))
		b = strictjson.AppendRaw(b, "evidence", encoded(c.Evidence))
	}
	if flags := c.Flags.Names(); len(flags) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "flags", nil), flags)
	}
	if r.Detail == discovery.DetailFull {
		record := s.href(e) + "/record"
		b = appendStrings(strictjson.AppendRaw(b, "credential_refs", nil), []string{record})
		b = strictjson.AppendRaw(b, "metadata", e.Document.Bytes())
	}
	return s.appendMarks(b, e, l, directory.KindProfile)
}

// appendFreshness appends how old a candidate is (XU-009). A profile says itself
// when its metadata were made.
func appendFreshness(b []byte, c *discovery.Candidate, r *discovery.Request) []byte {
	made := strictjson.AppendString(nil, c.Freshness.MetadataUpdatedAt)
	if d := c.Entry.Document; d.Kind() == directory.KindProfile && !kinds.DatesOf(d).Updated.IsZero() {
		ms := d.Members()
		made = ms[slices.IndexFunc(ms, func(m strictjson.Member) bool { return m.Name == "updated_at" })].Value
	}
	b = strictjson.AppendRaw(strictjson.AppendRaw(b, "freshness", []byte{'{'}), "metadata_updated_at", made)
	b = strictjson.AppendText(b, "indexed_at", c.Freshness.IndexedAt)
	b = strictjson.AppendUint(b, "age_seconds", uint64(c.Freshness.AgeSeconds))
	if r.Constraints.MaxAge >= 0 {
		b = strictjson.AppendRaw(b, "stale", strconv.AppendBool(nil, c.Freshness.Stale))
	}
	return append(b, '}')
}

// acceptableFirst returns the bindings, those of the protocols that are
// acceptable first (XU-050).
func acceptableFirst(bs []directory.Binding, protocols []string) []directory.Binding {
	bs = slices.Clone(bs)
	slices.SortStableFunc(bs, func(a, b directory.Binding) int {
		x, y := slices.Contains(protocols, a.Protocol), slices.Contains(protocols, b.Protocol)
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	return bs
}

// appendPlainBinding appends enough of a binding to go on with, and nothing that
// may be a secret: no user information and no query.
func appendPlainBinding(b []byte, x directory.Binding) []byte {
	b = strictjson.AppendText(append(b, '{'), "protocol", x.Protocol)
	return append(strictjson.AppendText(b, "endpoint", plainEndpoint(x.Endpoint)), '}')
}

func plainEndpoint(s string) string {
	if !strings.ContainsAny(s, "@?") {
		return s
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" {
		before, _, _ := strings.Cut(s, "?")
		return before
	}
	u.User, u.RawQuery, u.ForceQuery = nil, "", false
	return u.String()
}
