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

	variable := regexp.MustCompile(`\{[^}]*\}`)
	order := func(r *resource) string { return variable.ReplaceAllString(r.path, "\xff") }

	return slices.SortedFunc(maps.Values(byPath), func(a, b *resource) int {
		return strings.Compare(order(a), order(b))
	})
}

// route returns the router of the table. Paths are matched as they were sent, so an
// encoded slash stays within its segment, and nothing is redirected. Paths without
// variables, which most requests have, are found in a map. gorilla/mux only matches the
// others: its subrouters answer 404 to a wrong method and never set Allow.
func (s *Server) route() http.Handler {
	notFound := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, request.Of(r.Context()), directory.Refuse(directory.NotFound, "There is nothing at this path."))
	})

	literal, routers := map[string]*resource{}, map[string]*mux.Router{}
	for _, res := range resources(s.table()) {
		if !strings.Contains(res.path, "{") {
			literal[res.path] = res
			continue
		}

		first := firstSegment(res.path)

		router := routers[first]
		if router == nil {
			router = mux.NewRouter().UseEncodedPath().SkipClean(true)
			router.NotFoundHandler = notFound
			routers[first] = router
		}

		router.Path(res.path).HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.dispatch(w, r, res) })
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if res := literal[path]; res != nil {
			s.dispatch(w, r, res)
		} else if router := routers[firstSegment(path)]; router != nil {
			router.ServeHTTP(w, r)
		} else {
			notFound(w, r)
		}
	})
}

// firstSegment selects one of few routers, because a router tries its patterns one by
// one.
func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// dispatch answers a request to an existing resource.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, res *resource) {
	call := request.Of(r.Context())
	call.Route = res.path

	if r.Method == http.MethodOptions {
		w.Header().Set("Allow", res.allow)
		w.WriteHeader(http.StatusNoContent)

		return
	}

	route, ok := res.routes[r.Method]
	if !ok {
		s.fail(w, call, &problem.Refusal{
			Err:    directory.Refuse(problem.MethodNotAllowed, "Method %s not allowed; use %s.", r.Method, res.allow),
			Header: http.Header{"Allow": {res.allow}},
		})

		return
	}

	call.Level = route.log
	if err := s.serve(w, call, r, route); err != nil {
		s.auditRefusal(call, route, err)
		s.fail(w, call, err)
	}
}

// parsePath decodes the variables of a path once.
func parsePath(r *http.Request) (map[string]string, error) {
	vars := map[string]string{}
	for name, raw := range mux.Vars(r) {
		value, err := url.PathUnescape(raw)
		if err != nil {
			return nil, directory.Refuse(directory.BadRequest, "The path is not properly percent-encoded.")
		}

		vars[name] = value
	}

	return vars, nil
}
