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
	// Everything below changes the document in place, so it is a copy.
	doc := clone(d.root, keepRefs)
	callers := at(doc, "x-callers")
	delete(doc, "x-callers")

	fill := strings.NewReplacer("{domain}", node.Domain, "{url}", node.PublicURL)
	for _, part := range []string{"info", "servers"} {
		doc[part] = fillIn(doc[part], fill)
	}

	components := at(doc, "components")
	components["securitySchemes"] = fillIn(components["securitySchemes"], fill)

	shared := at(components, "responses")
	for _, response := range shared {
		addHeaders(response.(Object), nil)
	}

	used := Object{} // the tags of the node's operations
	paths := at(doc, "paths")

	for path, item := range paths {
		if !describePath(item.(Object), path, callers, shared, used, node) {
			delete(paths, path)
		}
	}

	var tags []any
	for _, tag := range slices.Sorted(maps.Keys(used)) {
		tags = append(tags, Object{"name": tag, "description": at(callers, tag)["description"]})
	}

	doc["tags"] = tags

	prune(doc)

	return doc
}

// prune removes the components to which no operation leads: those of routes that the node doesn't
// have, and schemas that are served at /schemas alone.
func prune(doc Object) {
	components := at(doc, "components")
	reached := map[string]bool{}

	var follow func(v any)

	// Schemas refer to each other, so each target is followed once.
	follow = func(v any) {
		switch v := v.(type) {
		case Object:
			if target, ok := v["$ref"].(string); ok && !reached[target] {
				reached[target] = true
				follow(at(doc, strings.Split(strings.TrimPrefix(target, "#/"), "/")...))
			}

			for _, value := range v {
				follow(value)
			}
		case []any:
			for _, value := range v {
				follow(value)
			}
		}
	}

	follow(doc["paths"])

	for section, of := range components {
		if section == "securitySchemes" { // which operations name without a reference
			continue
		}

		maps.DeleteFunc(of.(Object), func(name string, _ any) bool {
			return !reached["#/components/"+section+"/"+name]
		})
	}
}

// describePath completes the operations of a path, and reports whether the node has any
// of them. It notes their tags in used.
func describePath(item Object, path string, callers, shared, used Object, node Node) bool {
	routes := 0
	for method, operation := range item {
		if method == "parameters" {
			continue
		}

		if !node.Has(strings.ToUpper(method), path) {
			delete(item, method)
			continue
		}

		used[complete(operation.(Object), callers, shared)] = true
		routes++
	}

	return routes > 0
}

// complete adds to an operation the parts that follow from its callers and its problems, and
// returns its tag. Refusals are added to the shared responses, where other operations have them too.
func complete(operation, callers, shared Object) (tag string) {
	tag = operation["tags"].([]any)[0].(string)
	caller := at(callers, tag)
	operation["security"] = caller["security"]

	parameters, _ := operation["parameters"].([]any)
	operation["parameters"] = append(parameters, Object{"$ref": "#/components/parameters/X-Request-Id"})

	responses := at(operation, "responses")
	for _, response := range responses {
		if response := response.(Object); response["$ref"] == nil {
			addHeaders(response, texts(caller["headers"]))
		}
	}

	// OpenAPI has one response for each status, so the problems of a status share it.
	byStatus := map[int][]directory.Problem{}
	for _, name := range slices.Concat(texts(operation["x-problems"]), texts(caller["problems"])) {
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
		name, refusal := refusalOf(problems)

		key := strconv.Itoa(status)
		if other, ok := responses[key].(Object); ok { // another protocol's answer of this status
			maps.Copy(at(refusal, "content"), at(other, "content"))
			responses[key] = refusal

			continue
		}

		shared[name] = refusal
		responses[key] = Object{"$ref": "#/components/responses/" + name}
	}

	return tag
}

// addHeaders replaces the names of a response's own headers by all its headers.
func addHeaders(response Object, names []string) {
	names = slices.Concat(texts(response["x-headers"]), names, []string{problem.HeaderRequestID})
	response["headers"] = headersOf(names)
	delete(response, "x-headers")
}

// refusalOf returns the answer that refuses with one of some problems, which share a status, and a
// name for it.
func refusalOf(problems []directory.Problem) (name string, refusal Object) {
	// The same problems in another order share a component.
	problems = slices.Sorted(slices.Values(problems))
	headers := []string{problem.HeaderRequestID}

	var (
		descriptions []string
		names        []string
	)

	for _, p := range problems {
		rule := problem.RuleOf(p)
		descriptions = append(descriptions, fmt.Sprintf("`%s` (%s): %s", p, rule.Title, rule.Explanation))

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

	return strings.Join(names, "."), Object{
		"description": strings.Join(descriptions, "\n\n"),
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
