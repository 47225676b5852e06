package api

import (
	"net/http"

	"github.com/roster-mesh/roster/api/wire"
)

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
	var in wire.RevokeRequest
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
