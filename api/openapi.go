package api

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// What a node says of its own surface. It is made once from the table of routes,
// the table of problems, and openapi_describe.go.

// A description is all of that, ready to be sent.
type description struct {
	openapi, catalog []byte
	schemas          map[string][]byte // by name
}

func (s *Server) describe() *description {
	doc, err := json.Marshal(s.document(), json.Deterministic(true))
	if err != nil {
		panic(err) // it is made of constants
	}
	return &description{append(doc, '\n'), s.catalog(), s.schemaFiles()}
}

// openAPI answers GET /openapi.json.
func (s *Server) openAPI(w http.ResponseWriter, c *call) error {
	return sendPublic(w, c, "application/json", s.described().openapi)
}

// apiCatalog answers GET /.well-known/api-catalog (RFC 9727). HEAD tells by its
// Link that it is one.
func (s *Server) apiCatalog(w http.ResponseWriter, c *call) error {
	w.Header().Set("Link", `</.well-known/api-catalog>; rel="api-catalog"`)
	return sendPublic(w, c, `application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"`, s.described().catalog)
}

// catalog writes the linkset of the APIs that a node has (RFC 9264, 4.2): their
// description, what they implement, and their interfaces (RFC 8631).
func (s *Server) catalog() []byte {
	link := func(rel, href, mediaType string) strictjson.Member {
		target := strictjson.AppendText([]byte{'{'}, "href", href)
		target = strictjson.AppendText(target, "type", mediaType)
		return strictjson.Member{Name: rel, Value: append(append([]byte{'['}, target...), '}', ']')}
	}
	desc := link("service-desc", s.cfg.PublicURL+"/openapi.json", "application/json")
	draft := func(name string) strictjson.Member {
		return link("service-doc", "https://datatracker.ietf.org/doc/html/"+name, "text/html")
	}
	anchor := func(path string) strictjson.Member {
		return strictjson.Member{Name: "anchor", Value: strictjson.AppendString(nil, s.cfg.PublicURL+path)}
	}
	b := list([]byte(`{"linkset":`), [][]strictjson.Member{
		{anchor("/ad"), desc, draft("draft-jimenez-agent-directory-01"), link("service-meta", s.cfg.PublicURL+"/.well-known/ad", "application/json")},
		{anchor("/discovery"), desc, draft("draft-xu-efficient-agent-discovery-profile"), link("service-meta", s.cfg.PublicURL+"/.well-known/agent-discovery", "application/json")},
		{anchor("/agents"), desc, draft("draft-cui-ai-agent-discovery-invocation"), link("describedby", s.cfg.PublicURL+"/schemas/aidip.json", "application/schema+json")},
	}, strictjson.AppendObject)
	return append(b, '}', '\n')
}

// document returns the OpenAPI document of the table of routes.
func (s *Server) document() *openapi3.T {
	doc := &openapi3.T{
		OpenAPI: "3.1.1",
		Info: &openapi3.Info{
			Title: "Roster: the agent directory of " + s.cfg.Domain.Name(), Version: "1",
			Description: about, License: &openapi3.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		JSONSchemaDialect: dialect,
		Servers:           openapi3.Servers{{URL: s.cfg.PublicURL}},
		Paths:             openapi3.NewPaths(),
		Components:        s.components(),
	}
	for _, res := range resources(s.table()) {
		item := &openapi3.PathItem{Parameters: pathParameters(res.path)}
		for method, row := range res.rows {
			if method != http.MethodHead { // is GET's
				item.SetOperation(method, operationOf(row))
			}
		}
		doc.Paths.Set(res.path, item)
	}
	return doc
}

func (s *Server) components() *openapi3.Components {
	c := &openapi3.Components{
		Schemas: openapi3.Schemas{}, Parameters: openapi3.ParametersMap{}, Headers: openapi3.Headers{}, Responses: openapi3.ResponseBodies{},
		SecuritySchemes: openapi3.SecuritySchemes{"svid": {Value: &openapi3.SecurityScheme{
			Type: "mutualTLS", Description: "An X.509-SVID of " + s.cfg.Domain.Name() + " or of a peered domain as TLS client certificate.",
		}}},
	}
	for name, schema := range schemasOf(component) {
		c.Schemas[name] = &openapi3.SchemaRef{Value: schema}
	}
	for key, p := range parameters {
		p := *p
		c.Parameters[key] = &openapi3.ParameterRef{Value: &p}
	}
	for name, h := range headers {
		c.Headers[name] = &openapi3.HeaderRef{Value: &openapi3.Header{Parameter: openapi3.Parameter{
			Description: h, Schema: &openapi3.SchemaRef{Value: text("", 0)},
		}}}
	}
	for _, p := range problem.All() {
		r := refusals([]directory.Problem{p}).WithDescription(problem.RuleOf(p).Explanation)
		c.Responses[string(p)] = &openapi3.ResponseRef{Value: r}
	}
	return c
}

func component(name string) *openapi3.SchemaRef {
	return &openapi3.SchemaRef{Ref: "#/components/schemas/" + name}
}

var variables = regexp.MustCompile(`\{([^}]*)\}`)

func pathParameters(path string) openapi3.Parameters {
	var ps openapi3.Parameters
	for _, found := range variables.FindAllStringSubmatch(path, -1) {
		ps = append(ps, &openapi3.ParameterRef{Ref: "#/components/parameters/path-" + found[1]})
	}
	return ps
}

// operationOf describes one row of the table.
func operationOf(r row) *openapi3.Operation {
	d := operations[r.method+" "+r.path]
	op := &openapi3.Operation{
		Summary: d.summary, OperationID: operationID(r), Security: &openapi3.SecurityRequirements{}, Responses: openapi3.NewResponsesWithCapacity(8),
		Tags: []string{r.who.tag()},
	}
	switch r.who.level {
	case levelReader, levelTools:
		*op.Security = openapi3.SecurityRequirements{{}, {"svid": {}}}
	case levelIdentified, levelOperator, levelNodes:
		*op.Security = openapi3.SecurityRequirements{{"svid": {}}}
	}
	for _, key := range append(slices.Clone(d.parameters), "X-Request-Id") {
		op.Parameters = append(op.Parameters, &openapi3.ParameterRef{Ref: "#/components/parameters/" + key})
	}
	if len(d.body) > 0 {
		body := &openapi3.RequestBody{Required: !d.optional, Content: openapi3.Content{"application/json": {Schema: alternatives(d.body)}}}
		op.RequestBody = &openapi3.RequestBodyRef{Value: body}
	}
	if d.media != "" {
		body := &openapi3.RequestBody{Required: true, Content: openapi3.Content{d.media: {Schema: &openapi3.SchemaRef{Value: text("", 0)}}}}
		op.RequestBody = &openapi3.RequestBodyRef{Value: body}
	}
	for _, a := range d.answers {
		op.Responses.Set(strconv.Itoa(a.status), &openapi3.ResponseRef{Value: a.response(r.who)})
	}
	byStatus := map[int][]directory.Problem{}
	for _, p := range append(slices.Clone(d.problems), r.who.problems()...) {
		if status := problem.RuleOf(p).Status; !slices.Contains(byStatus[status], p) {
			byStatus[status] = append(byStatus[status], p)
		}
	}
	for status, ps := range byStatus {
		refused := refusals(ps)
		if other := op.Responses.Status(status); other != nil {
			maps.Copy(refused.Content, other.Value.Content)
		}
		op.Responses.Set(strconv.Itoa(status), &openapi3.ResponseRef{Value: refused})
	}
	return op
}

// operationID is the method and the path's words: get-ad-r-id-record.
func operationID(r row) string {
	return strings.ToLower(r.method) + strings.NewReplacer("/", "-", "{", "", "}", "", ".", "").Replace(r.path)
}

// alternatives is one schema, or any of several.
func alternatives(names []string) *openapi3.SchemaRef {
	if len(names) == 1 {
		return component(names[0])
	}
	s := &openapi3.Schema{}
	for _, name := range names {
		s.AnyOf = append(s.AnyOf, component(name))
	}
	return &openapi3.SchemaRef{Value: s}
}

func (a good) response(who access) *openapi3.Response {
	r := openapi3.NewResponse().WithDescription(a.what)
	r.Headers = openapi3.Headers{}
	for _, name := range slices.Concat(a.headers, []string{"X-Request-Id"}, who.headers()) {
		r.Headers[name] = &openapi3.HeaderRef{Ref: "#/components/headers/" + name}
	}
	switch {
	case a.schema != "":
		r.Content = openapi3.Content{a.mediaType(): {Schema: component(a.schema)}}
		if a.also != "" {
			r.Content[a.also] = r.Content[a.mediaType()]
		}
	case a.media != "":
		r.Content = openapi3.Content{a.media: {Schema: &openapi3.SchemaRef{Value: text("", 0)}}}
	}
	return r
}

func (a good) mediaType() string {
	if a.media == "" {
		return "application/json"
	}
	return a.media
}

// refusals is the answer that refuses with one of those problems, which share a
// status. What each means is told once, in the components.
func refusals(ps []directory.Problem) *openapi3.Response {
	ps = slices.Sorted(slices.Values(ps))
	var lines []string
	for _, p := range ps {
		lines = append(lines, "`"+string(p)+"` ("+problem.RuleOf(p).Title+")")
	}
	r := openapi3.NewResponse().WithDescription(strings.Join(lines, ", "))
	r.Content = openapi3.Content{problem.ContentType: {Schema: component("problem")}}
	r.Headers = openapi3.Headers{"X-Request-Id": {Ref: "#/components/headers/X-Request-Id"}}
	for _, p := range ps {
		if problem.RuleOf(p).Retry > 0 {
			r.Headers["Retry-After"] = &openapi3.HeaderRef{Ref: "#/components/headers/Retry-After"}
		}
		if p == directory.RateLimited {
			maps.Copy(r.Headers, openapi3.Headers{"RateLimit": {Ref: "#/components/headers/RateLimit"}, "RateLimit-Policy": {Ref: "#/components/headers/RateLimit-Policy"}})
		}
		if problem.RuleOf(p).Status == http.StatusUnauthorized {
			r.Headers["WWW-Authenticate"] = &openapi3.HeaderRef{Ref: "#/components/headers/WWW-Authenticate"}
		}
	}
	r.Extensions = map[string]any{"x-problems": ps}
	return r
}
