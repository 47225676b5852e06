package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// A PolicyText is a policy as people write it.
type PolicyText struct {
	Policy string `json:"policy"` // Cedar; to set "" is to go back to what is built in
	// Version is the revision from which on it holds; 0 where the domain never made one.
	// It is in X-Roster-Policy of every operator's answer.
	Version uint64 `json:"version"`
}

// maxPolicyBody bounds the body that a policy comes in; of the text there is a
// bound below.
const maxPolicyBody = 1 << 20

// policy answers GET /v1/operator/policy. Its entity tag is of the version.
func (s *Server) policy(w http.ResponseWriter, c *call) error {
	now := s.cfg.Operator.Policy()
	body, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("encoding the policy: %w", err)
	}
	body = append(body, '\n')
	w.Header().Set("Cache-Control", "no-store")
	return send(w, c, "application/json", strongTag(now.Version, body), body)
}

// setPolicy answers PUT /v1/operator/policy. The domain's leader compares what If-Match
// and the body name with what is in force then.
func (s *Server) setPolicy(w http.ResponseWriter, c *call) error {
	body, err := readUpTo(w, c, maxPolicyBody)
	if err != nil {
		return err
	}
	var in struct {
		Policy  *string `json:"policy"`
		Version *uint64 `json:"version"` // that must be in force; any where it is not there
	}
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil || in.Policy == nil {
		return directory.Refuse(directory.BadRequest, `The body is not {"policy": "the text, in Cedar"}: %w`, err)
	}
	replaces, err := replacesOf(c.Request, in.Version)
	if err != nil {
		return err
	}
	out, err := s.cfg.Operator.SetPolicy(c.Context(), c.id, *in.Policy, replaces)
	if err != nil {
		return err
	}
	s.log.Info("policy set", "request_id", c.requestID, "caller", c.id.String(), "version", out.Position.Revision)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// replacesOf returns the versions of which the policy in force must have one, by the
// request's condition and its body; nil for any.
func replacesOf(r *http.Request, version *uint64) ([]uint64, error) {
	cond, err := conditionOf(r)
	switch {
	case err != nil:
		return nil, err
	case cond.absent:
		return nil, directory.Refuse(directory.PreconditionFailed, "If-None-Match is *, and there is always a policy in force.")
	case version == nil:
		return cond.revisions, nil
	case cond.revisions != nil && !slices.Contains(cond.revisions, *version):
		return nil, directory.Refuse(directory.PreconditionFailed, "If-Match and the body's version, %d, are of two policies.", *version).At("/version")
	}
	return []uint64{*version}, nil
}

// Policy returns the policy that is in force at the node that answers.
func (c *Client) Policy(ctx context.Context) (*PolicyText, *Reply, error) {
	var out PolicyText
	r, err := c.read(ctx, "/v1/operator/policy", "policy", &out)
	return &out, r, err
}

// SetPolicy puts a policy in force for the whole domain; "" is what is built in. Where
// replaces is not nil and another version than that is in force by then, nothing is
// changed, and the *Error has the problem directory.PreconditionFailed.
func (c *Client) SetPolicy(ctx context.Context, text string, replaces *uint64) error {
	body, err := json.Marshal(struct {
		Policy  string  `json:"policy"`
		Version *uint64 `json:"version,omitempty"`
	}{text, replaces})
	if err == nil {
		_, err = c.change(ctx, http.MethodPut, "/v1/operator/policy", nil, body)
	}
	return err
}
