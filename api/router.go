package api

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// A resource has all routes of one path.
type resource struct {
	path   string
	routes map[string]route // by method
	allow  string           // the Allow header
}

// resources groups routes by path. Literal segments come before variables:
// /ad/r/{id}/record before /ad/r/{origin}/{id}.
func resources(routes []route) []*resource {
	byPath := map[string]*resource{}
	for _, r := range routes {
		res := byPath[r.path]
		if res == nil {
			res = &resource{path: r.path, routes: map[string]route{}}
			byPath[r.path] = res
		}

		res.routes[r.method] = r
		if r.method == http.MethodGet && !r.who.stream {
			res.routes[http.MethodHead] = r
		}
	}

	for _, res := range byPath {
		methods := append(slices.Collect(maps.Keys(res.routes)), http.MethodOptions)
		slices.Sort(methods)
		res.allow = strings.Join(methods, ", ")
	}

	// \xff sorts behind every literal segment.
	variable := regexp.MustCompile(`\{[^}]*\}`)
	order := func(r *resource) string { return variable.ReplaceAllString(r.path, "\xff") }

	return slices.SortedFunc(maps.Values(byPath), func(a, b *resource) int {
		return strings.Compare(order(a), order(b))
	})
}

// A router finds the resource of a path. Paths are matched as they were sent, so an encoded
// slash stays within its segment, and nothing is redirected. Paths without variables, which
// most requests have, are found in a map. gorilla/mux only matches the others: its
// subrouters answer 404 to a wrong method and never set Allow.
type router struct {
	literal  map[string]*resource
	variable map[string]*mux.Router // by the first segment: a mux.Router tries its patterns one by one
	of       map[*mux.Route]*resource
}

func newRouter(table []route) *router {
	r := &router{
		literal: map[string]*resource{}, variable: map[string]*mux.Router{}, of: map[*mux.Route]*resource{},
	}
	for _, res := range resources(table) {
		if !strings.Contains(res.path, "{") {
			r.literal[res.path] = res
			continue
		}

		first := firstSegment(res.path)

		paths := r.variable[first]
		if paths == nil {
			// Paths are matched as they were sent: an encoded slash belongs to its segment.
			paths = mux.NewRouter().UseEncodedPath().SkipClean(true)
			r.variable[first] = paths
		}

		// A tile's path has slashes (C2SP tlog-tiles).
		pattern := strings.Replace(res.path, "{tile}", "{tile:.+}", 1)

		// A route without a handler never matches.
		r.of[paths.Path(pattern).Handler(http.NotFoundHandler())] = res
	}

	return r
}

func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// find returns the resource of a request's path, nil if there is none, and the variables in
// the path as they were sent.
func (r *router) find(req *http.Request) (res *resource, raw map[string]string) {
	path := req.URL.EscapedPath()
	if res := r.literal[path]; res != nil {
		return res, nil
	}

	paths := r.variable[firstSegment(path)]
	if paths == nil {
		return nil, nil
	}

	var match mux.RouteMatch
	if !paths.Match(req, &match) {
		return nil, nil
	}

	return r.of[match.Route], match.Vars
}

// match returns the route of a call. A request that no row of the table takes has a route
// too, whose handler refuses it: every request is admitted by its route.
func (s *Server) match(call *request.Call) route {
	if err := checkSize(call.Request); err != nil {
		return refusing(err)
	}

	res, raw := s.router.find(call.Request)
	if res == nil {
		return refusing(directory.Refuse(directory.NotFound, "there is nothing at this path"))
	}

	// Each path of the table answers OPTIONS, without a row of its own.
	if call.Method == http.MethodOptions {
		call.Route = res.path

		return route{who: anyone, log: notable, handle: func(w http.ResponseWriter, _ *request.Call) error {
			w.Header().Set("Allow", res.allow)
			w.WriteHeader(http.StatusNoContent)

			return nil
		}}
	}

	route, ok := res.routes[call.Method]
	if !ok {
		return refusing(&problem.Refusal{
			Err: directory.Refuse(problem.MethodNotAllowed, "method %s not allowed; use %s", call.Method,
				res.allow),
			Header: http.Header{"Allow": {res.allow}},
		})
	}

	call.Route = res.path

	var err error
	if call.Vars, err = parsePath(raw); err != nil {
		return refusing(err)
	}

	return route
}

// refusing is the route of requests that the table has no row for.
func refusing(err error) route {
	return route{who: anyone, log: notable, handle: func(http.ResponseWriter, *request.Call) error { return err }}
}

// parsePath decodes the variables of a path once.
func parsePath(raw map[string]string) (map[string]string, error) {
	vars := map[string]string{}
	for name, value := range raw {
		decoded, err := url.PathUnescape(value)
		if err != nil {
			return nil, directory.Refuse(directory.BadRequest, "the path is not properly percent-encoded")
		}

		vars[name] = decoded
	}

	return vars, nil
}

// Limits of a request in bytes; the node's http.Server has higher ones.
const (
	maxURI    = 8 << 10
	maxHeader = 16 << 10
)

// knownMethods are those that some resource could have. Metrics name no others.
var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"}

// methodOther stands for all other methods.
const methodOther = "other"

func methodLabel(method string) string {
	if slices.Contains(knownMethods, method) {
		return method
	}

	return methodOther
}

// checkSize refuses requests that are too large or of an unknown method.
func checkSize(r *http.Request) error {
	size := 0
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(": \r\n") + len(v)
		}
	}

	switch {
	case len(r.RequestURI) > maxURI:
		return directory.Refuse(problem.URITooLong, "the URI has %d bytes; at most %d are allowed", len(r.RequestURI),
			maxURI)
	case size > maxHeader:
		return directory.Refuse(problem.HeaderTooLarge, "the header has %d bytes; at most %d are allowed", size,
			maxHeader)
	case methodLabel(r.Method) == methodOther:
		return directory.Refuse(problem.NotImplemented, "method %.64q is not implemented", r.Method)
	}

	return nil
}
