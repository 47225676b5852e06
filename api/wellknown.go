package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// wellKnown answers GET /.well-known/ad: the AD's interfaces, the same on every
// node (jimenez 3.1, AD-006, AD-047). refresh and max_refresh are ours: where many
// are refreshed at once, and how many.
func (s *Server) wellKnown(w http.ResponseWriter, c *call) error {
	b := strictjson.AppendText([]byte{'{'}, "registration", "/ad/r")
	b = strictjson.AppendText(b, "lookup", "/ad/l{?"+strings.Join(append(slices.Clip(lookupParams), "min", "wait"), ",")+"}")
	b = strictjson.AppendText(b, "refresh", "/ad/refresh")
	b = strictjson.AppendUint(b, "max_refresh", directory.MaxRenewals)
	b = strictjson.AppendUint(b, "max_count", index.MaxCount)
	b = strictjson.AppendRaw(b, "authentication", appendStrings(nil, s.cfg.Takes.methods()))
	if s.cfg.Takes.Plain != "" {
		b = strictjson.AppendText(b, "plain_bearer", s.cfg.Takes.Plain)
	}
	return sendPublic(w, c, "application/json", append(b, '}', '\n'))
}

// BundlePath is where a node serves its domain's trust bundle (SPIFFE Federation, 5).
const BundlePath = "/.well-known/spiffe-bundle"

// bundle answers GET /.well-known/spiffe-bundle: whom to believe of this domain.
func (s *Server) bundle(w http.ResponseWriter, c *call) error {
	b, err := s.cfg.Bundle()
	if err != nil {
		return err
	}
	return sendPublic(w, c, "application/json", b)
}
