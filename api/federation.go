package api

import "net/http"

// federation hands a request to the handler of the federation, which decides itself
// who may call, and refuses by a problem with this request's id.
func (s *Server) federation(w http.ResponseWriter, c *call) error {
	s.cfg.Federation.ServeHTTP(w, c.Request)
	return nil
}
