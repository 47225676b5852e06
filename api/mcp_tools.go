package api

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The tools that a model client may call, over MCP at /mcp and on standard input
// and output (jimenez C). A tool is a translation and nothing more: its arguments
// make a request to one of the routes, and that route's answer is its result. So a
// tool means what its route means, with the same policy, limits and bodies. The
// arguments' schemas are those of the route's parameters.

// A tool is one route as model clients see it.
type tool struct {
	name, title, does string
	writes            bool
	arguments         []argument
	required          []string
	results           []string // the schemas that its results may be of
	ask               func(arguments) (*request, error)
	// tell makes the result of an answer that has no body; nil where all have one.
	tell func(*client.Reply) []byte
}

// An argument is one property of a tool's input.
type argument struct {
	name   string
	schema *openapi3.Schema
	// named is what the text of the argument goes by in the route's query; empty
	// where ask puts it elsewhere.
	named string
}

// A request is what a tool asks of a directory.
type request struct {
	method, target string // the target is a path and a query
	writes         bool
	body           []byte
}

// tools are all of them.
var tools = []*tool{
	{
		name: "lookup_agents", title: "Look agents up",
		does: "List registered agents by exact filters: name, capability, type, tag, protocol, origin. All filters must match; without any, all agents are listed, a page at a time. " +
			"Each item says which domain registered it and who vouches for it. Use get_agent for a registration in full.",
		arguments: asArguments(filterKeys(lookupParams)...), results: []string{"listing"},
		ask: func(args arguments) (*request, error) { return args.get("/ad/l") },
	},
	{
		name: "discover_agents", title: "Discover agents",
		does: "Find agents by what they can do, said in words; the best come first, each with its score, how it is reached, and which domain registered it. " +
			"Tags, protocols and constraints narrow it down. Scores are this directory's own.",
		arguments: append(asMembers(requestSchema()), asArguments("consistency", "min", "wait")...),
		required:  []string{"query"}, results: []string{"discovery-response"},
		ask: func(args arguments) (*request, error) { return args.post("/discovery/query") },
	},
	{
		name: "get_agent", title: "Get one agent",
		does: "Show one registration in full: what the agent says of itself (endpoint, capabilities with their schemas, authentication) and what the directory knows of it. " +
			"Name it by its rid, the last segment of its href, or by its agent name. Where several domains have an agent of that name, the candidates are listed instead, as an error: choose one by its rid.",
		arguments: append([]argument{
			{name: "rid", schema: nonEmpty("The registration's rid.")},
			{name: "agent", schema: nonEmpty("The agent's name, where no rid is given.")},
			{name: "origin", schema: text("The trust domain that registered it; it goes with a rid.", 0)},
		}, asArguments("consistency", "min", "wait")...),
		results: []string{"registration", "listing"},
		ask:     askForOne,
	},
	{
		name: "register_agent", title: "Register an agent",
		does: "Register an agent under a name, or replace what you registered under it. It needs a verified identity, which owns the registration from then on. " +
			"A registration ends after its lifetime unless it is registered again or refreshed.",
		writes: true,
		arguments: append(asArguments("agent", "lt", "kind"), argument{name: "document", schema: said(object(nil, nil),
			"What the agent says of itself, of the kind that is given. For ad: base (the URI where it is reached) and, if you like, description, protocols, tags, "+
				"capabilities [{name, type, description, tags, input_schema, output_schema}]. The directory has the JSON Schema of each kind at /schemas/KIND.json.")}),
		required: []string{"agent", "document"}, results: []string{"registered"},
		ask: askToRegister, tell: tellRegistered,
	},
}

// toolNamed returns the tool of that name, or nil.
func toolNamed(name string) *tool {
	if i := slices.IndexFunc(tools, func(t *tool) bool { return t.name == name }); i >= 0 {
		return tools[i]
	}
	return nil
}

// asArguments makes arguments of parameters that routes have, by their keys. What
// may be repeated in a query may be one text or a list of them.
func asArguments(keys ...string) []argument {
	var all []argument
	for _, key := range keys {
		p := parameters[key]
		s := *p.Schema.Value
		if s.Type.Is("array") {
			s = openapi3.Schema{AnyOf: openapi3.SchemaRefs{{Value: text("", 0)}, {Value: p.Schema.Value}}}
		}
		s.Description = p.Description
		all = append(all, argument{p.Name, &s, p.Name})
	}
	return all
}

// asMembers makes arguments of the members of a body.
func asMembers(body *openapi3.Schema) []argument {
	var all []argument
	for _, name := range slices.Sorted(maps.Keys(body.Properties)) {
		all = append(all, argument{name: name, schema: body.Properties[name].Value})
	}
	return all
}

func askForOne(args arguments) (*request, error) {
	var named [3]string
	for i, name := range []string{"rid", "agent", "origin"} {
		var err error
		if named[i], err = args.text(name); err != nil {
			return nil, err
		}
	}
	rid, agent, origin := named[0], named[1], named[2]
	if (rid == "") == (agent == "") || origin != "" && rid == "" {
		return nil, directory.Refuse(directory.BadRequest, "get_agent needs either rid, with origin or without, or agent.")
	}
	id := rid + agent
	path := "/ad/r/" + url.PathEscape(id)
	if origin != "" {
		path = "/ad/r/" + url.PathEscape(origin) + "/" + url.PathEscape(id)
	}
	return args.get(path)
}

func askToRegister(args arguments) (*request, error) {
	r, err := args.get("/ad/r")
	if err == nil {
		r.method, r.body = http.MethodPost, args.given["document"]
	}
	return r, err
}

// tellRegistered says in a body what a registration's answer says in its header.
func tellRegistered(r *client.Reply) []byte {
	b := strictjson.AppendText([]byte{'{'}, "href", r.Header.Get("Location"))
	created := []byte("false")
	if r.Status == http.StatusCreated {
		created = []byte("true")
	}
	b = strictjson.AppendRaw(b, "created", created)
	b = appendOptional(b, "sunset", r.Header.Get("Sunset"))
	b = appendOptional(b, "roster_index", r.Index())
	var granted wire.Granted
	if json.Unmarshal(r.Body, &granted) == nil && granted.LifetimeSeconds > 0 {
		b = strictjson.AppendUint(b, "lt", uint64(granted.LifetimeSeconds))
	}
	return append(b, '}', '\n')
}

// input is the JSON Schema of t's arguments.
func (t *tool) input() jsontext.Value {
	none := false
	s := object(t.required, props{})
	s.AdditionalProperties = openapi3.AdditionalProperties{Has: &none}
	for _, a := range t.arguments {
		s.Properties[a.name] = &openapi3.SchemaRef{Value: a.schema}
	}
	return marshalSchema(s)
}

// output is the JSON Schema of t's results, of the refusals among them too: some
// clients hold whatever is structured against it.
func (t *tool) output() jsontext.Value {
	const defs = "#/$defs/"
	all := schemasOf(func(name string) *openapi3.SchemaRef { return &openapi3.SchemaRef{Ref: defs + name} })
	s := object(nil, nil)
	used := map[string]jsontext.Value{}
	var use func(name string)
	use = func(name string) {
		if used[name] != nil {
			return
		}
		if all[name] == nil {
			panic("there is no schema called " + name)
		}
		used[name] = marshalSchema(all[name])
		for _, found := range regexp.MustCompile(`"#/\$defs/([^"]+)"`).FindAllSubmatch(used[name], -1) {
			use(string(found[1]))
		}
	}
	for _, name := range append(slices.Clip(t.results), "problem") {
		use(name)
		s.AnyOf = append(s.AnyOf, &openapi3.SchemaRef{Ref: defs + name})
	}
	s.Extensions = map[string]any{"$defs": used}
	return marshalSchema(s)
}

func marshalSchema(s *openapi3.Schema) jsontext.Value {
	b, err := json.Marshal(s, json.Deterministic(true))
	if err != nil {
		panic(err) // they are constants
	}
	return b
}

// arguments are what one call of a tool gives.
type arguments struct {
	of    *tool
	given map[string]jsontext.Value
}

// parseArguments reads the arguments of a call strictly: none that the tool
// doesn't have, for a filter that is misspelt and left out is another question.
// null is not given.
func (t *tool) parseArguments(b []byte) (arguments, error) {
	args := arguments{t, map[string]jsontext.Value{}}
	if len(b) == 0 || string(b) == "null" {
		b = []byte("{}")
	}
	members, err := directory.ParseObject(b)
	if err != nil {
		return args, err
	}
	for _, m := range members {
		if !slices.ContainsFunc(t.arguments, func(a argument) bool { return a.name == m.Name }) {
			return args, directory.Refuse(directory.BadRequest, "%s has no argument %.100q; it has %s.", t.name, m.Name, t.argumentNames()).At("/" + inPointer.Replace(m.Name))
		}
		if string(m.Value) != "null" {
			args.given[m.Name] = m.Value
		}
	}
	for _, name := range t.required {
		if args.given[name] == nil {
			return args, directory.Refuse(directory.BadRequest, "%s needs the argument %s.", t.name, name)
		}
	}
	return args, nil
}

func (t *tool) argumentNames() string {
	var names []string
	for _, a := range t.arguments {
		names = append(names, a.name)
	}
	return strings.Join(names, ", ")
}

// get is a GET of path with the arguments that its query has.
func (args arguments) get(path string) (*request, error) {
	q := url.Values{}
	for _, a := range args.of.arguments {
		if a.named == "" {
			continue
		}
		values, err := args.texts(a.name)
		if err != nil {
			return nil, err
		}
		if len(values) > 0 {
			q[a.named] = values
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return &request{method: http.MethodGet, target: path}, nil
}

// post is a POST to path of the arguments that its query has not.
func (args arguments) post(path string) (*request, error) {
	r, err := args.get(path)
	if err != nil {
		return nil, err
	}
	var members []strictjson.Member
	for _, a := range args.of.arguments {
		if value, given := args.given[a.name]; given && a.named == "" {
			members = append(members, strictjson.Member{Name: a.name, Value: value})
		}
	}
	r.method, r.body = http.MethodPost, strictjson.AppendObject(nil, members)
	return r, nil
}

// text returns the one text that an argument is; none where it is not given.
func (args arguments) text(name string) (string, error) {
	values, err := args.texts(name)
	if len(values) > 1 {
		err = directory.Refuse(directory.BadRequest, "%s is one text, not %d.", name, len(values)).At("/" + name)
	}
	return strings.Join(values, ""), err
}

// texts returns an argument as a query has it: what it is, or what each of its
// elements is. Whether they are good is for the route to say.
func (args arguments) texts(name string) ([]string, error) {
	value, given := args.given[name]
	if !given {
		return nil, nil
	}
	items := []jsontext.Value{value}
	if value.Kind() == '[' {
		if err := json.Unmarshal(value, &items); err != nil {
			return nil, err
		}
	}
	var values []string
	for _, item := range items {
		switch item.Kind() {
		case '"':
			var s string
			if err := json.Unmarshal(item, &s); err != nil {
				return nil, err
			}
			values = append(values, s)
		case '0', 't', 'f':
			values = append(values, string(item))
		default:
			return nil, directory.Refuse(directory.BadRequest, "%s is a text or a list of texts.", name).At("/" + name)
		}
	}
	return values, nil
}
