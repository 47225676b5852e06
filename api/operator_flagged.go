package api

import (
	"net/http"

	"github.com/roster-mesh/roster/api/wire"
)

// maxFlagged bounds an answer.
const maxFlagged = 1000

// flagged answers GET /v1/operator/flagged with the registrations, of all domains,
// that are flagged: the first of them by origin and rid.
func (s *Server) flagged(w http.ResponseWriter, c *call) error {
	all := []wire.Flagged{}
	for _, f := range s.cfg.Finder.Flagged(maxFlagged) {
		if e, ok := s.cfg.View.Get(f.Origin, f.RID); ok {
			all = append(all, wire.Flagged{Agent: e.Agent, Origin: e.Origin.Name(), Href: s.href(e), Flags: f.Flags.Names()})
		}
	}
	return sendStatus(w, c, wire.FlaggedList{Flagged: all})
}
