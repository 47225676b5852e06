package api

import (
	"net/url"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The AD surface's out-functions: a registration of any kind as draft-jimenez
// shows it (spec/views.md). No other surface's shape is known here.

// appendStamp appends a member with a time, in Unix milliseconds and not before
// 1970, as all our times are written: RFC 3339 in UTC with milliseconds. The
// layout without them is formatted much faster than any of one's own.
func appendStamp(b []byte, name string, ms int64) []byte {
	b = append(strictjson.AppendRaw(b, name, nil), '"')
	b = time.UnixMilli(ms).UTC().AppendFormat(b, time.RFC3339)
	return append(b[:len(b)-len("Z")], '.', '0'+byte(ms/100%10), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z', '"')
}

// A look is what one caller is shown of provenance.
type look struct {
	registrant bool // who registered it, where that is known
	brief      bool // authority, revision, deadline and state alone
	timeless   bool // but for when the agent was asked: the same until something is found
}

// href is the path of e's resource at this node: its own, or the mirror of
// another domain's.
func (s *Server) href(e *directory.Entry) string {
	if s.isOwn(e) {
		return "/ad/r/" + e.RID.String()
	}
	return "/ad/r/" + url.PathEscape(e.Origin.Name()) + "/" + e.RID.String()
}

// originHref is the absolute URI of e at its origin; empty where that domain's
// public URL is not known.
func (s *Server) originHref(e *directory.Entry) string {
	if base := s.service(e); base != "" {
		return base + "/ad/r/" + e.RID.String()
	}
	return ""
}

func (s *Server) service(e *directory.Entry) string {
	if s.isOwn(e) {
		return s.cfg.PublicURL
	}
	return s.cfg.Service(e.Origin)
}

// active is the status of an agent that has none of its own.
const active = "active"

// projection is e's, or an empty one for a document of a kind that this release
// doesn't know.
func projection(e *directory.Entry) *directory.Projection {
	p := e.Projection()
	if p == nil {
		p = &directory.Projection{Status: active}
	}
	return p
}

// appendResource appends the full registration (jimenez 4.3).
func (s *Server) appendResource(b []byte, e *directory.Entry, l look) []byte {
	b = strictjson.AppendText(append(b, '{'), "agent", e.Agent)
	if e.Document.Kind() == directory.KindAD {
		for _, m := range e.Document.Members() {
			b = append(strictjson.AppendString(append(b, ','), m.Name), ':')
			b = append(b, m.Value...)
		}
	} else {
		b = appendProjection(b, projection(e))
	}
	b = strictjson.AppendText(b, "href", s.href(e))
	b = strictjson.AppendUint(b, "lt", uint64(e.Lifetime))
	b = appendStamp(b, "expires_at", e.ExpiresAt)
	b = appendStamp(b, "registered_at", e.RegisteredAt)
	b = appendStamp(b, "updated_at", e.UpdatedAt)
	return s.appendMarks(b, e, l, directory.KindAD)
}

// appendItem appends one item of a lookup's answer (jimenez 5.2), with its status
// where it isn't the usual one (AD-025).
func (s *Server) appendItem(b []byte, e *directory.Entry, l look) []byte {
	p := projection(e)
	b = strictjson.AppendText(append(b, '{'), "agent", e.Agent)
	b = strictjson.AppendText(b, "base", p.Base)
	b = appendOptional(b, "description", p.Description)
	b = appendStrings(strictjson.AppendRaw(b, "protocols", nil), p.Protocols)
	b = list(strictjson.AppendRaw(b, "capabilities", nil), p.Capabilities, func(b []byte, c directory.Capability) []byte {
		b = strictjson.AppendText(append(b, '{'), "name", c.Name)
		return append(strictjson.AppendText(b, "type", c.Type), '}')
	})
	if p.Status != active {
		b = strictjson.AppendText(b, "status", p.Status)
	}
	b = strictjson.AppendText(b, "href", s.href(e))
	return s.appendMarks(b, e, l, directory.KindAD)
}

// appendMarks appends what says of a body how it came to be, and ends it. Of
// another kind than the surface's own, it is a projection.
func (s *Server) appendMarks(b []byte, e *directory.Entry, l look, own directory.Kind) []byte {
	if kind := e.Document.Kind(); kind != own {
		b = strictjson.AppendRaw(b, "projected", []byte("true"))
		b = strictjson.AppendText(b, "kind", string(kind))
	}
	if e.Redacted {
		b = strictjson.AppendRaw(b, "redacted", []byte("true"))
	}
	return append(s.appendProvenance(strictjson.AppendRaw(b, "provenance", nil), e, l), '}')
}

// appendProjection appends the members of a document of another kind.
func appendProjection(b []byte, p *directory.Projection) []byte {
	b = appendOptional(b, "name", p.Name)
	b = strictjson.AppendText(b, "base", p.Base)
	b = appendOptional(b, "description", p.Description)
	b = appendStrings(strictjson.AppendRaw(b, "protocols", nil), p.Protocols)
	b = list(strictjson.AppendRaw(b, "capabilities", nil), p.Capabilities, func(b []byte, c directory.Capability) []byte {
		return appendCapability(b, c, p.Tags)
	})
	b = appendOptional(b, "version", p.Version)
	b = appendOptional(b, "vendor", p.Vendor)
	if len(p.Languages) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "supported_languages", nil), p.Languages)
	}
	b = appendOptionalRaw(b, "authentication", p.Authentication)
	b = appendOptionalRaw(b, "constraints", p.Constraints)
	if len(p.Examples) > 0 {
		b = list(strictjson.AppendRaw(b, "examples", nil), p.Examples, appendExample)
	}
	return strictjson.AppendText(b, "status", p.Status)
}

// appendCapability appends a capability with its tags and the agent's own, which
// count as each capability's (docs/spec/views.md, "How a view is made").
func appendCapability(b []byte, c directory.Capability, own []string) []byte {
	b = strictjson.AppendText(append(b, '{'), "name", c.Name)
	b = strictjson.AppendText(b, "type", c.Type)
	b = appendOptional(b, "description", c.Description)
	b = appendOptionalRaw(b, "input_schema", c.InputSchema)
	b = appendOptionalRaw(b, "output_schema", c.OutputSchema)
	if tags := union(c.Tags, own); len(tags) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "tags", nil), tags)
	}
	return append(b, '}')
}

// union returns a, and what b has beyond it.
func union(a, b []string) []string {
	a = slices.Clip(a)
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

func appendExample(b []byte, x directory.Example) []byte {
	b = append(b, '{')
	b = appendOptional(b, "id", x.ID)
	b = strictjson.AppendText(b, "text", x.Text)
	b = appendOptional(b, "language", x.Language)
	if len(x.Tags) > 0 {
		b = appendStrings(strictjson.AppendRaw(b, "tags", nil), x.Tags)
	}
	b = appendOptionalRaw(b, "input_schema", x.InputSchema)
	b = appendOptionalRaw(b, "output_schema", x.OutputSchema)
	return append(b, '}')
}

// appendProvenance appends where a registration comes from, who vouches for it,
// and how fresh it is (docs/spec/views.md, "Provenance").
func (s *Server) appendProvenance(b []byte, e *directory.Entry, l look) []byte {
	b = strictjson.AppendText(append(b, '{'), "origin_authority", e.Origin.Name())
	if !l.brief {
		b = appendOptional(b, "origin_service", s.service(e))
		b = appendOptional(b, "origin_href", s.originHref(e))
		b = strictjson.AppendText(b, "origin_signature", s.href(e)+"/record")
		if l.registrant {
			b = appendOptional(b, "registrant", e.Owner.String())
		}
	}
	b = strictjson.AppendUint(b, "revision", e.Statement)
	if !l.brief {
		b = appendStamp(b, "registered_at", e.RegisteredAt)
		b = appendStamp(b, "updated_at", e.UpdatedAt)
	}
	b = appendStamp(b, "expires_at", e.ExpiresAt)
	if !l.brief {
		if e.Received != nil {
			b = appendStamp(b, "received_at", e.Received.At)
			b = strictjson.AppendText(b, "received_from", e.Received.From.Name())
		}
		if v := e.Visibility.String(); l.registrant && s.isOwn(e) && !e.Owner.IsZero() && v != s.cfg.Policy.DefaultVisibility().String() {
			b = strictjson.AppendText(b, "visibility", v)
		}
	}
	return append(s.appendVerification(strictjson.AppendRaw(b, "verification", nil), e, l), '}')
}

// appendVerification appends by which key a foreign registration was verified,
// whether an own one was restored from a backup and not refreshed since, whether the
// origin contradicted itself and is frozen, and what its agent says of itself, where
// that was asked.
// What does not verify is never stored, so it is never shown.
func (s *Server) appendVerification(b []byte, e *directory.Entry, l look) []byte {
	switch r := e.Received; {
	case r == nil && e.Unconfirmed:
		b = append(b, `{"state":"local","unconfirmed":true`...)
	case r == nil:
		b = append(b, `{"state":"local"`...)
	case l.brief:
		b = append(b, `{"state":"verified"`...)
	default:
		b = strictjson.AppendText(append(b, '{'), "state", "verified")
		b = strictjson.AppendText(b, "key", r.Key)
		b = strictjson.AppendRaw(b, "logged", []byte("false"))
		b = appendStamp(b, "checked_at", r.CheckedAt)
	}
	if s.disputed(e) {
		b = append(b, `,"disputed":true`...)
	}
	if p, ok := s.probed(e); ok {
		b = appendProbe(strictjson.AppendRaw(b, "probe", nil), p, l)
	}
	return append(b, '}')
}

// probed is what asking an agent came to, where that is known.
func (s *Server) probed(e *directory.Entry) (p directory.Probe, ok bool) {
	if s.cfg.Probed == nil {
		return p, false
	}
	return s.cfg.Probed(e)
}

// disputed reports whether e's origin contradicted itself and is frozen.
func (s *Server) disputed(e *directory.Entry) bool {
	return e.Received != nil && s.cfg.Frozen != nil && slices.Contains(s.cfg.Frozen(), e.Origin)
}

// appendProbe appends what asking an agent came to (AD-044).
func appendProbe(b []byte, p directory.Probe, l look) []byte {
	b = strictjson.AppendText(append(b, '{'), "state", string(p.State))
	if !l.brief {
		if len(p.Members) > 0 {
			b = appendStrings(strictjson.AppendRaw(b, "members", nil), p.Members)
		}
		b = appendOptional(b, "reason", p.Reason)
		if !l.timeless {
			b = appendStamp(b, "checked_at", p.At)
		}
	}
	return append(b, '}')
}

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return strictjson.AppendText(b, name, value)
}

func appendOptionalRaw(b []byte, name string, value []byte) []byte {
	if value == nil {
		return b
	}
	return strictjson.AppendRaw(b, name, value)
}
