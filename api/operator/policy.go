package operator

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// A PolicyStore has the domain's access policy.
type PolicyStore interface {
	// Policy is the policy in force at this node.
	Policy() wire.PolicyText
	// SetPolicy puts a policy in force for the whole domain, on behalf of by. It refuses a
	// policy that has an error, or that would forbid by to change it again; and one whose
	// predecessor has none of the versions in replaces, unless that is nil. The policy's
	// version is the revision of the returned position.
	SetPolicy(ctx context.Context, by directory.Identity, text string, replaces []uint64) (directory.Outcome, error)
	// PreviewPolicy says what a policy would change at the peers. It changes nothing.
	PreviewPolicy(ctx context.Context, text string) (wire.PolicyPreview, error)
}

// MaxPolicyBody bounds the body that a policy comes in; the text has a lower bound.
const MaxPolicyBody = 1 << 20

// Policy answers the routes of the access policy.
type Policy struct {
	Domain spiffeid.TrustDomain
	Store  PolicyStore
	Logger *slog.Logger
}

// Get answers GET /v1/operator/policy. Its entity tag is of the version.
func (p *Policy) Get(w http.ResponseWriter, call *request.Call) error {
	current := p.Store.Policy()

	body, err := json.Marshal(current)
	if err != nil {
		return fmt.Errorf("encoding the policy: %w", err)
	}

	body = append(body, '\n')
	response.NoStore(w)

	return response.Send(w, call, "application/json", response.StrongTag(current.Version, body), body)
}

// Set answers PUT /v1/operator/policy. The domain's leader compares If-Match and the
// body's version with the policy that is in force then.
func (p *Policy) Set(w http.ResponseWriter, call *request.Call) error {
	in, err := readChange(w, call)
	if err != nil {
		return err
	}

	replaces, err := replacedVersions(call.Request, in.Version)
	if err != nil {
		return err
	}

	outcome, err := p.Store.SetPolicy(call.Context(), call.Identity, *in.Policy, replaces)
	if err != nil {
		return err
	}

	p.Logger.Info("policy set", "request_id", call.RequestID, "caller", call.Identity.String(), "revision",
		outcome.Position.Revision)
	response.NoStore(w)
	w.Header().Set("Roster-Index", directory.FormatIndex(p.Domain, outcome.Position))

	return response.NoContent(w)
}

// Preview answers POST /v1/operator/policy/preview: what a policy would change at the peers.
func (p *Policy) Preview(w http.ResponseWriter, call *request.Call) error {
	in, err := readChange(w, call)
	if err != nil {
		return err
	}

	preview, err := p.Store.PreviewPolicy(call.Context(), *in.Policy)
	if err != nil {
		return err
	}

	return response.Status(w, call, preview)
}

// readChange reads a body that has a policy.
func readChange(w http.ResponseWriter, call *request.Call) (change wire.PolicyChange, err error) {
	body, err := request.ReadBody(w, call)
	if err != nil {
		return change, err
	}

	if err := directory.UnmarshalBody(body, &change, json.RejectUnknownMembers(true)); err != nil {
		return change, err
	}

	if change.Policy == nil {
		return change, directory.Refuse(directory.BadRequest, `the body must be {"policy": CEDAR-TEXT}`).At("/policy")
	}

	return change, nil
}

// replacedVersions returns the versions of which the policy in force must have one, by
// the request's condition and its body; nil for any.
func replacedVersions(r *http.Request, version *uint64) ([]uint64, error) {
	cond, err := request.ParseCondition(r.Header)
	switch {
	case err != nil:
		return nil, err
	case cond.Absent:
		return nil, directory.Refuse(directory.PreconditionFailed,
			"If-None-Match is *, but there is always a policy in force")
	case version == nil:
		return cond.Revisions, nil
	case cond.Revisions != nil && !slices.Contains(cond.Revisions, *version):
		return nil, directory.Refuse(directory.PreconditionFailed,
			"If-Match and the body's version, %d, name different policies", *version).At("/version")
	}

	return []uint64{*version}, nil
}
