package catalog

import (
	"fmt"
	"html"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
)

// A home is the content of the page at /: the directory, its documentation and its routes.
type home struct {
	Service       string      `json:"service"`
	Domain        string      `json:"domain"`
	URL           string      `json:"url"`
	Documentation []homeLink  `json:"documentation"`
	Routes        []homeRoute `json:"routes"`
}

type homeLink struct {
	Title string `json:"title"`
	Href  string `json:"href"`
}

// A homeRoute is a route that this node serves, with its callers as the description of the API
// calls them: anyone, readers and so on.
type homeRoute struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	Callers string `json:"callers"`
	Summary string `json:"summary"`
}

const (
	homeService = "Roster: a federated directory of AI agents with signed records"
	homeDocs    = "https://github.com/roster-mesh/roster/blob/main/docs/README.md"
)

// newHome returns the page of a node from the description of its API, which follows from its route
// table.
func newHome(domain, publicURL string, openAPI []byte) *home {
	page := &home{
		Service: homeService, Domain: domain, URL: publicURL,
		Documentation: []homeLink{
			{"Description of this API (OpenAPI)", publicURL + "/openapi.json"},
			{"Interfaces of this directory (draft-jimenez-agent-directory)", publicURL + "/.well-known/ad"},
			{"Guides and reference", homeDocs},
		},
		Routes: []homeRoute{},
	}

	var api struct {
		Paths map[string]map[string]jsontext.Value `json:"paths"`
	}
	if err := json.Unmarshal(openAPI, &api); err != nil {
		panic(err) // the program's own document, which tests hold
	}

	for path, methods := range api.Paths {
		for method, text := range methods {
			var operation struct {
				Tags    []string `json:"tags"`
				Summary string   `json:"summary"`
			}

			// Beside its operations a path has parameters, which are a list.
			if json.Unmarshal(text, &operation) == nil && operation.Summary != "" {
				page.Routes = append(page.Routes, homeRoute{Method: strings.ToUpper(method), Path: path,
					Callers: strings.Join(operation.Tags, " "), Summary: operation.Summary})
			}
		}
	}

	slices.SortFunc(page.Routes, func(a, b homeRoute) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})

	return page
}

// Home answers GET / with a page for people, if the caller asks for HTML, or as JSON.
func (d *Description) Home(w http.ResponseWriter, call *request.Call) error {
	page := d.home()

	w.Header().Add("Vary", "Accept")

	if !strings.Contains(strings.ToLower(strings.Join(call.Header.Values("Accept"), ",")), "text/html") {
		return response.SendPublic(w, call, mediaJSON, page.json)
	}

	w.Header().Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'")

	return response.SendPublic(w, call, "text/html; charset=utf-8", page.html)
}

// homePage has both forms of the page.
type homePage struct{ json, html []byte }

// render returns both forms of the page. The HTML is made without a template: templates keep every
// method of the program.
func (h *home) render() homePage {
	data, err := json.Marshal(h)
	if err != nil {
		panic(err) // texts alone
	}

	var page strings.Builder

	title := html.EscapeString(h.Domain + " - agent directory")
	fmt.Fprintf(&page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>%s</title>\n"+
		"<meta name=\"viewport\" content=\"width=device-width\"></head>\n<body>\n<h1>%s</h1>\n<p>%s.</p>\n<ul>\n",
		title, title, html.EscapeString(h.Service))

	for _, link := range h.Documentation {
		fmt.Fprintf(&page, "<li><a href=\"%s\">%s</a></li>\n", html.EscapeString(link.Href),
			html.EscapeString(link.Title))
	}

	page.WriteString("</ul>\n<h2>Routes of this node</h2>\n<table>\n<tr><th>Method</th><th>Path</th><th>Callers</th>" +
		"<th>Use</th></tr>\n")

	for _, route := range h.Routes {
		fmt.Fprintf(&page, "<tr><td>%s</td><td><code>%s</code></td><td>%s</td><td>%s</td></tr>\n", route.Method,
			html.EscapeString(route.Path), html.EscapeString(route.Callers), html.EscapeString(route.Summary))
	}

	page.WriteString("</table>\n</body>\n</html>\n")

	return homePage{append(data, '\n'), []byte(page.String())}
}
