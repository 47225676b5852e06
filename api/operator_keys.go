package api

import (
	"context"
	"net/http"
	"time"
)

// A KeysStatus is a domain's newest key document, for people.
type KeysStatus struct {
	Epoch   uint64       `json:"epoch"`
	Seq     uint64       `json:"seq"` // the revision at which it was issued
	Expires time.Time    `json:"expires,omitzero"`
	Keys    []SigningKey `json:"keys"`
	Revoked []string     `json:"revoked,omitempty"` // ids
}

// A SigningKey is one that the domain's signatures are believed by.
type SigningKey struct {
	ID      string `json:"id"`               // its RFC 7638 thumbprint
	Node    string `json:"node"`             // a SPIFFE ID
	Rotated bool   `json:"rotated,omitzero"` // the node signs by another, and this one is believed for some minutes yet
}

type revokeRequest struct {
	Key string `json:"key"`
}

func (s *Server) keys(w http.ResponseWriter, c *call) error {
	return sendStatus(w, c, s.cfg.Operator.Keys())
}

// rotateKey gives the node that is asked another signing key.
func (s *Server) rotateKey(w http.ResponseWriter, c *call) error {
	if err := s.cfg.Operator.RotateKey(c.Context()); err != nil {
		return err
	}
	s.log.Info("the signing key was changed", "request_id", c.requestID, "caller", c.id.String())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// revokeKey takes a key back, for the whole domain and for good.
func (s *Server) revokeKey(w http.ResponseWriter, c *call) error {
	var in revokeRequest
	if err := readRequest(w, c, &in); err != nil {
		return err
	}
	if err := s.cfg.Operator.RevokeKey(c.Context(), in.Key); err != nil {
		return err
	}
	s.log.Info("a signing key was revoked", "request_id", c.requestID, "caller", c.id.String(), "key", in.Key)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Keys reads which keys sign for the domain.
func (c *Client) Keys(ctx context.Context) (KeysStatus, *Reply, error) {
	var out KeysStatus
	r, err := c.read(ctx, "/v1/operator/keys", "keys", &out)
	return out, r, err
}

// RotateKey gives the node that is asked another signing key.
func (c *Client) RotateKey(ctx context.Context) error {
	_, err := c.change(ctx, http.MethodPost, "/v1/operator/keys/rotate", nil, nil)
	return err
}

// RevokeKey takes a signing key back, for good. To repeat it is safe.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.order(ctx, "/v1/operator/keys/revoke", revokeRequest{id})
}
