package api

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

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
	var in wire.PolicyChange
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
