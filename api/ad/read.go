package ad

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
)

// LookupParams are the parameters of a lookup, the draft's own first, as the template at
// /.well-known/ad lists them.
var LookupParams = []string{
	"agent", "protocol", "cap_name", "cap_type", "tag", "page", "count",
	"origin", "scope", "status", "language", "after", "brief", "consistency",
}

// Lookup answers GET /ad/l (jimenez 5).
func (h *Handler) Lookup(w http.ResponseWriter, call *request.Call) error {
	var opt view.Options

	query, err := span.Get(call.Context(), span.Parse, func() (query index.Query, err error) {
		query, opt, err = parseLookup(call)
		return query, err
	})
	if err != nil {
		return err
	}

	page, err := h.Reader.Lookup(call, admission.Reads, query, h.Reader.Guard.Viewer(call))
	if err != nil {
		return err
	}

	_, step := span.Start(call.Context(), span.Render)
	defer step.End()

	step.Items(len(page.Entries))

	buffer, release := response.Buffer(call)
	defer release()

	data, hash := h.Reader.Render.AppendItems(append((*buffer)[:0], `{"agents":`...), page.Entries, opt)
	data = append(data, '}', '\n')

	// Appending may have moved the memory that goes back to the pool.
	*buffer = data

	if page.More {
		w.Header().Set("Link", call.Params.NextLink("/ad/l", LookupParams, strconv.Itoa(query.Page+1), page.Next))
	}

	return response.Send(w, call, "application/json", response.WeakTag(hash), data)
}

// parseLookup reads the parameters of a lookup.
func parseLookup(call *request.Call) (query index.Query, opt view.Options, err error) {
	values, err := call.Params.Decode(LookupParams)
	if err != nil {
		return query, opt, err
	}

	if query, err = index.ParseQuery(values); err != nil {
		return query, opt, err
	}

	opt.Registrant = !call.Anonymous()
	opt.Brief, err = request.Brief(values["brief"])

	return query, opt, err
}

// Record answers with the registration's signed record, which any domain can verify
// (RFC 9901).
func (h *Handler) Record(w http.ResponseWriter, call *request.Call) error {
	found, err := h.Reader.Find(w, call, h.Reader.Render.Href)
	if err != nil {
		return err
	}

	entry := found.Entry

	record, err := h.Records.Record(call.Context(), entry.Origin, entry.RID)
	if err != nil {
		return err
	}

	if record, err = signed.RedactRecord(record, found.Redaction); err != nil {
		return err
	}

	return response.Send(w, call, "application/sd-jwt", response.StrongTag(entry.Revision, []byte(record)),
		[]byte(record))
}

// Proof answers with the registration's proof file, which roster verify reads without a
// network. A proof names a record with all that its stream discloses, so a caller from
// whom a part of the registration is withheld gets its record, and no proof. With
// format=staple it is the proof file that travels with the agent, and with
// format=tlog-proof the C2SP proof that its ledger has the record's statement.
func (h *Handler) Proof(w http.ResponseWriter, call *request.Call) error {
	format, err := call.Params.One("format")
	if err != nil {
		return err
	}

	if format != "" && format != formatStaple && format != formatTlog {
		return directory.Refuse(directory.BadQuery, "format %q of a proof is unknown; leave it out, or give %s or %s",
			format, formatStaple, formatTlog)
	}

	found, err := h.Reader.Find(w, call, h.Reader.Render.Href)
	if err != nil {
		return err
	}

	entry := found.Entry

	if kinds.Redact(entry, found.Redaction) != entry {
		return directory.Refuse(directory.Forbidden, "a proof shows the whole registration, and policy withholds "+
			"a part of it from you. Its record, at %s/record, shows the rest", h.Reader.Render.Href(entry))
	}

	var proof []byte

	media := "application/json"

	switch format {
	case formatStaple:
		proof, err = h.Records.Staple(entry.Origin, entry.RID)
	case formatTlog:
		media = "text/plain; charset=utf-8"
		proof, err = h.tlogProof(entry)
	default:
		proof, err = h.Records.Proof(call.Context(), entry.Origin, entry.RID)
	}

	if err != nil {
		return err
	}

	return response.Send(w, call, media, response.StrongTag(entry.Revision, proof), proof)
}

// The formats of a proof that travels with its agent, and of one for other verifiers of transparency logs.
const (
	formatStaple = "staple"
	formatTlog   = "tlog-proof"
)

// tlogProof returns the C2SP tlog-proof of a registration's newest statement.
func (h *Handler) tlogProof(entry *directory.Entry) ([]byte, error) {
	past, err := h.Past(entry.Origin, entry.RID, directory.Position{})
	if err != nil {
		return nil, err
	}

	// The newest statement with a path belongs to the last checkpoint.
	for _, st := range slices.Backward(past.Statements) {
		if st.Entry != nil && st.Path != nil && len(past.Checkpoints) > 0 {
			return []byte(checkpoint.FormatProof(checkpoint.Proof{
				Index: st.Index, Path: st.Path, Checkpoint: past.Checkpoints[len(past.Checkpoints)-1],
			})), nil
		}
	}

	return nil, directory.Refuse(directory.Unavailable,
		"this node has not compared the ledger of %s with its checkpoint so far; try again later", entry.Origin.Name())
}

// readPeers is the operator's action that lets an identity see the audience of every
// registration.
const readPeers = "peer.read"

// Audience answers with the peers that a registration of this domain is sent to, and with
// those from which it is withheld, and why. It is for its owner, commissioning tools and
// identities that may read the peerings.
func (h *Handler) Audience(w http.ResponseWriter, call *request.Call) error {
	found, err := h.audienceOf(call)
	if err != nil {
		return err
	}

	return response.Status(w, call, wire.Audience{
		Agent: found.Agent, RID: found.RID.String(), Visibility: found.Visibility.String(), Peers: h.Recipients(found),
	})
}

// audienceOf returns the registration whose audience the caller may see.
func (h *Handler) audienceOf(call *request.Call) (*directory.Entry, error) {
	guard := h.Reader.Guard
	if call.Anonymous() {
		return nil, guard.Unauthenticated("", nil)
	}

	operates := h.Operate(call.Identity, readPeers).Allow

	// An operator learns of registrations that policy hides from it as by "registration.read".
	seen := h.Reader.View.FindVisible(call.Vars["id"], func(e *directory.Entry) bool {
		return guard.MayRead(call, e) || operates && guard.IsOwn(e)
	})

	for _, entry := range seen {
		switch {
		case guard.MayWrite(call, entry) || operates && guard.IsOwn(entry):
			return entry, nil
		case !guard.IsOwn(entry):
			return nil, directory.Refuse(directory.ForeignRegistration,
				"this is a copy of a registration of %s, and only that directory knows to whom it sends it",
				entry.Origin)
		}
	}

	if len(seen) == 0 {
		return nil, registration.PathName(call).NotFound()
	}

	return nil, directory.Refuse(directory.Forbidden, "only the owner of a registration, a commissioning tool and "+
		"identities that policy permits the operation %s see to which peers it is sent", readPeers)
}
