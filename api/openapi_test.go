package api

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/openapi"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/discovery"
)

// described is /openapi.json of a server with every route, as a client reads it.
var described = sync.OnceValues(func() (*openapi3.T, error) {
	view := index.NewView(alpha)
	cfg := quietConfig(view)
	cfg.Finder, _ = discovery.New(discovery.Config{View: view})
	whole(&cfg)
	s := New(cfg)

	return openapi3.NewLoader().LoadFromData(openapi.Marshal(Description().Describe(openapi.Node{
		Domain: alpha.Name(), PublicURL: publicURL, Has: s.has,
	})))
})

// Linters of OpenAPI find nothing to complain about: each component is used, lists have items,
// required members have a schema, tags are declared. A node without a gateway has fewer components.
func TestTheDescriptionIsWithoutLooseEnds(t *testing.T) {
	for name, has := range map[string]func(method, path string) bool{
		"every route": func(string, string) bool { return true },
		"lookup":      func(_, path string) bool { return path == "/ad/l" },
	} {
		document := openapi.Marshal(Description().Describe(openapi.Node{Domain: alpha.Name(), Has: has}))

		var root map[string]any
		must(t, json.Unmarshal(document, &root))

		if size := len(document); size > 320<<10 {
			t.Errorf("%s: the document has %d bytes: share what operations have in common", name, size)
		}

		loose := &looseEnds{declared: map[string]bool{}, used: map[string]bool{}}
		for _, tag := range root["tags"].([]any) {
			loose.declared[tag.(map[string]any)["name"].(string)] = true
		}

		loose.search("#", root)

		for section, components := range root["components"].(map[string]any) {
			for component := range components.(map[string]any) {
				if at := "#/components/" + section + "/" + component; !loose.used[at] && section != "securitySchemes" {
					loose.found = append(loose.found, at+" is never used")
				}
			}
		}

		for _, found := range loose.found {
			t.Errorf("%s: %s", name, found)
		}
	}
}

// looseEnds are the parts of a description that linters complain about.
type looseEnds struct {
	declared, used map[string]bool // tags, and components
	found          []string
}

func (l *looseEnds) search(at string, v any) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			l.search(at+"/"+strconv.Itoa(i), item)
		}
	case map[string]any:
		l.judge(at, v)

		for name, value := range v {
			l.search(at+"/"+name, value)
		}
	}
}

func (l *looseEnds) judge(at string, object map[string]any) {
	if target, ok := object["$ref"].(string); ok {
		l.used[target] = true
	}

	if tags, ok := object["tags"].([]any); ok && object["operationId"] != nil {
		for _, tag := range tags {
			if !l.declared[tag.(string)] {
				l.found = append(l.found, fmt.Sprintf("%s: the tag %s is not declared", at, tag))
			}
		}
	}

	types, _ := object["type"].([]any)
	if (object["type"] == "array" || slices.Contains(types, any("array"))) && object["items"] == nil {
		l.found = append(l.found, at+": an array without items")
	}

	if required, ok := object["required"].([]any); ok { // of a schema; that of a parameter is a bool
		properties, _ := object["properties"].(map[string]any)
		for _, name := range required {
			if properties[name.(string)] == nil {
				l.found = append(l.found, fmt.Sprintf("%s: %s is required and has no schema", at, name))
			}
		}
	}
}

func document(t testing.TB) *openapi3.T {
	t.Helper()

	doc, err := described()
	must(t, err)

	return doc
}

func TestTheDescriptionIsOpenAPI(t *testing.T) {
	doc := document(t)
	if err := doc.Validate(context.Background(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Error(err)
	}

	s := newTestServer(t, whole)

	resp := ask(t, s, "", "GET", "/openapi.json", "")
	if body := wantStatus(t, resp, 200); !strings.HasPrefix(body["openapi"].(string), "3.1") {
		t.Errorf("openapi is %v", body["openapi"])
	}

	if got := resp.Header.Get("Cache-Control"); got != "public, max-age=60" {
		t.Errorf("Cache-Control is %q", got)
	}
}

// Every route is described, and nothing else; with its path's variables, what it
// takes and what it answers.
func TestEveryRouteIsDescribed(t *testing.T) {
	doc, s := document(t), newTestServer(t, whole)

	rows := map[string]bool{}
	for _, r := range s.table() {
		rows[r.method+" "+r.path] = true

		item := doc.Paths.Value(r.path)
		if item == nil || item.GetOperation(r.method) == nil {
			t.Errorf("%s %s is not described: do that in openapi.yaml", r.method, r.path)
			continue
		}

		op := item.GetOperation(r.method)
		if op.Summary == "" || len(op.Tags) != 1 || op.Tags[0] != tags[r.who.level] {
			t.Errorf("%s %s: no summary, or its tag is not %q", r.method, r.path, tags[r.who.level])
		}

		for _, v := range regexp.MustCompile(`\{([^}]*)\}`).FindAllStringSubmatch(r.path, -1) {
			if doc.Paths.Value(r.path).Parameters.GetByInAndName("path", v[1]) == nil {
				t.Errorf("%s: {%s} is not described", r.path, v[1])
			}
		}

		if (r.method == "POST" || r.method == "PUT") != (op.RequestBody != nil) && r.who.level != levelNode {
			t.Errorf("%s %s: the body is not described", r.method, r.path)
		}
	}

	for _, key := range describedRoutes(t) {
		if !rows[key] {
			t.Errorf("%s is described, and is no route", key)
		}
	}
}

// tags are the tags of operations by who may call them.
var tags = map[level]string{
	levelAnyone: "anyone", levelReader: "readers", levelIdentified: "registrants", levelOperator: "operators",
	levelNode: "nodes", levelTool: "tool users",
}

// describedRoutes are the methods and paths in openapi.yaml.
func describedRoutes(t *testing.T) (keys []string) {
	t.Helper()

	all := Description().Describe(openapi.Node{Has: func(method, path string) bool {
		keys = append(keys, method+" "+path)
		return true
	}})
	if len(keys) == 0 || all["paths"] == nil {
		t.Fatal("no routes are described")
	}

	return keys
}

// Every query parameter that the sources ask for, and every filter, is described
// where it is taken.
func TestEveryParameterIsDescribed(t *testing.T) {
	doc := document(t)
	for _, name := range ad.LookupParams {
		if doc.Paths.Value("/ad/l").Get.Parameters.GetByInAndName("query", name) == nil {
			t.Errorf("GET /ad/l: %s is not described", name)
		}
	}

	for _, name := range ad.WatchParams {
		if doc.Paths.Value("/ad/watch").Get.Parameters.GetByInAndName("query", name) == nil {
			t.Errorf("GET /ad/watch: %s is not described", name)
		}
	}

	known := map[string]bool{}
	for _, p := range doc.Components.Parameters {
		known[p.Value.In+" "+p.Value.Name] = true
		if p.Value.Description == "" {
			t.Errorf("%s says nothing", p.Value.Name)
		}
	}

	for _, name := range askedFor(t) {
		if !known["query "+name] {
			t.Errorf("the sources ask for %s, which is not described", name)
		}
	}

	for _, key := range []string{"POST /ad/r", "POST /ad/r/{id}"} {
		method, path, _ := strings.Cut(key, " ")
		for _, name := range []string{"If-Match", "If-None-Match"} {
			if doc.Paths.Value(path).GetOperation(method).Parameters.GetByInAndName("header", name) == nil {
				t.Errorf("%s: %s is not described", key, name)
			}
		}
	}
}

// askedFor returns the names that the sources hand to Params.One.
func askedFor(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")

	surfaces, err2 := filepath.Glob("*/*.go")
	if err := errors.Join(err, err2); err != nil || len(files) == 0 || len(surfaces) == 0 {
		t.Fatal(files, surfaces, err)
	}

	files = append(files, surfaces...)

	names := []string{"lt", "agent", "kind", "visibility"} // by lifetime, and in a list
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		must(t, err)

		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 {
				fn, isMethod := call.Fun.(*ast.SelectorExpr)

				lit, isText := call.Args[0].(*ast.BasicLit)
				if isMethod && isText && fn.Sel.Name == "One" {
					name, _ := strconv.Unquote(lit.Value)
					names = append(names, name)
				}
			}

			return true
		})
	}

	if !slices.Contains(names, "consistency") {
		t.Error("not even consistency was found in the sources")
	}

	return names
}

// ofNoOperation are the problems that no operation has: of an absent method, and of members of the
// domain among themselves.
var ofNoOperation = []directory.Problem{problem.MethodNotAllowed, problem.NotImplemented, problem.Misdirected}

// Every problem is described, and by its page.
//
// Requirement: AD-033
func TestEveryProblemIsDescribed(t *testing.T) {
	described := map[string]bool{}

	for _, response := range document(t).Components.Responses {
		names, _ := response.Value.Extensions["x-problems"].([]any)
		for _, name := range names {
			rule := problem.RuleOf(directory.Problem(name.(string)))
			described[name.(string)] = strings.Contains(*response.Value.Description, rule.Explanation) &&
				response.Value.Content["application/problem+json"] != nil
		}
	}

	for _, p := range problem.All() {
		if !described[string(p)] && !slices.Contains(ofNoOperation, p) {
			t.Errorf("%s is not described", p)
		}
	}
}

// judgeAnswer fails where an answer of a route is not as /openapi.json says: its
// status, its media type, its problem, its body. ask hands every answer to it.
func judgeAnswer(t testing.TB, s *Server, method, target string, resp *http.Response) {
	t.Helper()
	path, _, _ := strings.Cut(target, "?")

	for _, res := range resources(s.table()) {
		if !patternOf(res.path).MatchString(path) {
			continue
		}

		if _, ok := res.routes[method]; !ok {
			return // 405 or 501, which no operation can have
		}

		item := document(t).Paths.Value(res.path)
		if item == nil {
			t.Fatalf("%s is not described", res.path)
		}

		if method == "HEAD" {
			method = "GET"
		}

		if err := judgeOperation(document(t), item.GetOperation(method), resp); err != nil {
			t.Errorf("%s %s: /openapi.json says otherwise: %v", method, target, err)
		}

		return
	}
}

// patterns has the patterns of the paths of resources, because each answer is compared with all.
var patterns sync.Map // of *regexp.Regexp, by path

func patternOf(path string) *regexp.Regexp {
	if known, ok := patterns.Load(path); ok {
		return known.(*regexp.Regexp)
	}

	variable := regexp.MustCompile(`\\\{[^}]*\\\}`)
	pattern := regexp.MustCompile("^" + variable.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$")
	patterns.Store(path, pattern)

	return pattern
}

// allowed has the bodies that a schema allowed; to compile the schema costs more than to ask the node.
var allowed sync.Map // of true, by allowedBody

type allowedBody struct {
	schema *openapi3.Schema
	body   string
}

func judgeOperation(doc *openapi3.T, op *openapi3.Operation, resp *http.Response) error {
	want := op.Responses.Value(strconv.Itoa(resp.StatusCode))
	if want == nil {
		return fmt.Errorf("no status %d", resp.StatusCode)
	}

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}

	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	if len(body) == 0 || resp.Header.Get("Content-Encoding") != "" {
		return nil
	}

	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))

	content := want.Value.Content[media]
	if content == nil {
		return fmt.Errorf("%d has no %s", resp.StatusCode, media)
	}

	if !request.IsJSON(media) {
		return nil
	}

	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}

	if media == "application/problem+json" {
		typ := v.(map[string]any)["type"].(string)
		if !strings.Contains(*want.Value.Description, "`"+typ[strings.LastIndexByte(typ, '/')+1:]+"`") {
			return fmt.Errorf("%d has no problem %s", resp.StatusCode, typ)
		}
	}

	key := allowedBody{content.Schema.Value, string(body)}
	if _, ok := allowed.Load(key); ok {
		return nil
	}

	if err := doc.ValidateSchemaJSON(content.Schema.Value, v, openapi3.EnableJSONSchema2020()); err != nil {
		return fmt.Errorf("%d: %w; body %s", resp.StatusCode, err, body)
	}

	allowed.Store(key, true)

	return nil
}

// compileSchemas returns the schemas as a validator reads them from the node.
func compileSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	s, compiler := newTestServer(t, nil), jsonschema.NewCompiler()
	compiler.AssertFormat()

	files := Description().SchemaFiles(publicURL)
	for name := range files {
		resp := ask(t, s, "", "GET", "/schemas/"+name+".json", "")
		if got := resp.Header.Get("Content-Type"); got != "application/schema+json" {
			t.Errorf("/schemas/%s.json is %s", name, got)
		}

		v, err := jsonschema.UnmarshalJSON(resp.Body)
		must(t, err)

		if v.(map[string]any)["$id"] != publicURL+"/schemas/"+name+".json" {
			t.Errorf("%s has another $id", name)
		}

		must(t, compiler.AddResource(publicURL+"/schemas/"+name+".json", v))
	}

	compiled := map[string]*jsonschema.Schema{}
	for name := range files {
		schema, err := compiler.Compile(publicURL + "/schemas/" + name + ".json")
		must(t, err)

		compiled[name] = schema
	}

	wantStatus(t, ask(t, s, "", "GET", "/schemas/telegram.json", ""), 404)

	return compiled
}

const aWoA = `{"woa_version":"1","agents":[{"id":"one","name":"N","description":"D","inputs":{},"outputs":{},"transports":["rest"],"operations":[{"name":"op","description":"D"}]}],
	"transports":{"rest":{"base":"https://a.example","invoke_path":"/invoke"}}}`

// A document that a schema refuses is refused by the directory too, and what the
// directory takes its schema takes.
func TestSchemasAgreeWithTheDirectory(t *testing.T) {
	check := newJudge(t)

	many := func(n int, item string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString("," + strings.ReplaceAll(item, "#", strconv.Itoa(i)))
		}

		return "[" + strings.TrimPrefix(b.String(), ",") + "]"
	}
	for _, x := range []struct {
		kind directory.Kind
		doc  string
		good bool
	}{
		{"ad", aDocument, true},
		{"ad", `{"base":"https://a.example","capabilities":` + many(directory.MaxCapabilities,
			`{"name":"c#","type":"tool"}`) + `}`, true},
		{"ad", `{"base":"https://a.example","capabilities":` + many(directory.MaxCapabilities+1,
			`{"name":"c#","type":"tool"}`) + `}`, false},
		{"ad", `{"base":"https://a.example","capabilities":[{"name":"c","type":"tool","tags":` +
			many(directory.MaxTags+1, `"t#"`) + `}]}`, false},
		{"ad", `{"base":"https://a.example","capabilities":[{"name":"c","type":"tool","input_schema":true}]}`, false},
		{"ad", `{"base":"https://a.example","capabilities":[{"name":"c*","type":"tool"}]}`, false},
		{"ad", `{"base":"https://a.example","capabilities":[{"name":"c"}]}`, false},
		{"ad", `{"base":"https://a.example","capabilities":[{"name":"","type":"tool"}]}`, false},
		{"ad", `{"base":"https://a.example","description":null}`, false},
		{"ad", `{"base":"https://a.example","description":"` + strings.Repeat("d", directory.MaxDescription+1) + `"}`,
			false},
		{"ad", `{"base":"https://a.example","authentication":null}`, false},
		{"ad", `{"base":"https://a.example","authentication":{"oauth":true},"constraints":["none"],"x-more":null}`,
			true},
		{"ad", `{"base":"https://a.example","examples":[{"id":"1"}]}`, false},
		{"ad", `{"base":"https://a.example","bindings":[{"protocol":"mcp","endpoint":"https://a.example/mcp"}]}`, true},
		{"ad", `{"base":"https://a.example","protocols":["mcp",1]}`, false},
		{"ad", `{"base":"nowhere"}`, false}, {"ad", `{"base":7}`, false}, {"ad", `{}`, false}, {"ad", `[]`, false},
		{"aidip", `{"name":"N","description":"D","endpoint":"https://a.example","inputs":{},"outputs":{}}`, true},
		{"aidip",
			`{"name":"N","description":"D","endpoint":"https://a.example","operations":[{"name":"add.2","description":"D","inputs":{},"outputs":{},"examples":[{"input":[1]}]}],"price":1}`, true},
		{"aidip", `{"name":"N","description":"D","endpoint":"https://a.example"}`, false},
		{"aidip", `{"name":"N","description":"D","endpoint":"https://a.example","operations":[]}`, false},
		{"aidip", `{"name":"N","description":"D","endpoint":"https://a.example","inputs":{}}`, false},
		{"aidip",
			`{"name":"N","description":"D","endpoint":"https://a.example","operations":[{"name":"invoke","description":"D","inputs":{},"outputs":{}}]}`, false},
		{"aidip",
			`{"name":"N","description":"D","endpoint":"https://a.example","operations":[{"name":"..","description":"D","inputs":{},"outputs":{}}]}`, false},
		{"aidip",
			`{"name":"N","description":"D","endpoint":"https://a.example","operations":[{"name":"a","inputs":{},"outputs":{}}]}`, false},
		{"aidip",
			`{"name":"N","description":"D","endpoint":"https://a.example","inputs":{},"outputs":{},"capabilities":["a*"]}`, false},
		{"aidip", `{"name":"N","endpoint":"https://a.example","inputs":{},"outputs":{}}`, false},
		{"aidip", `{"name":"N","description":"D","endpoint":"nowhere","inputs":{},"outputs":{}}`, false},
		{"profile", minimal, true},
		{"profile", `{"ID":"one","name":"N","description":"D","bindings":[{"protocol":"https","endpoint":"e"}]}`,
			false},
		{"profile", `{"id":"one","name":"N","description":"D","bindings":[]}`, false},
		{"profile", `{"id":"one","name":"N","description":"D","bindings":[{"protocol":"https"}]}`, false},
		{"profile",
			`{"id":"one","name":"N","description":"D","bindings":[{"protocol":"https","endpoint":"e","priority":1.5}]}`, false},
		{"profile",
			`{"id":"one","name":"N","description":"D","bindings":[{"protocol":"https","endpoint":"e"}],"tags":["a*"]}`,
			false},
		{"profile",
			`{"id":"one","name":"N","description":"D","bindings":[{"protocol":"https","endpoint":"e"}],"auth":"none"}`,
			false},
		{"profile",
			`{"id":"one","name":"N","description":"D","bindings":[{"protocol":"https","endpoint":"e"}],"examples":[{"id":"x"}]}`, false},
		{"a2a",
			`{"name":"Card","url":"https://card.example/","skills":[{"id":"greet","tags":["hello"],"examples":["hi"]}],"provider":{"organization":"Example"}}`, true},
		{"a2a", `{"name":"Card"}`, false},
		{"a2a", `{"name":"Card","url":"https://card.example/","skills":[{"name":"greet"}]}`, false},
		{"a2a", `{"name":"Card","url":"https://card.example/","skills":{}}`, false},
		{"a2a",
			`{"name":"Card","supportedInterfaces":[{"url":"https://card.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"securityRequirements":[]}`, true},
		{"a2a", `{"name":"Card","supportedInterfaces":[{"protocolBinding":"JSONRPC"}]}`, false},
		{"woa", aWoA, true},
		{"woa", strings.Replace(aWoA, `"1"`, `1`, 1), false},
		{"woa", strings.Replace(aWoA, `"id":"one"`, `"id":"one.two"`, 1), false},
		{"woa", strings.Replace(aWoA, `"inputs":{},`, ``, 1), false},
		{"woa", strings.Replace(aWoA, `["rest"]`, `[]`, 1), false},
		{"woa", strings.Replace(aWoA, `"/invoke"`, `"invoke"`, 1), false},
		{"woa", strings.Replace(aWoA, `"op","description":"D"`, `"op"`, 1), false},
		{"woa", `{"woa_version":"1","agents":[],"transports":{}}`, false},
		{"oasf",
			`{"name":"R","locators":[{"type":"url","urls":["https://a.example"]}],"skills":[{"id":7},{"name":"a/b"},{"class_name":"C","class_uid":1}],"x":null}`, true},
		{"oasf",
			`{"name":"R","modules":[{"name":"integration/a2a","data":{"card_data":{"url":"https://a.example"}}}]}`,
			true},
		{"oasf", `{"locators":[{"type":"url","urls":["https://a.example"]}]}`, false},
		{"oasf", `{"name":"R","locators":[{"urls":["https://a.example"]}]}`, false},
		{"oasf", `{"name":"R","locators":[{"type":"url","urls":["https://a.example"]}],"skills":["a"]}`, false},
		{"mcp",
			`{"name":"com.example/server","remotes":[{"url":"https://mcp.example/","headers":[{"name":"X-Key"}]}]}`,
			true},
		{"mcp", `{"remotes":[{"url":"https://mcp.example/"}]}`, false},
		{"mcp", `{"name":"com.example/server","remotes":[{"type":"sse"}]}`, false},
	} {
		schema, direct := check(x.kind, x.doc)
		if (schema == nil) != x.good || (direct == nil) != x.good {
			t.Errorf("%s %.200s: the schema says %v, the directory %v; want good %v", x.kind, x.doc, schema, direct,
				x.good)
		}
	}
}

// newJudge returns a function that judges a document by its kind's schema and by the directory.
func newJudge(t *testing.T) func(kind directory.Kind, doc string) (schema, direct error) {
	t.Helper()

	schemas := compileSchemas(t)

	return func(kind directory.Kind, doc string) (schema, direct error) {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
		must(t, err)

		d, direct := directory.ParseDocument(kind, []byte(doc))
		if direct == nil {
			agent := "one"
			if kind == directory.KindProfile {
				agent, direct = kinds.DefaultName(d)
			}

			if direct == nil {
				_, direct = kinds.Project(agent, d)
			}
		}

		return schemas[string(kind)].Validate(v), direct
	}
}

// A generated client judges a document by the schema before it is sent: what the directory
// takes, the schema takes.
func TestSchemasTakeRealAgentCards(t *testing.T) {
	cards, err := filepath.Glob("../../shared/data/agents/a2a/*.json")
	must(t, err)

	if len(cards) == 0 {
		t.Skip("beside the project there are no agent cards")
	}

	check := newJudge(t)
	taken := 0

	for _, card := range cards {
		b, err := os.ReadFile(card)
		must(t, err)

		schema, direct := check(directory.KindA2A, string(b))
		if direct != nil {
			continue
		}

		taken++

		if schema != nil {
			t.Errorf("%s: the directory takes it, its schema does not: %v", card, schema)
		}
	}

	if taken < 50 {
		t.Errorf("the directory takes %d of %d cards", taken, len(cards))
	}
}

// The catalogue's links lead somewhere, and HEAD tells that it is one (RFC 9727).
func TestTheCatalogLeadsSomewhere(t *testing.T) {
	s := newTestServer(t, whole)
	resp := ask(t, s, "", "GET", "/.well-known/api-catalog", "")

	body := wantStatus(t, resp, 200)
	if got := resp.Header.Get("Content-Type"); got != `application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"` {
		t.Errorf("Content-Type is %s", got)
	}

	head := ask(t, s, "", "HEAD", "/.well-known/api-catalog", "")
	if got := head.Header.Get("Link"); got != `</.well-known/api-catalog>; rel="api-catalog"` {
		t.Errorf("HEAD has the Link %q", got)
	}

	links := 0
	for _, context := range body["linkset"].([]any) {
		for rel, targets := range context.(map[string]any) {
			if rel == "anchor" {
				continue
			}

			for _, target := range targets.([]any) {
				links++

				href := target.(map[string]any)["href"].(string)
				if path, ours := strings.CutPrefix(href, publicURL); ours {
					resp := ask(t, s, "", "GET", path, "")
					wantStatus(t, resp, 200)

					if got := resp.Header.Get("Content-Type"); got != target.(map[string]any)["type"] {
						t.Errorf("%s is %s", href, got)
					}
				}
			}
		}
	}

	if links < 3 {
		t.Errorf("there are %d links", links)
	}
}
