package api

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// The surface of draft-xu-efficient-agent-discovery-profile-00, at level D2.

const levelD2 = "D2"

func (s *Server) profileSurface() surface { return surface{profileHref, s.appendMetadata} }

// publish answers POST /discovery/agents: metadata are registered under their id,
// or take the place of what their owner registered there (xu 9).
func (s *Server) publish(w http.ResponseWriter, c *call) error {
	return s.saveProfile(w, c, s.upsert)
}

// replaceProfile answers PUT /discovery/agents/{id}.
func (s *Server) replaceProfile(w http.ResponseWriter, c *call) error {
	return s.saveProfile(w, c, s.put)
}

func (s *Server) saveProfile(w http.ResponseWriter, c *call, save func(*call, directory.Registering) (directory.Outcome, error)) error {
	body, err := readBody(w, c)
	if err != nil {
		return err
	}
	ask, err := s.asking(c, publishedFor)
	if err != nil {
		return err
	}
	if ask.Document, err = s.parseProfile(body); err != nil {
		return err
	}
	if ask.Agent, err = kinds.DefaultName(ask.Document); err != nil {
		return err
	}
	out, err := save(c, ask)
	if err != nil {
		return err
	}
	return s.stored(w, c, s.profileSurface(), out)
}

// parseProfile reads a document. Where it is one that this surface showed, its
// expires_at is the lease's, unless the document has one of its own: that is not
// the registrant's word, and it goes, as all that is the directory's own.
func (s *Server) parseProfile(body []byte) (directory.Document, error) {
	d, err := directory.ParseDocument(directory.KindProfile, body)
	if err != nil {
		return d, err
	}
	var shown struct {
		ID         string `json:"id"`
		ExpiresAt  string `json:"expires_at"`
		Provenance struct {
			Authority string `json:"origin_authority"`
			ExpiresAt string `json:"expires_at"`
		} `json:"provenance"`
	}
	if json.Unmarshal(body, &shown) != nil || shown.ExpiresAt == "" || shown.ExpiresAt != shown.Provenance.ExpiresAt ||
		shown.Provenance.Authority != s.cfg.Domain.Name() {
		return d, nil // Project says what is wrong with it
	}
	for _, e := range s.cfg.View.Own().Named(shown.ID) {
		if !kinds.DatesOf(e.Document).Expires.IsZero() {
			return d, nil
		}
	}
	members := slices.DeleteFunc(d.Members(), func(m strictjson.Member) bool { return m.Name == "expires_at" })
	return directory.NewDocument(directory.KindProfile, members)
}

// getProfile answers GET /discovery/agents/{id}.
func (s *Server) getProfile(w http.ResponseWriter, c *call) error {
	return s.show(w, c, s.profileSurface())
}

// query answers POST /discovery/query (xu 5, 6). What is asked is written nowhere
// (XU-031). Where policy lets everybody read it answers everybody, as public discovery
// endpoints do (cui 7): the routes of draft-cui, which that is about, ask for an identity
// to rank or to resolve whatever policy says (AI-039).
func (s *Server) query(w http.ResponseWriter, c *call) error {
	w.Header().Set("Cache-Control", "no-store")
	body, err := readBody(w, c)
	if err != nil {
		return err
	}
	r, err := discovery.ParseRequest(body)
	if err != nil {
		return err
	}
	result, err := s.discover(c, r)
	if err != nil {
		return err
	}
	x, err := s.explain(c, r)
	if err != nil {
		return err
	}
	return answer(w, c, "application/json", s.response(c, r, result, x))
}

// discover answers a request with what c's caller may see.
func (s *Server) discover(c *call, r *discovery.Request) (*discovery.Result, error) {
	r.Strict = r.Strict || s.cfg.StrictFilters
	result, err := s.cfg.Finder.Find(c.Context(), s.question(c, r))
	var unsupported *discovery.UnsupportedError
	if errors.As(err, &unsupported) {
		return nil, &problem.Refusal{
			Err:     directory.Refuse(problem.UnsupportedFilter, "%v", unsupported),
			Members: []strictjson.Member{{Name: "unsupported_filters", Value: appendStrings(nil, unsupported.Names)}},
		}
	}
	return result, err
}

// question is a request of c's caller, for a Finder.
func (s *Server) question(c *call, r *discovery.Request) discovery.Query {
	outside := func(wait func()) error { return s.outside(c, wait) }
	return discovery.Query{Request: r, Reader: s.reader(c), Outside: outside}
}

// reader is what c's caller may see, for a Finder.
func (s *Server) reader(c *call) discovery.Reader {
	return discovery.Reader{Key: c.id.String(), Sees: func(e *directory.Entry) (directory.Redaction, bool) { return s.sight(c, e) }}
}

// response writes a Discovery Response (xu 6.1).
func (s *Server) response(c *call, r *discovery.Request, result *discovery.Result, x *Explanation) []byte {
	l := look{registrant: !c.id.IsZero()}
	b := strictjson.AppendText([]byte{'{'}, "level", levelD2)
	b = strictjson.AppendText(b, "request_id", c.requestID)
	b = appendStamp(b, "generated_at", time.Now().UnixMilli())
	b = append(strictjson.AppendRaw(b, "applied_filters", nil), '{')
	for _, name := range slices.Sorted(maps.Keys(result.Applied)) {
		b = strictjson.AppendRaw(b, name, result.Applied[name])
	}
	b = append(b, '}')
	b = appendStrings(strictjson.AppendRaw(b, "unsupported_filters", nil), result.Unsupported)
	b = appendStrings(strictjson.AppendRaw(b, "warnings", nil), s.warnings(result))
	b = list(strictjson.AppendRaw(b, "candidates", nil), result.Candidates, func(b []byte, x discovery.Candidate) []byte {
		return s.appendCandidate(b, &x, r, l)
	})
	if result.Semantic != nil {
		b = strictjson.AppendRaw(b, "semantic", encoded(result.Semantic))
	}
	if x != nil {
		b = strictjson.AppendRaw(b, "explanation", encoded(x))
	}
	return append(b, '}', '\n')
}

// warnings are the result's, whose registrations have less in them than was
// registered (XU-020), and what of a registration says nothing (XU-041).
func (s *Server) warnings(result *discovery.Result) []string {
	all := slices.Clone(result.Warnings)
	for i := range result.Candidates {
		e := result.Candidates[i].Entry
		if e.Redacted {
			all = union(all, []string{"fields withheld by " + s.withholder(e).Name()})
		}
		if at := kinds.IgnoredLanguage(e.Document); at != "" {
			all = append(all, at+" of "+publicID(e)+" is no language tag (BCP 47) and is ignored")
		}
	}
	return all
}

// withholder is the domain whose policy redacted e as it is shown: its origin's, where
// this node hasn't all of it either.
func (s *Server) withholder(e *directory.Entry) spiffeid.TrustDomain {
	if had, ok := s.cfg.View.Get(e.Origin, e.RID); ok && !had.Redacted {
		return s.cfg.Domain
	}
	return e.Origin
}

// encoded is v as JSON. Only what is made of plain fields goes in, so there is
// nothing that can fail.
func encoded(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return b
}

// discoverer answers GET /.well-known/agent-discovery: what this service does (xu
// 3.1).
func (s *Server) discoverer(w http.ResponseWriter, c *call) error {
	type limits struct {
		Query     int `json:"query_bytes"`
		Default   int `json:"default"`
		Most      int `json:"max"`
		Values    int `json:"filter_values"`
		TagBytes  int `json:"tag_bytes"`
		PerOwner  int `json:"per_owner"`
		BodyBytes int `json:"body_bytes"`
	}
	type score struct {
		Weights    discovery.Weights `json:"weights"`
		Components []string          `json:"components"`
		Formula    string            `json:"formula"`
	}
	type diversity struct {
		PerOwner        int     `json:"per_owner"`
		DisplacingShare float64 `json:"displacing_share"`
		Rule            string  `json:"rule"`
		Warning         string  `json:"warning"`
	}
	about := s.cfg.Finder.About()
	body := encoded(struct {
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
	}{
		Level: levelD2, Profile: "draft-xu-efficient-agent-discovery-profile-00", Agents: "/discovery/agents", Query: "/discovery/query",
		Details: []string{discovery.DetailMinimal, discovery.DetailSummary, discovery.DetailFull},
		Limits: limits{discovery.MaxQuery, discovery.DefaultLimit, discovery.MaxLimit, discovery.MaxFilterValues, directory.MaxTag,
			about.PerOwner, maxBody},
		Constraints: discovery.KnownConstraints, Taxonomies: about.Taxonomies, Strict: s.cfg.StrictFilters,
		Extensions: []string{"strict", "expand", "explain", "diversity"},
		Score: score{about.Weights, []string{"tag", "context", "example", "protocol", "freshness", "policy"},
			"(tag*weights.tag + context*weights.context + example*weights.example + protocol*weights.protocol) * freshness * policy"},
		Diversity: diversity{about.PerOwner, about.DisplacingShare,
			"Of one owner of one origin, per_owner candidates stand before those of others whose score is at least displacing_share of the score that they displace; the rest follows by score. " +
				"A request for one owner or one origin, or with diversity false, is answered in the order of scores.", discovery.WarnDiversified},
		Semantic: semanticOf(about.Model),
	})
	return sendPublic(w, c, "application/json", append(body, '\n'))
}

// A semantic says where vectors come from, and what that source is told (XU-068).
type semantic struct {
	Source string   `json:"source"`
	Model  string   `json:"model,omitempty"`
	Sends  []string `json:"sends"` // to a service that is not this one
}

func semanticOf(model string) semantic {
	if model == "" {
		return semantic{Source: discovery.SourceNone, Sends: []string{}}
	}
	return semantic{discovery.SourceEmbeddings, model, []string{"queries", "registrations"}}
}
