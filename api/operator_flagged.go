package api

import (
	"context"
	"net/http"
)

// A Flagged is a registration whose texts are written for rankers and not for
// readers (XU-030): it ranks below what is honest.
type Flagged struct {
	Agent  string   `json:"agent"`
	Origin string   `json:"origin"` // the domain that registered it
	Href   string   `json:"href"`
	Flags  []string `json:"flags"` // repetition, density, scatter
}

// maxFlagged bounds an answer.
const maxFlagged = 1000

// flagged answers GET /v1/operator/flagged with the registrations, of all domains,
// that are flagged: the first of them by origin and rid.
func (s *Server) flagged(w http.ResponseWriter, c *call) error {
	all := []Flagged{}
	for _, f := range s.cfg.Finder.Flagged(maxFlagged) {
		if e, ok := s.cfg.View.Get(f.Origin, f.RID); ok {
			all = append(all, Flagged{e.Agent, e.Origin.Name(), s.href(e), f.Flags.Names()})
		}
	}
	return sendStatus(w, c, struct {
		Flagged []Flagged `json:"flagged"`
	}{all})
}

// Flagged reads which registrations are flagged, an operator's question.
func (c *Client) Flagged(ctx context.Context) ([]Flagged, *Reply, error) {
	var out struct {
		Flagged []Flagged `json:"flagged"`
	}
	r, err := c.read(ctx, "/v1/operator/flagged", "flagged", &out)
	return out.Flagged, r, err
}
