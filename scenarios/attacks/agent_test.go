package attacks

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// An agent shows its own SVID, which names the host of the directory, and answers in the
// directory's place. Host names don't make a node: the client accepts the node prefix of the
// directory's domain alone. A node without host names is accepted.
//
// Requirement: TRUST-001
func TestAnAgentDoesNotPoseAsTheDirectory(t *testing.T) {
	td := spiffeid.RequireTrustDomainFromString("alpha.test")
	ca, err := trust.NewCA(td, time.Now())
	must(t, err)
	pem, _ := ca.PEM()
	bundle := writeFile(t, t.TempDir(), "bundle.pem", pem)

	for path, want := range map[string]int{"/roster/node/1": 0, "/agent/eve": 12, "/roster/gateway/1": 12} {
		asked := 0
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++

			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"agents":[]}`)
		}))
		svid, err := ca.Issue(path, time.Hour, time.Now())
		must(t, err)
		source := trust.NewSource(svid)
		server.TLS = trust.ServerTLS(source, trust.NewBundles(), nil)
		server.TLS.Certificates = append(server.TLS.Certificates, *source.Certificate())
		server.StartTLS()
		defer server.Close()

		code, _, errs := runProgram(t, "lookup", "--address", server.URL, "--bundle", bundle)
		if code != want || (asked > 0) != (want == 0) {
			t.Errorf("%s: exit code %d, %d requests: %s", path, code, asked, errs)
		}

		if want != 0 && !strings.Contains(errs, "is not a node of alpha.test") {
			t.Errorf("%s: %s", path, errs)
		}
	}
}

// Sixteen hostile invocations at once cost a node a bounded amount of memory, and other
// callers' lookups stay fast (finding 3).
//
// Requirement: SEC-005
func TestHostileInputsCostOthersLittle(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	})

	var attacks []attack

	for i, hostile := range hostileJudgements() {
		name := fmt.Sprintf("hostile-%d", i)
		m.registerAgent(0, "agent/ada", name, server.URL, `"input_schema":`+hostile.schema)
		attacks = append(attacks, attack{hostile.name, "/agents/" + name + "/invoke", []byte(hostile.value)})
	}

	m.withstands(attacks)
}

// An agent registers the listeners of its own directory as its endpoint, by address and by
// name, so that the gateway would be its hands inside. Each is refused at every node before a
// connection is made, whichever member listens there (finding 4).
//
// Requirement: SEC-009
func TestAnAgentDoesNotReachTheDirectoryThroughItsGateway(t *testing.T) {
	m := startMesh(t, "--domains", "1", "--nodes", "3")
	endpoints := map[string]string{}

	for i, n := range m.Domains[0].Nodes {
		for kind, address := range map[string]string{
			"api": strings.TrimPrefix(n.API, "https://"), "admin": strings.TrimPrefix(n.Admin, "http://"),
			"raft": n.Raft, "gossip": n.Gossip,
		} {
			endpoints[fmt.Sprintf("%s-%d", kind, i)] = "https://" + address + "/v1/restore"
			endpoints[fmt.Sprintf("%s-%d-named", kind, i)] =
				"https://" + strings.Replace(address, "127.0.0.1", "localhost", 1) + "/agents/x/invoke"
		}
	}

	for name, endpoint := range endpoints {
		m.registerAgent(0, "agent/ada", name, endpoint, `"input_schema":{"type":"object"}`)
	}

	caller := m.as(0, "agent/bob")

	for _, n := range m.Domains[0].Nodes {
		for name := range endpoints {
			// Members publish their listeners once all read the version that has them.
			eventually(t, 30*time.Second, name+" is refused at "+n.ID, func() error {
				status, answer, err := ask(t.Context(), caller, http.MethodPost, n.API+"/agents/"+name+"/invoke",
					[]byte(`{}`))
				if err == nil && (status != http.StatusForbidden || !strings.Contains(problemOf(answer), `"address"`)) {
					err = fmt.Errorf("%d %s", status, answer)
				}

				return err
			})
		}
	}
}

// An identity from which policy withholds capabilities invokes an agent with whatever it
// guesses: no answer names an operation or a field (finding 9). Input that the only operation's schema
// refuses isn't sent to the agent, and the refusal says no more; other answers are those of an agent
// without operations.
//
// Requirement: SEC-014
func TestAnAgentLearnsNoWithheldOperation(t *testing.T) {
	m := startMesh(t, "--domains", "1")
	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{}`)
	})
	node := m.Domains[0].Nodes[0]
	shipped, err := os.ReadFile("../../trust/policy/shipped.cedar")
	must(t, err)

	policy := string(shipped) + `
@id("eve-sees-no-capabilities") @members("capabilities")
forbid (principal is Identity, action == Action::"read", resource)
when { principal.path == "/agent/eve" };`

	m.mustRun(append(m.operator(0), "policy", "apply", m.file([]byte(policy))))
	m.registerAgent(0, "agent/ada", "withheld", server.URL, `"input_schema":{"type":"object",
		"required":["canary"],"properties":{"canary":{"type":"integer"}}},"output_schema":{"required":["canary"]}`)

	bare := fmt.Appendf(nil, `{"base":%q,"protocols":["https"]}`, server.URL)
	target := node.API + "/ad/r?agent=without-ops"

	if status, _, answer, err := m.register(m.as(0, "agent/ada"), target, bare); err != nil ||
		status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, answer, err)
	}

	eve := m.as(0, "agent/eve")
	said := func(agent, path, body string) string {
		status, answer, err := ask(t.Context(), eve, http.MethodPost, node.API+"/agents/"+agent+path, []byte(body))
		must(t, err)

		return fmt.Sprint(status, problemOf(answer))
	}

	const withheld = "400The input doesn't fit the operation's schema, which is withheld from you."
	if got := said("withheld", "/invoke", `{"canary":"text"}`); got != withheld {
		t.Errorf("input that doesn't fit: %s, want %s", got, withheld)
	}

	for _, guess := range [][2]string{
		{"/invoke", `{"canary":"text"}`}, {"/invoke", `{}`}, {"/invoke", `{"operation":"do","input":{}}`},
		{"/invoke", `{"operation":"guess","input":{}}`}, {"/invoke", `[{},{"canary":"x"}]`}, {"/do", `{}`},
		{"/guess", `{}`},
	} {
		got, want := said("withheld", guess[0], guess[1]), said("without-ops", guess[0], guess[1])
		if got == withheld && guess[0] == "/invoke" {
			continue
		}

		if got != want || strings.Contains(got, "canary") {
			t.Errorf("%s %s: %s, but of an agent without operations %s", guess[0], guess[1], got, want)
		}
	}

	status, answer, err := ask(t.Context(), m.as(0, "agent/bob"), http.MethodPost, node.API+"/agents/withheld/invoke",
		[]byte(`{"canary":"text"}`))
	if err != nil || status != http.StatusBadRequest || !strings.Contains(problemOf(answer), "canary") {
		t.Errorf("a caller who sees the schema: %d %s %v", status, answer, err)
	}
}

// An agent has another identity appear as owner or registrant of what that never registered: by
// an offer, by the parameters and members that name identities, and by exchanging the contents
// under an offer. On no surface does the other identity appear before it has accepted the very
// contents that it saw (finding 5).
//
// Requirement: SEC-006, SEC-007, SEC-008, TRUST-008
func TestAnAgentMakesNobodyElseTheOwner(t *testing.T) {
	const bob = "spiffe://alpha.test/agent/bob"

	m := startMesh(t, "--domains", "1")
	shipped, err := os.ReadFile("../../trust/policy/shipped.cedar")
	must(t, err)
	m.mustRun(append(m.operator(0), "policy", "apply", m.file(shipped)))

	api, eve, victim := m.Domains[0].Nodes[0].API, m.as(0, "agent/eve"), m.as(0, "agent/bob")
	post := func(client *http.Client, path, body string) (int, string) {
		t.Helper()

		status, answer, err := ask(t.Context(), client, http.MethodPost, api+path, []byte(body))
		must(t, err)

		return status, string(answer)
	}
	document := func(base string) string {
		return `{"base":"` + base + `","description":"quixotic","owner":"` + bob + `","registrant":"` + bob +
			`","provenance":{"registrant":"` + bob + `","transferred_by":"` + bob + `"}}`
	}
	// The document may have members of these names, so bob is looked for in the provenance alone.
	names := func(text string) bool {
		for _, member := range []string{"registrant", "owner", "transferred_by", "registered_by"} {
			if regexp.MustCompile(`"provenance":\{[^}]*"` + member + `":"` + bob + `"`).MatchString(
				strings.ReplaceAll(text, `\"`, `"`)) {
				return true
			}
		}

		return false
	}

	status, location, answer, err := m.register(eve, api+"/ad/r?agent=invoice", []byte(document("https://eve.example")))
	if err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, answer, err)
	}

	transfer := location + "/transfer"
	for _, try := range []struct {
		path, body string
		status     int
	}{
		{"/ad/r?agent=for-bob&owner=" + url.QueryEscape(bob), `{"base":"https://eve.example"}`, 403},
		{transfer, `{"owner":"` + bob + `","force":true}`, 403},
		{transfer, `{"accept":true}`, 404},
		{transfer, `{"owner":"spiffe://elsewhere.test/agent/bob"}`, 403},
		{transfer, `{"owner":"` + bob + `","expires_in":604801}`, 400},
		{transfer, `{"owner":"` + bob + `","accept":true}`, 400},
		{transfer, `{"owner":"` + bob + `","expires_in":600}`, 202},
	} {
		if got, said := post(eve, try.path, try.body); got != try.status {
			t.Errorf("POST %s %s: %d %s, want %d", try.path, try.body, got, said, try.status)
		}
	}

	rid := strings.TrimPrefix(location, "/ad/r/")
	for where, text := range m.surfaces(victim, api, "invoice", rid, "quixotic") {
		if where != "GET /.well-known/woa.json" && !strings.HasSuffix(where, "/record") &&
			!strings.Contains(text, "spiffe://alpha.test/agent/eve") {
			t.Errorf("%s doesn't show the registrant: %s", where, text)
		}

		if names(text) {
			t.Errorf("%s names who never accepted: %s", where, text)
		}
	}

	// What was offered is not what would be accepted.
	if got, said := post(eve, location, `{"base":"https://phishing.example"}`); got != http.StatusNoContent {
		t.Fatalf("%d %s", got, said)
	}

	if got, said := post(victim, transfer, `{"accept":true}`); got != http.StatusConflict ||
		!strings.Contains(said, "offer-changed") {
		t.Errorf("an offer of other contents is accepted: %d %s", got, said)
	}

	// Nobody else accepts, declines, withdraws or sees an offer.
	post(eve, transfer, `{"owner":"`+bob+`"}`)
	ada := m.as(0, "agent/ada")

	for _, body := range []string{`{"accept":true}`, `{"accept":false}`} {
		if got, said := post(ada, transfer, body); got != http.StatusNotFound {
			t.Errorf("%s by another agent: %d %s", body, got, said)
		}
	}

	for method, want := range map[string]int{
		http.MethodGet: http.StatusNotFound, http.MethodDelete: http.StatusForbidden,
	} {
		if got, said, err := ask(t.Context(), ada, method, api+transfer, nil); err != nil || got != want {
			t.Errorf("%s by another agent: %d %s %v", method, got, said, err)
		}
	}

	if got, said := post(victim, transfer, `{"accept":true}`); got != http.StatusNoContent {
		t.Fatalf("%d %s", got, said)
	}

	for where, text := range m.surfaces(victim, api, "invoice", rid, "quixotic") {
		if where != "GET /.well-known/woa.json" && !strings.HasSuffix(where, "/record") && !names(text) {
			t.Errorf("%s doesn't show who accepted: %s", where, text)
		}
	}

	_, record, err := ask(t.Context(), victim, http.MethodGet, api+location+"/record", nil)
	must(t, err)

	_, out, _ := runProgram(t, "verify", m.file(record), "--bundle", m.Domains[0].Bundle, "-o", "json")
	if !strings.Contains(out, `"registrant":"`+bob+`"`) || !strings.Contains(out, `"owner":"`+bob+`"`) {
		t.Errorf("the record says %s", out)
	}
}

// auditRetention is the size of an audit log by default: audit.size times audit.files.
const auditRetention = 32 * 64 << 20

// One agent does as fast as it may what makes long lines and many: with names of 255 bytes
// it registers, refreshes lists, names one registration a thousand times in a list, and has
// changes refused, by the domain and before. In an hour its refusals and refreshes fill at
// most 1 % of the audit log, and its accepted changes 15 % (finding 8).
//
// Requirement: SEC-013
func TestAnAgentDoesNotPushTheAuditLogOut(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--domains", "1")
	node := m.Domains[0].Nodes[0]
	ada, eve := m.as(0, "agent/ada"), m.as(0, "agent/eve")

	// grown returns by how many bytes requests of a client make the log grow.
	grown := func(client *http.Client, method, path, body string, times int) (bytes float64, statuses map[int]int) {
		t.Helper()

		before, err := os.Stat(filepath.Join(node.Data, "audit.jsonl"))
		must(t, err)

		statuses = map[int]int{}

		for i := range times {
			target := node.API + strings.ReplaceAll(path, "NAME", fmt.Sprintf("%s%05d", strings.Repeat("a", 250), i))
			status, _, err := ask(t.Context(), client, method, target, []byte(body))
			must(t, err)

			statuses[status]++
		}

		time.Sleep(200 * time.Millisecond) // refusals are written behind

		after, err := os.Stat(filepath.Join(node.Data, "audit.jsonl"))
		must(t, err)

		return float64(after.Size() - before.Size()), statuses
	}

	const document, registrations = `{"base":"https://agent.example/"}`, 200

	accepted, statuses := grown(ada, "POST", "/ad/r?agent=NAME&lt=86400", document, registrations)
	if statuses[201] != registrations {
		t.Fatalf("registrations: %v", statuses)
	}

	items := make([]string, registrations)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id":"%s%05d","lt":86400}`, strings.Repeat("a", 250), i)
	}

	same := "[" + strings.TrimSuffix(strings.Repeat(items[0]+",", 200), ",") + "]"
	if _, statuses = grown(ada, "POST", "/ad/refresh", same, 5); statuses[400] != 5 {
		t.Errorf("a list that names one registration 200 times: %v", statuses)
	}

	list := "[" + strings.Join(items, ",") + "]"

	lists, statuses := grown(ada, "POST", "/ad/refresh", list, 30)
	if statuses[200] == 0 {
		t.Errorf("lists: %v", statuses)
	}

	refreshes, statuses := grown(ada, "POST", "/ad/r/NAME", "", 200)
	if statuses[404]+statuses[204]+statuses[429] == 0 {
		t.Errorf("refreshes: %v", statuses)
	}

	refused, statuses := grown(eve, "POST", "/ad/r?agent=NAME", document, 150)
	if statuses[409] == 0 || statuses[409] > 110 || statuses[429] == 0 {
		t.Errorf("names of others: %v", statuses)
	}

	taken := float64(statuses[409])
	before, statuses := grown(eve, "GET", "/v1/operator/raft", "", 300)

	if statuses[403] == 0 {
		t.Errorf("an operator's route: %v", statuses)
	}

	// The bounds are of a minute. A change has 50 tokens a second, and a refused one two.
	changes := accepted / registrations * 50 * 3600 / auditRetention
	others := (60*(lists+refreshes+before) + refused/taken*(100+2*3600)) / auditRetention
	t.Logf("in an hour: accepted changes %.2f %% of %d MiB (%.0f bytes each), refusals and refreshes %.2f %% "+
		"(lists and refreshes %.0f bytes a minute, %.0f bytes for each change refused by the domain, others %.0f bytes a minute)",
		100*changes, auditRetention>>20, accepted/registrations, 100*others, lists+refreshes, refused/taken, before)

	if changes > .15 || others > .01 {
		t.Errorf("%.1f %% and %.2f %% of the audit log in an hour, at most 15 %% and 1 %% are allowed", 100*changes,
			100*others)
	}
}

// An agent's bodies that never end, to its own invoke route by many connections and streams,
// take no more than the share of one identity (finding 21).
//
// Requirement: SEC-001, SEC-002
func TestEndlessBodiesOfAnAgentAreBounded(t *testing.T) {
	t.Setenv("GOGC", "20") // to measure what is held, not garbage

	m := startMesh(t, "--domains", "1")
	server := m.agentServer(0, "agent/ada", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	m.registerAgent(0, "agent/ada", "hog", server.URL, `"input_schema":{}`)

	var clients []*http.Client
	for range 8 {
		clients = append(clients, m.as(0, "agent/ada"))
	}

	m.holds(m.Domains[0].Nodes[0], endless{clients, 60, []target{{"/agents/hog/invoke", 900 << 10}}}, 32<<20)
}
