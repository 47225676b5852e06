package api

import (
	"context"
	"net/http"

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

func (s *Server) policy(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, s.cfg.Operator.Policy())
}

// setPolicy answers PUT /v1/operator/policy.
func (s *Server) setPolicy(w http.ResponseWriter, c *call) error {
	body, err := readUpTo(w, c, maxPolicyBody)
	if err != nil {
		return err
	}
	var in struct {
		Policy  *string `json:"policy"`
		Version uint64  `json:"version"` // of what was read, where that is what is sent back
	}
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil || in.Policy == nil {
		return directory.Refuse(directory.BadRequest, `The body is not {"policy": "the text, in Cedar"}: %w`, err)
	}
	if err := s.cfg.Operator.SetPolicy(c.Context(), c.id, *in.Policy); err != nil {
		return err
	}
	now := s.cfg.Operator.Policy()
	s.log.Info("policy set", "request_id", c.requestID, "caller", c.id.String(), "version", now.Version)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Policy returns the policy that is in force at the node that answers.
func (c *Client) Policy(ctx context.Context) (*PolicyText, *Reply, error) {
	var out PolicyText
	r, err := c.read(ctx, "/v1/operator/policy", &out)
	return &out, r, err
}

// SetPolicy puts a policy in force for the whole domain; "" is what is built in.
func (c *Client) SetPolicy(ctx context.Context, text string) error {
	body, err := json.Marshal(map[string]string{"policy": text})
	if err == nil {
		_, err = c.do(ctx, http.MethodPut, "/v1/operator/policy", nil, body)
	}
	return err
}
