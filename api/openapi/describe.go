package openapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// A Node is a node that the API is described for.
type Node struct {
	Domain    string
	PublicURL string
	// Has tells whether the node has a route.
	Has func(method, path string) bool
}

// Describe returns the OpenAPI document of a node's API.
func (d *Document) Describe(node Node) Object {
	doc := clone(d.root, keepRefs)
	callers := at(doc, "x-callers")
	delete(doc, "x-callers")

	fill := strings.NewReplacer("{domain}", node.Domain, "{url}", node.PublicURL)
	for _, part := range []string{"info", "servers"} {
		doc[part] = fillIn(doc[part], fill)
	}

	components := at(doc, "components")
	components["securitySchemes"] = fillIn(components["securitySchemes"], fill)

	responses := Object{}
	for _, p := range problem.All() {
		refusal := refusalOf([]directory.Problem{p})
		refusal["description"] = problem.RuleOf(p).Explanation
		responses[string(p)] = refusal
	}

	components["responses"] = responses

	paths := at(doc, "paths")
	for path, item := range paths {
		if !describePath(item.(Object), path, callers, node) {
			delete(paths, path)
		}
	}

	return doc
}

// describePath completes the operations of a path, and reports whether the node has any
// of them.
func describePath(item Object, path string, callers Object, node Node) bool {
	routes := 0
	for method, operation := range item {
		if method == "parameters" {
			continue
		}

		if !node.Has(strings.ToUpper(method), path) {
			delete(item, method)
			continue
		}

		complete(operation.(Object), callers)
		routes++
	}

	return routes > 0
}

// complete adds to an operation the parts that follow from its callers and its problems.
func complete(operation, callers Object) {
	tag := operation["tags"].([]any)[0].(string)
	shared := at(callers, tag)
	operation["security"] = shared["security"]

	parameters, _ := operation["parameters"].([]any)
	operation["parameters"] = append(parameters, Object{"$ref": "#/components/parameters/X-Request-Id"})

	responses := at(operation, "responses")
	for _, response := range responses {
		response := response.(Object)
		names := slices.Concat(texts(response["x-headers"]), texts(shared["headers"]),
			[]string{problem.HeaderRequestID})
		response["headers"] = headersOf(names)
		delete(response, "x-headers")
	}

	byStatus := map[int][]directory.Problem{}
	for _, name := range slices.Concat(texts(operation["x-problems"]), texts(shared["problems"])) {
		p := directory.Problem(name)

		status := problem.RuleOf(p).Status
		if status == 0 {
			panic(fmt.Sprintf("openapi.yaml: there is no problem %s", name))
		}

		if !slices.Contains(byStatus[status], p) {
			byStatus[status] = append(byStatus[status], p)
		}
	}

	delete(operation, "x-problems")

	for status, problems := range byStatus {
		refusal := refusalOf(problems)

		key := strconv.Itoa(status)
		if other, ok := responses[key].(Object); ok { // another protocol's answer of this status
			maps.Copy(at(refusal, "content"), at(other, "content"))
		}

		responses[key] = refusal
	}
}

// refusalOf is the answer that refuses with one of some problems, which share a status.
func refusalOf(problems []directory.Problem) Object {
	problems = slices.Sorted(slices.Values(problems))
	headers := []string{problem.HeaderRequestID}

	var (
		descriptions []string
		names        []any
	)

	for _, p := range problems {
		rule := problem.RuleOf(p)
		descriptions = append(descriptions, "`"+string(p)+"` ("+rule.Title+")")

		names = append(names, string(p))
		if rule.Retry > 0 {
			headers = append(headers, "Retry-After")
		}

		if p == directory.RateLimited {
			headers = append(headers, "RateLimit", "RateLimit-Policy")
		}

		if rule.Status == http.StatusUnauthorized {
			headers = append(headers, "WWW-Authenticate")
		}
	}

	return Object{
		"description": strings.Join(descriptions, ", "),
		"headers":     headersOf(headers),
		"content":     Object{problem.ContentType: Object{"schema": Object{"$ref": schemaRef + "problem"}}},
		"x-problems":  names,
	}
}

func headersOf(names []string) Object {
	headers := Object{}
	for _, name := range names {
		headers[name] = Object{"$ref": "#/components/headers/" + name}
	}

	return headers
}

// texts are the strings of a list, which may be absent.
func texts(list any) []string {
	var all []string

	items, _ := list.([]any)
	for _, item := range items {
		all = append(all, item.(string))
	}

	return all
}

// fillIn replaces placeholders in all strings of a part of the document.
func fillIn(v any, fill *strings.Replacer) any {
	switch v := v.(type) {
	case string:
		return fill.Replace(v)
	case Object:
		for name, value := range v {
			v[name] = fillIn(value, fill)
		}
	case []any:
		for i, value := range v {
			v[i] = fillIn(value, fill)
		}
	}

	return v
}
