package catalog

import (
	"net/http"
	"sync"

	"github.com/roster-mesh/roster/api/openapi"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Description answers the routes that describe the API: /openapi.json, the schemas, the
// problems, and the catalog of APIs.
type Description struct {
	publicURL string
	openapi   func() []byte
	schemas   func() map[string][]byte // by name
	home      func() homePage
}

// NewDescription returns the Description of a node's API. It is made when it is first
// asked for.
func NewDescription(document *openapi.Document, node openapi.Node) *Description {
	description := sync.OnceValue(func() []byte { return append(openapi.Marshal(document.Describe(node)), '\n') })

	return &Description{
		publicURL: node.PublicURL,
		openapi:   description,
		home: sync.OnceValue(func() homePage {
			return newHome(node.Domain, node.PublicURL, description()).render()
		}),
		schemas: sync.OnceValue(func() map[string][]byte { return document.SchemaFiles(node.PublicURL) }),
	}
}

// OpenAPI answers GET /openapi.json.
func (d *Description) OpenAPI(w http.ResponseWriter, c *request.Call) error {
	return response.SendPublic(w, c, "application/json", d.openapi())
}

// Schema answers GET /schemas/{kind}.json.
func (d *Description) Schema(w http.ResponseWriter, call *request.Call) error {
	data, ok := d.schemas()[call.Vars["kind"]]
	if !ok {
		return directory.Refuse(directory.NotFound, "there is no schema called %.100q", call.Vars["kind"])
	}

	return response.SendPublic(w, call, "application/schema+json", data)
}

// Problem explains one problem, at the URI that is its type (AD-033).
func (d *Description) Problem(w http.ResponseWriter, call *request.Call) error {
	name := directory.Problem(call.Vars["name"])

	rule := problem.RuleOf(name)
	if rule.Status == 0 {
		return directory.Refuse(directory.NotFound, "there is no problem called %.100q", name)
	}

	data := strictjson.AppendText([]byte{'{'}, "type", problem.TypeURI(d.publicURL, name))
	data = strictjson.AppendText(data, "title", rule.Title)
	data = strictjson.AppendUint(data, "status", uint64(rule.Status))
	data = append(strictjson.AppendText(data, "explanation", rule.Explanation), '}', '\n')

	return response.SendPublic(w, call, "application/json", data)
}

// Catalog answers GET /.well-known/api-catalog (RFC 9727). The Link tells a HEAD request
// that it is a catalog.
func (d *Description) Catalog(w http.ResponseWriter, call *request.Call) error {
	w.Header().Set("Link", `</.well-known/api-catalog>; rel="api-catalog"`)
	mediaType := `application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"`

	return response.SendPublic(w, call, mediaType, d.appendLinkset(nil))
}

const (
	draftJimenez = "draft-jimenez-agent-directory-01"
	draftXu      = "draft-xu-efficient-agent-discovery-profile"
	draftCui     = "draft-cui-ai-agent-discovery-invocation"
)

// appendLinkset appends the linkset of the node's APIs (RFC 9264, 4.2): their description,
// the drafts that they implement, and their metadata (RFC 8631).
func (d *Description) appendLinkset(data []byte) []byte {
	description := link("service-desc", d.publicURL+"/openapi.json", "application/json")

	data = append(data, `{"linkset":`...)
	data = strictjson.AppendList(data, [][]strictjson.Member{
		{d.anchor("/ad"), description, draft(draftJimenez), d.metadata("/.well-known/ad")},
		{d.anchor("/discovery"), description, draft(draftXu), d.metadata("/.well-known/agent-discovery")},
		{
			d.anchor("/agents"), description, draft(draftCui),
			link("describedby", d.publicURL+"/schemas/aidip.json", "application/schema+json"),
		},
	}, strictjson.AppendObject)

	return append(data, '}', '\n')
}

func (d *Description) anchor(path string) strictjson.Member {
	return strictjson.Member{Name: "anchor", Value: strictjson.AppendString(nil, d.publicURL+path)}
}

func (d *Description) metadata(path string) strictjson.Member {
	return link("service-meta", d.publicURL+path, "application/json")
}

func draft(name string) strictjson.Member {
	return link("service-doc", "https://datatracker.ietf.org/doc/html/"+name, "text/html")
}

func link(rel, href, mediaType string) strictjson.Member {
	target := strictjson.AppendText([]byte{'[', '{'}, "href", href)
	target = strictjson.AppendText(target, "type", mediaType)

	return strictjson.Member{Name: rel, Value: append(target, '}', ']')}
}
