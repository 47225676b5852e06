package api

import (
	"slices"
	"strings"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/spelling"
)

// knownParams are the query parameters of each route as the description has them, by method
// and path. Routes between nodes are absent: another domain may run a later release.
type knownParams map[string][]string

func newKnownParams(routes []route) knownParams {
	known := knownParams{}

	for _, r := range routes {
		if r.who.level != levelNode {
			known[r.method+" "+r.path] = Description().QueryNames(strings.ToLower(r.method), r.path)
		}
	}

	return known
}

// check names the parameters that the call's route doesn't know in Roster-Ignored: the drafts
// say that a directory ignores them (AD-030). No draft says so of operators' routes,
// which refuse them: a filter that is ignored would show too much, or change it.
func (k knownParams) check(call *request.Call, route *route) error {
	if len(call.Params) == 0 {
		return nil
	}

	known, described := k[route.method+" "+route.path]
	if !described {
		return nil
	}

	var seen []string

	for _, param := range call.Params {
		if slices.Contains(known, param.Name) || slices.Contains(seen, param.Name) || len(seen) == wire.MaxIgnored {
			continue
		}

		seen = append(seen, param.Name)
		near := spelling.Nearest(param.Name, known)

		if route.who.level == levelOperator {
			return refuseParam(param.Name, near, known)
		}

		call.Ignore(wire.Ignored{Name: param.Name, Near: near})
	}

	return nil
}

func refuseParam(name, near string, known []string) error {
	switch {
	case near != "":
		return directory.Refuse(directory.BadQuery, "there is no parameter %.64q here; is %s meant?", name, near)
	case len(known) == 0:
		return directory.Refuse(directory.BadQuery, "there is no parameter %.64q here; this route has none", name)
	}

	return directory.Refuse(directory.BadQuery, "there is no parameter %.64q here; there are %s", name,
		strings.Join(known, ", "))
}
