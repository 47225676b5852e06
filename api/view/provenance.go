package view

import (
	"slices"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/names"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// appendMarks appends the members that say how a body came about, and closes its object.
// A document of another kind than the surface's own is shown as a projection.
func (r *Renderer) appendMarks(data []byte, entry *directory.Entry, opt Options, own directory.Kind) []byte {
	if kind := entry.Document.Kind(); kind != own {
		data = strictjson.AppendRaw(data, "projected", []byte("true"))
		data = strictjson.AppendText(data, "kind", string(kind))
	}

	if entry.Redacted {
		data = strictjson.AppendRaw(data, "redacted", []byte("true"))
	}

	return append(r.appendProvenance(strictjson.AppendRaw(data, "provenance", nil), entry, opt), '}')
}

// appendProvenance appends where a registration comes from, who vouches for it, and how
// fresh it is.
func (r *Renderer) appendProvenance(data []byte, entry *directory.Entry, opt Options) []byte {
	data = strictjson.AppendText(append(data, '{'), "origin_authority", entry.Origin.Name())
	if !opt.Brief {
		data = response.AppendOptional(data, "origin_service", r.service(entry))
		data = response.AppendOptional(data, "origin_href", r.OriginHref(entry))

		data = strictjson.AppendText(data, "origin_signature", r.Href(entry)+"/record")
		if opt.Registrant {
			data = r.appendRegistrant(data, entry)
		}
	}

	data = strictjson.AppendUint(data, "revision", entry.Statement)
	if !opt.Brief {
		data = response.AppendTime(data, "registered_at", entry.RegisteredAt)
		data = response.AppendTime(data, "updated_at", entry.UpdatedAt)
	}

	data = response.AppendTime(data, "expires_at", entry.ExpiresAt)

	if !opt.Brief {
		if entry.Received != nil {
			data = response.AppendTime(data, "received_at", entry.Received.At)
			data = strictjson.AppendText(data, "received_from", entry.Received.From.Name())
		}

		if opt.Registrant {
			data = r.appendVisibility(data, entry)
		}
	}

	if flags := flagsOf(entry); flags != 0 {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "flags", nil), flags.Names())
	}

	return append(r.appendVerification(strictjson.AppendRaw(data, "verification", nil), entry, opt), '}')
}

// flagsOf returns the doubts about an entry's name (threats.md, S11).
func flagsOf(entry *directory.Entry) names.Flags {
	flags := names.FlagsOf(entry.Agent)
	if entry.Confusable {
		flags |= names.Confusable
	}

	return flags
}

// appendRegistrant appends who registered the contents, and the other identities and the
// source that their provenance names. All of it is withheld with the owner.
func (r *Renderer) appendRegistrant(data []byte, entry *directory.Entry) []byte {
	if entry.Owner.IsZero() {
		return data
	}

	data = strictjson.AppendText(data, "registrant", entry.Registrant().String())
	if !r.isOwn(entry) {
		data = strictjson.AppendText(data, "registrant_state", string(entry.RegistrantState()))
	}

	if entry.Registrant() != entry.Owner {
		data = strictjson.AppendText(data, "owner", entry.Owner.String())
	}

	if entry.Provenance != nil {
		data = response.AppendOptional(data, "registered_by", entry.Provenance.RegisteredBy.String())
		data = response.AppendOptional(data, "transferred_by", entry.Provenance.TransferredBy.String())
		data = response.AppendOptional(data, "imported_from", entry.Provenance.ImportedFrom)
	}

	return data
}

// appendVisibility appends who outside the domain may see an own registration, unless it
// is the default.
func (r *Renderer) appendVisibility(data []byte, entry *directory.Entry) []byte {
	if !r.isOwn(entry) || entry.Owner.IsZero() {
		return data
	}

	if v := entry.Visibility.String(); v != r.cfg.DefaultVisibility().String() {
		data = strictjson.AppendText(data, "visibility", v)
	}

	return data
}

// appendVerification appends the key that a foreign registration was verified with,
// whether an own one was restored from a backup and not refreshed since, whether the
// origin contradicted itself and is frozen, and the result of the last probe of the agent.
// A record that doesn't verify is never stored, so it is never shown.
func (r *Renderer) appendVerification(data []byte, entry *directory.Entry, opt Options) []byte {
	switch received := entry.Received; {
	case received == nil && entry.Unconfirmed:
		data = r.appendLogged(append(data, `{"state":"local","unconfirmed":true`...), entry, opt)
	case received == nil:
		data = r.appendLogged(append(data, `{"state":"local"`...), entry, opt)
	case opt.Brief:
		data = r.appendLogged(append(data, `{"state":"verified"`...), entry, opt)
	default:
		data = strictjson.AppendText(append(data, '{'), "state", "verified")
		data = strictjson.AppendText(data, "key", received.Key)
		data = r.appendLogged(data, entry, opt)
		data = response.AppendTime(data, "checked_at", received.CheckedAt)
	}

	if r.disputed(entry) {
		data = append(data, `,"disputed":true`...)
	}

	if probe, ok := r.probed(entry); ok {
		data = appendProbe(strictjson.AppendRaw(data, "probe", nil), probe, opt)
	}

	return append(data, '}')
}

// appendLogged appends whether a registration's statement is in its origin's ledger, and where.
func (r *Renderer) appendLogged(data []byte, entry *directory.Entry, opt Options) []byte {
	if r.cfg.Logged == nil {
		return data
	}

	at, logged := r.logged(entry)
	if at.Unconfirmed {
		data = response.AppendBool(data, "unconfirmed", true)
	}

	data = response.AppendBool(data, "logged", logged)

	data = response.AppendBool(data, "witnessed", at.Witnesses != nil)
	if !logged || opt.Brief {
		return data
	}

	data = strictjson.AppendText(append(strictjson.AppendRaw(data, "log", nil), '{'), "origin", at.Log)
	data = strictjson.AppendUint(data, "index", at.Index)

	data = append(response.AppendTime(data, "at", at.At*1000), '}')

	return appendWitnesses(data, at.Witnesses)
}

// appendWitnesses appends who has cosigned a checkpoint that covers the statement.
func appendWitnesses(data []byte, witnesses *directory.Witnesses) []byte {
	if witnesses == nil {
		return data
	}

	return strictjson.AppendList(strictjson.AppendName(data, "witnesses"), *witnesses,
		func(b []byte, witness directory.Witnessed) []byte {
			b = strictjson.AppendText(append(b, '{'), "name", witness.Name)
			return append(response.AppendTime(b, "at", witness.At*1000), '}')
		})
}

// logged returns where a registration's statement is in its origin's ledger, if that is known here.
func (r *Renderer) logged(entry *directory.Entry) (at directory.Inclusion, ok bool) {
	if r.cfg.Logged == nil {
		return at, false
	}

	return r.cfg.Logged(entry)
}

// probed returns the result of asking an agent about itself, if it was asked.
func (r *Renderer) probed(entry *directory.Entry) (probe directory.Probe, ok bool) {
	if r.cfg.Probed == nil {
		return probe, false
	}

	return r.cfg.Probed(entry)
}

// disputed tells whether a registration's origin contradicted itself and is frozen.
func (r *Renderer) disputed(e *directory.Entry) bool {
	return e.Received != nil && slices.Contains(r.cfg.Frozen(), e.Origin)
}

// appendProbe appends the result of asking an agent about itself (AD-044).
func appendProbe(data []byte, probe directory.Probe, opt Options) []byte {
	data = strictjson.AppendText(append(data, '{'), "state", string(probe.State))
	if !opt.Brief {
		if len(probe.Members) > 0 {
			data = strictjson.AppendStrings(strictjson.AppendRaw(data, "members", nil), probe.Members)
		}

		data = response.AppendOptional(data, "reason", probe.Reason)
		if !opt.Timeless {
			data = response.AppendTime(data, "checked_at", probe.At)
		}
	}

	return append(data, '}')
}
