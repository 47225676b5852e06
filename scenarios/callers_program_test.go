package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/launch"
)

// The built program authenticates to a node with an SVID of a Workload API, with a
// workload identity token, and with a bearer token that is limited to reads. Refusals
// are counted, and the node lists the accepted issuers.
//
// Requirement: TRUST-005, TRUST-006
func TestProgramAuthenticates(t *testing.T) {
	story(t)

	path, err := program()
	must(t, err)

	s := newWorkloadAPI(t, "alpha.test")
	s.serve("node.sock", "/roster/node/1")
	s.serve("agent.sock", "/agent/ada")
	l := newWorkloadNode(t, s)
	i := newIssuer(t)
	i.configure(&l.cfg)
	address := "https://" + l.at[l.cfg.Listen.API].Addr().String()
	l.cfg.Callers.Addresses = []string{address}
	s.must(l.start(t.Context()))
	launch.Eventually(l, "the node is ready", func() error { return l.node.Ready() })
	a := newAgent(t, s, "agent.sock")
	i.write("agent.json", []byte(`{"base":"https://agents.example/one"}`))
	i.write("bundle.pem", l.bundle(s))
	plain := func(sub, aud string) []byte {
		return []byte(i.sign("at+jwt", map[string]any{"iss": oauthIssuer, "sub": sub, "aud": aud,
			"exp": time.Now().Add(time.Hour).Unix()}))
	}
	i.write("plain", plain("ada", l.cfg.PublicURL))
	i.write("elsewhere", plain("ada", "https://elsewhere.test"))

	api := "--workload-api=" + s.address("agent.sock")

	byBundle := "--bundle=" + i.file("bundle.pem")
	for _, c := range []struct {
		name string
		env  string
		args []string
		code int
		want string // in the output
	}{
		{"registers with an SVID", "", []string{api, "register", "by-svid", i.file("agent.json")}, 0, "by-svid"},
		{"by the environment", "SPIFFE_ENDPOINT_SOCKET=" + s.address("agent.sock"),
			[]string{"get", "by-svid", "--provenance", "-o", "json"}, 0, "spiffe://alpha.test/agent/ada"},
		{"keeps a context", "", []string{api, "context", "set", "here"}, 0, ""},
		{"uses it", "", []string{"get", "by-svid"}, 0, "by-svid"},
		{"forgets it", "", []string{"context", "remove", "here"}, 0, ""},
		{"two identities", "", []string{api, "--cert=x", "--key=y", "lookup"}, 2, "exclude each other"},
		{"no address", "", []string{"--workload-api=/run/x", "lookup"}, 2, "unix:///PATH"},
		{"registers with a WIT", "", []string{byBundle, "--wit=" + i.file("wit"), "--wit-key=" + i.file("wit.key"),
			"register", "by-wit", i.file("agent.json")}, 0, "by-wit"},
		{"a WIT without key", "", []string{byBundle, "--wit=" + i.file("wit"), "lookup"}, 2, "--wit-key"},
		{"a WIT of the Workload API with a key", "",
			[]string{byBundle, "--wit=workload-api", "--wit-key=" + i.file("wit.key"), "lookup"}, 2,
			"--wit workload-api and --wit-key exclude each other"},
		{"two tokens", "", []string{byBundle, "--wit=workload-api", "--token-file=" + i.file("wit"), "lookup"}, 2,
			"one token"},
		{"a WIT of no Workload API", "", []string{byBundle, "--wit=workload-api", "lookup"}, 2, "--workload-api"},
		{"reads with a token", "", []string{byBundle, "--token-file=" + i.file("plain"), "lookup"}, 0, ""},
		{"a token does not write", "", []string{byBundle, "--token-file=" + i.file("plain"), "register", "by-token",
			i.file("agent.json")}, 4, ""},
		{"a token for another", "", []string{byBundle, "--token-file=" + i.file("elsewhere"), "lookup"}, 4, ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, path, c.args...)
		cmd.Env = append(os.Environ(), "ROSTER_ADDRESS="+address, "XDG_CONFIG_HOME="+i.dir, c.env)
		out, err := cmd.CombinedOutput()
		cancel()

		if got := cmd.ProcessState.ExitCode(); got != c.code || !bytes.Contains(out, []byte(c.want)) {
			t.Errorf("%s: exit code %d (%v), want %d and %q\n%s", c.name, got, err, c.code, c.want, out)
		}
	}

	resp, err := admin.Get("http://" + l.at[l.cfg.Listen.Admin].Addr().String() + "/metrics")
	s.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	s.must(err)

	if !strings.Contains(string(text), `roster_credentials_refused_total{reason="audience"} 1`) {
		t.Errorf("the refused token is not counted by its reason:\n%s", text)
	}

	l.tellsOfTokens(l.http(nil, a.bundles, true))
}

// bundle has the certificate authority of the node, and those of the system's store.
func (l *workloadNode) bundle(s *workloadAPI) (pem []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, ca := range s.cas {
		cert, _ := ca.PEM()
		pem = append(pem, cert...)
	}

	return pem
}

// tellsOfTokens fails unless anybody learns whose access tokens are taken (RFC 9728).
func (l *workloadNode) tellsOfTokens(c *http.Client) {
	l.Helper()

	resp, err := c.Get("https://" + l.cfg.Listen.API + "/.well-known/oauth-protected-resource")
	must(l, err)
	defer resp.Body.Close()

	var got struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Methods  []string `json:"bearer_methods_supported"`
	}

	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &got)
	}

	if err != nil || resp.StatusCode != http.StatusOK || got.Resource != l.cfg.PublicURL || len(got.Servers) != 1 ||
		got.Servers[0] != oauthIssuer ||
		len(got.Methods) != 1 || got.Methods[0] != "header" {
		l.Errorf("%v: %s: %s", err, resp.Status, body)
	}
}
