package ad

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The operator's actions that let an identity see each registration, living or ended.
const (
	readRegistrations = "registration.read"
	readAudit         = "audit.read"
)

// History answers with the statements of a registration. Of a living one, readers see each statement as policy shows it
// to them now. Those of an ended one are shown to its last owner, operators and auditors. Under the mirror path there
// is the statement that this node has verified.
func (h *Handler) History(w http.ResponseWriter, call *request.Call) error {
	past, latest, err := h.past(w, call)
	if err != nil {
		return err
	}

	// Of an ended registration, sawEnd has let the caller see everything.
	hidden := func(*directory.Entry) (directory.Redaction, bool) { return directory.Redaction{}, true }
	if entry := h.living(latest.RID); entry != nil || latest.Origin != h.Domain {
		hidden = func(e *directory.Entry) (directory.Redaction, bool) {
			redaction, ok := h.Reader.Guard.Redaction(call, e)
			return redaction, ok && h.wasFor(call, e)
		}
	}

	data := strictjson.AppendText([]byte{'{'}, "rid", latest.RID.String())
	data = response.AppendOptional(data, "agent", latest.Agent)
	data = strictjson.AppendText(data, "origin", latest.Origin.Name())
	data = response.AppendBool(data, "complete", past.Complete)

	if past.Earlier != (directory.Position{}) {
		data = strictjson.AppendText(data, "next", past.Earlier.String())
	}

	data = h.appendNeighbour(data, call, "before", past.Before)
	data = h.appendNeighbour(data, call, "after", past.After)

	var before, older *directory.Entry // the contents of the statement before, all and as they are shown

	data = strictjson.AppendList(strictjson.AppendRaw(data, "statements", nil), past.Statements,
		func(b []byte, st directory.PastStatement) []byte {
			shown := st.Entry
			if shown != nil {
				redaction, ok := hidden(shown)
				if shown = kinds.Redact(shown, redaction); !ok {
					shown = nil
				}
			}

			state := stateOf(past, &st, shown)
			b = appendStatement(append(b, '{'), &st, state)

			if state == "end" {
				b = response.AppendOptional(b, "reason", reasonOf(&st, before))
			}

			if shown != nil {
				b = appendContents(b, shown, older, call.Anonymous())
			}

			before, older = st.Entry, shown

			return append(b, '}')
		})
	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "checkpoints", nil), past.Checkpoints)

	return response.Send(w, call, "application/json", response.WeakTagOf(data), append(data, '}', '\n'))
}

// appendNeighbour appends the history of another registration with the same name, if the caller may see that one.
func (h *Handler) appendNeighbour(data []byte, call *request.Call, name string, rid directory.RID) []byte {
	if rid.IsZero() || !h.sees(call, rid) {
		return data
	}

	return strictjson.AppendText(data, name, view.PathOf(rid)+"/history")
}

// sees reports whether the caller may see a registration of this domain, living or ended.
func (h *Handler) sees(call *request.Call, rid directory.RID) bool {
	if entry := h.living(rid); entry != nil {
		_, ok := h.Reader.Guard.Redaction(call, entry)
		return ok
	}

	past, err := h.Past(h.Domain, rid, directory.Position{})

	return err == nil && h.sawEnd(call, newestContents(past))
}

// wasFor reports whether contents were meant for the caller's domain when they were stated: a peer that may
// see a registration now gets none that its owner had kept at home.
func (h *Handler) wasFor(call *request.Call, e *directory.Entry) bool {
	if e.Visibility.Mesh || call.Identity.MemberOf(h.Domain) || call.Identity == e.Owner || e.Origin != h.Domain {
		return true
	}

	id, ok := call.Identity.SPIFFE()

	return ok && slices.Contains(e.Visibility.Peers, id.TrustDomain())
}

// past returns the history that the path names, or its part before the cursor of the query, and its newest contents.
func (h *Handler) past(w http.ResponseWriter, call *request.Call) (*directory.Past, *directory.Entry, error) {
	var before directory.Position

	cursor, err := call.Params.One("after")
	if err == nil && cursor != "" {
		err = before.UnmarshalText([]byte(cursor))
	}

	if err != nil {
		return nil, nil, err
	}

	rid, err := directory.ParseRID(call.Vars["id"])

	// All but the rid of an ended registration is found, or refused, as by GET.
	if _, mirrored := call.Vars["origin"]; mirrored || err != nil || h.living(rid) != nil {
		found, err := h.Reader.Find(w, call, h.Reader.Render.Href)
		if err != nil {
			return nil, nil, err
		}

		past, err := h.Past(found.Entry.Origin, found.Entry.RID, before)

		return past, found.Entry, err
	}

	past, err := h.Past(h.Domain, rid, directory.Position{})
	if err != nil {
		return nil, nil, err
	}

	latest := newestContents(past)
	if !h.sawEnd(call, latest) {
		return nil, nil, registration.PathName(call).NotFound()
	}

	if latest == nil { // all contents were pruned or erased, with the name: hashes and times are left
		latest = &directory.Entry{RID: rid, Origin: h.Domain}
	}

	// The end of the history says who may see all of it.
	if cursor != "" {
		past, err = h.Past(h.Domain, rid, before)
	}

	return past, latest, err
}

// newestContents returns the newest contents in a history; nil if all were pruned.
func newestContents(past *directory.Past) (latest *directory.Entry) {
	for _, st := range past.Statements {
		if st.Entry != nil {
			latest = st.Entry
		}
	}

	return latest
}

// living returns the registration of this domain with a rid, whether the caller may see it or not.
func (h *Handler) living(rid directory.RID) *directory.Entry {
	for _, e := range h.Reader.Mirrored(h.Domain.Name(), rid.String()) {
		return e
	}

	return nil
}

// sawEnd reports whether the caller may see a registration that has ended, with its newest contents; nil if they
// were pruned.
func (h *Handler) sawEnd(call *request.Call, e *directory.Entry) bool {
	if call.Anonymous() {
		return false
	}

	return e != nil && call.Identity == e.Owner || h.Operate(call.Identity, readRegistrations).Allow ||
		h.Operate(call.Identity, readAudit).Allow
}

// stateOf returns the state of a statement, of which the reader sees the contents shown; nil for none.
func stateOf(past *directory.Past, st *directory.PastStatement, shown *directory.Entry) string {
	switch {
	case past.Erased:
		return "erased"
	case st.Entry == nil && st.Payload == nil:
		return "pruned"
	case st.Entry == nil:
		return "end"
	case shown == nil:
		return "withheld"
	default:
		return "put"
	}
}

// reasonOf returns why a registration ended, with its contents of before; empty if these are needed and not here. A
// registration past its deadline may be ended by a command that comes for its name, so the member which brought that
// did not remove it.
func reasonOf(end *directory.PastStatement, before *directory.Entry) string {
	switch {
	case bringerOf(end).IsZero():
		return "expired"
	case before == nil:
		return ""
	case before.ExpiresAt/1000 <= end.At:
		return "expired"
	default:
		return "removed"
	}
}

// bringerOf returns the member that brought a statement; zero if none did, or if its payload was pruned.
func bringerOf(st *directory.PastStatement) spiffeid.ID {
	claims, err := signed.ParseStatement(st.Payload)
	if err != nil {
		return spiffeid.ID{}
	}

	return claims.BroughtBy()
}

// appendStatement appends a statement and its state, without its contents.
func appendStatement(data []byte, st *directory.PastStatement, state string) []byte {
	data = strictjson.AppendText(data, "log", st.Log)
	data = strictjson.AppendUint(data, "index", st.Index)
	data = response.AppendTime(data, "at", st.At*1000)

	if st.Revision > 0 {
		data = strictjson.AppendUint(data, "revision", st.Revision)
	}

	data = strictjson.AppendText(data, "state", state)
	data = strictjson.AppendText(data, "hash", st.H.String())

	if st.Payload != nil {
		data = response.AppendOptional(data, "brought_by", bringerOf(st).String())
		data = strictjson.AppendText(data, "payload", string(st.Payload))
	}

	if st.Path != nil {
		data = strictjson.AppendList(strictjson.AppendRaw(data, "path", nil), st.Path,
			func(b []byte, hash directory.Hash) []byte {
				return append(append(append(b, '"'), hash.String()...), '"')
			})
	}

	return data
}

// appendContents appends the identities that made a statement, its document, and the difference from the statement
// before.
func appendContents(data []byte, shown, older *directory.Entry, anonymous bool) []byte {
	if !anonymous && !shown.Owner.IsZero() {
		data = strictjson.AppendText(data, "owner", shown.Owner.String())
		data = strictjson.AppendText(data, "registrant", shown.Registrant().String())

		if shown.Provenance != nil {
			data = response.AppendOptional(data, "registered_by", shown.Provenance.RegisteredBy.String())
			data = response.AppendOptional(data, "transferred_by", shown.Provenance.TransferredBy.String())
		}
	}

	if shown.Redacted {
		data = response.AppendBool(data, "redacted", true)
	}

	data = strictjson.AppendRaw(data, "document", shown.Document.Bytes())

	if older != nil {
		data = strictjson.AppendStrings(strictjson.AppendRaw(data, "changed", nil), differences(older, shown))
	}

	return data
}

// differences returns the members of documents that are not the same in both, and owner if that is not,
// sorted.
func differences(older, newer *directory.Entry) (names []string) {
	before := map[string][]byte{}
	for _, m := range older.Document.Members() {
		before[m.Name] = m.Value
	}

	for _, m := range newer.Document.Members() {
		if value, had := before[m.Name]; !had || !bytes.Equal(value, m.Value) {
			names = append(names, m.Name)
		}

		delete(before, m.Name)
	}

	for name := range before {
		names = append(names, name)
	}

	if older.Owner != newer.Owner && !older.Owner.IsZero() && !newer.Owner.IsZero() {
		names = append(names, "(owner)")
	}

	slices.Sort(names)

	return names
}
