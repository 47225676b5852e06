package view

import (
	"slices"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// appendMarks appends the members that say how a body came about, and closes its object.
// A document of another kind than the surface's own is shown as a projection.
func (r *Renderer) appendMarks(b []byte, e *directory.Entry, opt Options, own directory.Kind) []byte {
	if kind := e.Document.Kind(); kind != own {
		b = strictjson.AppendRaw(b, "projected", []byte("true"))
		b = strictjson.AppendText(b, "kind", string(kind))
	}
	if e.Redacted {
		b = strictjson.AppendRaw(b, "redacted", []byte("true"))
	}

	return append(r.appendProvenance(strictjson.AppendRaw(b, "provenance", nil), e, opt), '}')
}

// appendProvenance appends where a registration comes from, who vouches for it, and how
// fresh it is.
func (r *Renderer) appendProvenance(b []byte, e *directory.Entry, opt Options) []byte {
	b = strictjson.AppendText(append(b, '{'), "origin_authority", e.Origin.Name())
	if !opt.Brief {
		b = response.AppendOptional(b, "origin_service", r.service(e))
		b = response.AppendOptional(b, "origin_href", r.OriginHref(e))
		b = strictjson.AppendText(b, "origin_signature", r.Href(e)+"/record")
		if opt.Registrant {
			b = response.AppendOptional(b, "registrant", e.Owner.String())
		}
	}

	b = strictjson.AppendUint(b, "revision", e.Statement)
	if !opt.Brief {
		b = response.AppendTime(b, "registered_at", e.RegisteredAt)
		b = response.AppendTime(b, "updated_at", e.UpdatedAt)
	}
	b = response.AppendTime(b, "expires_at", e.ExpiresAt)

	if !opt.Brief {
		if e.Received != nil {
			b = response.AppendTime(b, "received_at", e.Received.At)
			b = strictjson.AppendText(b, "received_from", e.Received.From.Name())
		}
		if opt.Registrant {
			b = r.appendVisibility(b, e)
		}
	}

	return append(r.appendVerification(strictjson.AppendRaw(b, "verification", nil), e, opt), '}')
}

// appendVisibility appends who outside the domain may see an own registration, unless it
// is the default.
func (r *Renderer) appendVisibility(b []byte, e *directory.Entry) []byte {
	if !r.isOwn(e) || e.Owner.IsZero() {
		return b
	}
	if v := e.Visibility.String(); v != r.cfg.DefaultVisibility().String() {
		b = strictjson.AppendText(b, "visibility", v)
	}

	return b
}

// appendVerification appends the key that a foreign registration was verified with,
// whether an own one was restored from a backup and not refreshed since, whether the
// origin contradicted itself and is frozen, and the result of the last probe of the agent.
// A record that doesn't verify is never stored, so it is never shown.
func (r *Renderer) appendVerification(b []byte, e *directory.Entry, opt Options) []byte {
	switch received := e.Received; {
	case received == nil && e.Unconfirmed:
		b = append(b, `{"state":"local","unconfirmed":true`...)
	case received == nil:
		b = append(b, `{"state":"local"`...)
	case opt.Brief:
		b = append(b, `{"state":"verified"`...)
	default:
		b = strictjson.AppendText(append(b, '{'), "state", "verified")
		b = strictjson.AppendText(b, "key", received.Key)
		b = strictjson.AppendRaw(b, "logged", []byte("false"))
		b = response.AppendTime(b, "checked_at", received.CheckedAt)
	}

	if r.disputed(e) {
		b = append(b, `,"disputed":true`...)
	}
	if probe, ok := r.probed(e); ok {
		b = appendProbe(strictjson.AppendRaw(b, "probe", nil), probe, opt)
	}

	return append(b, '}')
}

// probed returns the result of asking an agent about itself, if it was asked.
func (r *Renderer) probed(e *directory.Entry) (probe directory.Probe, ok bool) {
	if r.cfg.Probed == nil {
		return probe, false
	}

	return r.cfg.Probed(e)
}

// disputed tells whether a registration's origin contradicted itself and is frozen.
func (r *Renderer) disputed(e *directory.Entry) bool {
	return e.Received != nil && r.cfg.Frozen != nil && slices.Contains(r.cfg.Frozen(), e.Origin)
}

// appendProbe appends the result of asking an agent about itself (AD-044).
func appendProbe(b []byte, probe directory.Probe, opt Options) []byte {
	b = strictjson.AppendText(append(b, '{'), "state", string(probe.State))
	if !opt.Brief {
		if len(probe.Members) > 0 {
			b = response.AppendStrings(strictjson.AppendRaw(b, "members", nil), probe.Members)
		}
		b = response.AppendOptional(b, "reason", probe.Reason)
		if !opt.Timeless {
			b = response.AppendTime(b, "checked_at", probe.At)
		}
	}

	return append(b, '}')
}
