package discovery

import (
	"net/http"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	ranking "github.com/roster-mesh/roster/discovery"
)

// service is the body of /.well-known/agent-discovery.
type service struct {
	Level       string    `json:"level"`
	Profile     string    `json:"profile"`
	Agents      string    `json:"agents"`
	Query       string    `json:"query"`
	Details     []string  `json:"details"`
	Limits      limits    `json:"limits"`
	Constraints []string  `json:"constraints"`
	Taxonomies  []string  `json:"taxonomies"`
	Strict      bool      `json:"strict"`
	Extensions  []string  `json:"request_extensions"`
	Score       score     `json:"score"`
	Diversity   diversity `json:"diversity"`
	Semantic    semantic  `json:"semantic"`
}

type limits struct {
	Query     int `json:"query_bytes"`
	Default   int `json:"default"`
	Max       int `json:"max"`
	Values    int `json:"filter_values"`
	TagBytes  int `json:"tag_bytes"`
	PerOwner  int `json:"per_owner"`
	BodyBytes int `json:"body_bytes"`
}

type score struct {
	Weights    ranking.Weights `json:"weights"`
	Components []string        `json:"components"`
	Formula    string          `json:"formula"`
}

type diversity struct {
	PerOwner        int     `json:"per_owner"`
	DisplacingShare float64 `json:"displacing_share"`
	Rule            string  `json:"rule"`
	Warning         string  `json:"warning"`
}

// A semantic has the source of embeddings, and the texts that are sent to it (XU-068).
type semantic struct {
	Source string   `json:"source"`
	Model  string   `json:"model,omitempty"`
	Sends  []string `json:"sends"` // to another service
}

const diversityRule = "At most per_owner candidates of one owner of one origin come before candidates of others " +
	"whose score " +
	"is at least displacing_share of the score that they displace; the rest follow by score. " +
	"A request for one owner or one origin, or with diversity false, is answered in the order of scores."

const scoreFormula = "(tag*weights.tag + context*weights.context + example*weights.example + " +
	"protocol*weights.protocol) " +
	"* freshness * policy"

// WellKnown answers GET /.well-known/agent-discovery with the abilities of this service
// (xu 3.1).
func (h *Handler) WellKnown(w http.ResponseWriter, call *request.Call) error {
	about := h.Finder.About()
	body := response.Encode(service{
		Level:   levelD2,
		Profile: "draft-xu-efficient-agent-discovery-profile-00",
		Agents:  "/discovery/agents",
		Query:   "/discovery/query",
		Details: []string{ranking.DetailMinimal, ranking.DetailSummary, ranking.DetailFull},
		Limits: limits{
			Query:     ranking.MaxQuery,
			Default:   ranking.DefaultLimit,
			Max:       ranking.MaxLimit,
			Values:    ranking.MaxFilterValues,
			TagBytes:  directory.MaxTag,
			PerOwner:  about.PerOwner,
			BodyBytes: request.MaxBody,
		},
		Constraints: ranking.KnownConstraints,
		Taxonomies:  about.Taxonomies,
		Strict:      h.Strict,
		Extensions:  []string{"strict", "expand", "explain", "diversity"},
		Score: score{
			Weights:    about.Weights,
			Components: []string{"tag", "context", "example", "protocol", "freshness", "policy"},
			Formula:    scoreFormula,
		},
		Diversity: diversity{
			PerOwner:        about.PerOwner,
			DisplacingShare: about.DisplacingShare,
			Rule:            diversityRule,
			Warning:         ranking.WarnDiversified,
		},
		Semantic: semanticOf(about.Model),
	})

	return response.SendPublic(w, call, "application/json", append(body, '\n'))
}

func semanticOf(model string) semantic {
	if model == "" {
		return semantic{Source: ranking.SourceNone, Sends: []string{}}
	}

	return semantic{Source: ranking.SourceEmbeddings, Model: model, Sends: []string{"queries", "registrations"}}
}
