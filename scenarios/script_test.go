package scenarios

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// The HTTP contract consists of scripts, one per section of a draft, that run against a
// node (api/testdata). A script is a list of exchanges:
//
//	# a comment; "Requirement: AD-…" names the requirement that the script shows
//	== purpose of this exchange
//	> ada POST /ad/r?agent=summarizer-v2
//	> Content-Type: application/json
//	>
//	> {"base": "https://agents.example.com/summarizer-v2"}
//	< 201
//	< Location: /ad/r/<<rid>>
//	< !Link
//	< (empty)
//
// A request begins with its caller: one of the domain's agents, or anonymous. An answer
// must have the status, the named headers, none of those behind an exclamation mark, and
// the body. A JSON body may have further members, as the drafts allow, but arrays are
// complete. "(empty)" is no body at all; without a body in the script any body passes.
//
// <<name>> takes its value from the first answer with it, for all later uses; <<*>>
// matches anything; <<absent>> no such member; <<repeat N TEXT>> repeats TEXT, with # as
// the number. <<url>> and <<domain>> are the node's, and <<agent>> is the address of an
// agent that summarizes. "* wait 61s" lets time pass. A script's registrations are
// removed at its end.

// scriptEnv is the node that a script talks to.
type scriptEnv struct {
	URL    string // https://HOST:PORT
	Agent  string // address of an agent that the node may call; empty if there is none
	Domain string
	// Client returns a client for one of the domain's agents (ada, bob, eve,
	// commissioner, operator, reader), or an anonymous one.
	Client func(who string) *http.Client
	// Wait lets time pass; nil if scripts may not ask for that.
	Wait func(time.Duration)
	// Described returns the difference between an answer and the node's own description;
	// may be nil.
	Described func(method, target string, a *answer) error
}

// runScript runs the script at path and ends at the first exchange that fails:
// those behind it build on it.
func runScript(t *testing.T, path string, env scriptEnv) {
	t.Helper()

	exchanges, err := parseScript(path)
	must(t, err)

	if env.Wait == nil && slices.ContainsFunc(exchanges, func(x *exchange) bool { return x.wait > 0 }) {
		t.Skipf("%s lets time pass; it runs in virtual time", filepath.Base(path))
	}

	vars := map[string]string{"url": env.URL, "domain": env.Domain, "agent": env.Agent}
	made := map[string]string{} // registrations by location, and who made them
	defer func() {
		for location, who := range made {
			resp, err := send(env, &exchange{who: who, method: http.MethodDelete, target: location}, nil)
			if err == nil && resp.status != http.StatusNoContent && resp.status != http.StatusNotFound {
				err = fmt.Errorf("status %d", resp.status)
			}

			if err != nil {
				t.Errorf("cleaning up %s: %v", location, err)
			}
		}
	}()

	for _, x := range exchanges {
		if x.wait > 0 {
			env.Wait(x.wait)
		}

		if err := x.run(env, vars, made); err != nil {
			t.Fatalf("%s:%d: %s\n%s %s %s: %v", filepath.Base(path), x.line, x.title, x.who, x.method, x.target, err)
		}
	}
}

// An exchange is one request and its expected answer.
type exchange struct {
	title               string
	line                int
	wait                time.Duration // before it
	who, method, target string
	header              [][2]string
	body                string
	status              int
	want                [][2]string
	absent              []string
	empty               bool
	wantBody            string
}

// An answer is the received response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (x *exchange) run(env scriptEnv, vars, made map[string]string) error {
	got, err := send(env, x, vars)
	if err != nil {
		return err
	}

	if env.Described != nil {
		if err := env.Described(x.method, fill(x.target, vars), got); err != nil {
			return fmt.Errorf("%w; body %s", err, got.body)
		}
	}

	if got.status == http.StatusCreated {
		made[got.header.Get("Location")] = x.who
	}

	if got.status != x.status {
		return fmt.Errorf("status %d, want %d; body %s", got.status, x.status, got.body)
	}

	for _, h := range x.want {
		if err := matchText(h[1], strings.Join(got.header.Values(h[0]), ", "), vars); err != nil {
			return fmt.Errorf("header %s: %w", h[0], err)
		}
	}

	for _, name := range x.absent {
		if v := got.header.Values(name); len(v) > 0 {
			return fmt.Errorf("header %s is %q, want none", name, v)
		}
	}

	if x.empty && len(got.body) > 0 {
		return fmt.Errorf("body %s, want none", got.body)
	}

	if x.wantBody == "" {
		return nil
	}

	var want, have any
	if err := json.Unmarshal([]byte(x.wantBody), &want); err != nil {
		return fmt.Errorf("the script's body: %w", err)
	}

	if err := json.Unmarshal(got.body, &have); err != nil {
		return fmt.Errorf("the answer's body %s: %w", got.body, err)
	}

	if err := matchJSON("", want, have, vars); err != nil {
		return fmt.Errorf("%w; body %s", err, got.body)
	}

	return nil
}

func send(env scriptEnv, x *exchange, vars map[string]string) (*answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, x.method, env.URL+fill(x.target, vars),
		strings.NewReader(fill(x.body, vars)))
	if err != nil {
		return nil, err
	}

	for _, h := range x.header {
		req.Header.Add(h[0], fill(h[1], vars))
	}

	client := *env.Client(x.who)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}

	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)

	return &answer{resp.StatusCode, resp.Header, body}, err
}

var placeholder = regexp.MustCompile(`<<([^<>]+)>>`)

// fill replaces placeholders by known values.
func fill(s string, vars map[string]string) string {
	return placeholder.ReplaceAllStringFunc(s, func(p string) string {
		name := p[2 : len(p)-2]
		if rest, ok := strings.CutPrefix(name, "repeat "); ok {
			count, text, _ := strings.Cut(rest, " ")
			n, _ := strconv.Atoi(count)

			var b strings.Builder
			for i := range n {
				b.WriteString(strings.ReplaceAll(text, "#", strconv.Itoa(i)))
			}

			return b.String()
		}

		return cmp.Or(vars[name], p)
	})
}

// matchText compares a text with one that may have placeholders, and records the values
// of new ones.
func matchText(want, have string, vars map[string]string) error {
	var names []string

	pattern, rest := "^", want
	for _, at := range placeholder.FindAllStringSubmatchIndex(want, -1) {
		offset := len(want) - len(rest)
		pattern += regexp.QuoteMeta(rest[:at[0]-offset])
		name := want[at[2]:at[3]]
		rest = want[at[1]:]

		if value, known := vars[name]; known {
			pattern += regexp.QuoteMeta(value)
			continue
		}

		pattern += "(.+?)"
		names = append(names, name)
	}

	found := regexp.MustCompile("(?s)" + pattern + regexp.QuoteMeta(rest) + "$").FindStringSubmatch(have)
	if found == nil {
		return fmt.Errorf("%q, want %q", have, fill(want, vars))
	}

	for i, name := range names {
		if name != "*" {
			vars[name] = found[i+1]
		}
	}

	return nil
}

// matchJSON compares a value with the expected one.
func matchJSON(at string, want, have any, vars map[string]string) error {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %v, want an object", cmp.Or(at, "the body"), have)
		}

		for name, value := range w {
			member, there := h[name]
			switch {
			case value == "<<absent>>" && !there:
			case value == "<<absent>>":
				return fmt.Errorf("%s/%s is %v, want none", at, name, member)
			case !there:
				return fmt.Errorf("%s/%s is missing", at, name)
			default:
				if err := matchJSON(at+"/"+name, value, member, vars); err != nil {
					return err
				}
			}
		}
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			return fmt.Errorf("%s is %v, want an array of %d", at, have, len(w))
		}

		for i := range w {
			if err := matchJSON(at+"/"+strconv.Itoa(i), w[i], h[i], vars); err != nil {
				return err
			}
		}
	case string:
		if w == "<<*>>" {
			return nil
		}

		h, ok := have.(string)
		if !ok {
			return fmt.Errorf("%s is %v, want %q", at, have, w)
		}

		if err := matchText(w, h, vars); err != nil {
			return fmt.Errorf("%s is %w", at, err)
		}
	default:
		if want != have {
			return fmt.Errorf("%s is %v, want %v", at, have, want)
		}
	}

	return nil
}

// parseScript reads a script.
func parseScript(path string) ([]*exchange, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	p := scriptParser{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)

	for n := 1; lines.Scan(); n++ {
		if err := p.line(lines.Text(), n); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), n, err)
		}
	}

	for _, x := range p.exchanges {
		if x.method == "" || x.status == 0 {
			return nil, fmt.Errorf("%s:%d: %s: it needs a request and a status", filepath.Base(path), x.line, x.title)
		}
	}

	return p.exchanges, lines.Err()
}

type scriptParser struct {
	exchanges []*exchange
	inBody    bool // behind the empty line of a request or an answer
	wait      time.Duration
}

func (p *scriptParser) line(s string, n int) (err error) {
	if title, ok := strings.CutPrefix(s, "== "); ok {
		p.exchanges = append(p.exchanges, &exchange{title: title, line: n, wait: p.wait})
		p.inBody, p.wait = false, 0

		return nil
	}

	if s == "" || s[0] == '#' {
		return nil
	}

	if d, ok := strings.CutPrefix(s, "* wait "); ok {
		p.wait, err = time.ParseDuration(d)
		return err
	}

	if len(p.exchanges) == 0 {
		return fmt.Errorf("%q stands before the first exchange", s)
	}

	x := p.exchanges[len(p.exchanges)-1]

	rest := strings.TrimPrefix(s[1:], " ")
	switch s[0] {
	case '>':
		return p.request(x, rest)
	case '<':
		return p.answer(x, rest)
	}

	return fmt.Errorf("%q is no line of a script", s)
}

func (p *scriptParser) request(x *exchange, s string) error {
	switch {
	case x.method == "":
		parts := strings.SplitN(s, " ", 3)
		if len(parts) != 3 {
			return fmt.Errorf("%q is not WHO METHOD TARGET", s)
		}

		x.who = parts[0]
		x.method = parts[1]
		x.target = parts[2]
		p.inBody = false
	case p.inBody:
		x.body += s + "\n"
	case s == "":
		p.inBody = true
	default:
		name, value, ok := strings.Cut(s, ": ")
		if !ok {
			return fmt.Errorf("%q is no header", s)
		}

		x.header = append(x.header, [2]string{name, value})
	}

	return nil
}

func (p *scriptParser) answer(x *exchange, s string) (err error) {
	switch {
	case x.status == 0:
		x.body = strings.TrimSuffix(x.body, "\n")
		p.inBody = false
		x.status, err = strconv.Atoi(s)

		return err
	case p.inBody:
		x.wantBody += s + "\n"
	case s == "":
		p.inBody = true
	case s == "(empty)":
		x.empty = true
	case s[0] == '!':
		x.absent = append(x.absent, s[1:])
	default:
		name, value, ok := strings.Cut(s, ": ")
		if !ok {
			return fmt.Errorf("%q is no header", s)
		}

		x.want = append(x.want, [2]string{name, value})
	}

	return nil
}

// Every script parses and names the requirements that it shows.
func TestScriptsAreWellFormed(t *testing.T) {
	for draft, of := range map[string]struct {
		least int
		rows  string
	}{"jimenez": {13, "AD-"}, "xu": {5, "XU-"}, "cui": {5, "AI-"}} {
		paths, err := filepath.Glob("../api/testdata/" + draft + "-*.txt")
		if err != nil || len(paths) < of.least {
			t.Fatalf("only %d scripts of %s were found (%v)", len(paths), draft, err)
		}

		for _, path := range paths {
			exchanges, err := parseScript(path)
			if err != nil {
				t.Error(err)
			}

			if text, _ := os.ReadFile(path); len(exchanges) == 0 ||
				!bytes.Contains(text, []byte("\n# Requirement: "+of.rows)) {
				t.Errorf("%s has no exchange, or names no requirement", path)
			}
		}
	}
}

// A runner that lets everything pass would show nothing.
func TestScriptsFailOnADifference(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/ad/r/7")
		w.Header().Set("Link", "next")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, `{"agent": "`+r.URL.Query().
			Get("agent")+`", "lt": 60, "list": [{"a": 1}, {"b": 2}], "more": true}`)
	}))
	defer server.Close()

	env := scriptEnv{URL: server.URL, Domain: "alpha.test", Client: func(string) *http.Client {
		return server.Client()
	}}
	for expectation, right := range map[string]bool{
		"< 200": true, "< 201": false,
		"< 200\n< Location: /ad/r/<<rid>>": true, "< 200\n< Location: /ad/r/8": false,
		"< 200\n< Location: <<domain>>": false,
		"< 200\n< ETag: <<etag>>":       false, "< 200\n< !ETag": true, "< 200\n< !Link": false,
		"< 200\n< (empty)": false,
		"< 200\n<\n< {}":   true, "< 200\n<\n< []": false,
		`< 200` + "\n<\n" + `< {"agent": "xxx", "lt": 60}`:                                   true,
		`< 200` + "\n<\n" + `< {"agent": "x<<rest>>"}`:                                       true,
		`< 200` + "\n<\n" + `< {"agent": "y<<rest>>"}`:                                       false,
		`< 200` + "\n<\n" + `< {"lt": 61}`:                                                   false,
		`< 200` + "\n<\n" + `< {"lt": "60"}`:                                                 false,
		`< 200` + "\n<\n" + `< {"lt": "<<*>>", "vendor": "<<absent>>"}`:                      true,
		`< 200` + "\n<\n" + `< {"more": "<<absent>>"}`:                                       false,
		`< 200` + "\n<\n" + `< {"vendor": "Example"}`:                                        false,
		`< 200` + "\n<\n" + `< {"list": [{"a": 1}, {}]}`:                                     true,
		`< 200` + "\n<\n" + `< {"list": [{"a": 1}]}`:                                         false,
		`< 200` + "\n<\n" + `< {"list": [{"b": 2}, {"a": 1}]}`:                               false,
		"< 200\n< Location: /ad/r/<<one>>\n<\n" + `< {"agent": "<<one>>"}`:                   false,
		"< 200\n< Location: <<*>>/<<one>>\n< Link: n<<two>>t\n<\n" + `< {"agent": "<<*>>x"}`: true,
	} {
		path := filepath.Join(t.TempDir(), "one.txt")

		script := "# described by its test\n== one\n> ada GET /x?agent=<<repeat 3 x>>\n" + expectation + "\n"
		must(t, os.WriteFile(path, []byte(script), 0o600))

		exchanges, err := parseScript(path)
		must(t, err)

		err = exchanges[0].run(env, map[string]string{"domain": env.Domain}, map[string]string{})
		if (err == nil) != right {
			t.Errorf("%s\nends with %v", expectation, err)
		}
	}
}
