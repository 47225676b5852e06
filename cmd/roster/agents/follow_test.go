package agents

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/gateway/crawl"
)

// startOrigin starts an origin on loopback and returns its URL and the file with its
// certificate.
func startOrigin(t *testing.T, h http.HandlerFunc) (url, bundle string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)

	bundle = filepath.Join(t.TempDir(), "source.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	must(t, os.WriteFile(bundle, certificate, 0o600))

	return s.URL, bundle
}

// import --keep follows the list of an origin: it refreshes unchanged agents, registers new
// and changed ones, and removes those that it registered and that are no longer listed.
//
// Requirement: WOA-013, WOA-032
func TestImportFollowsTheOrigin(t *testing.T) {
	var mu sync.Mutex // guards what the directory had to do

	var did []string
	made := map[string]string{} // by rid
	d := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		rid := strings.TrimPrefix(r.URL.Path, "/ad/r/")
		name := r.URL.Query().Get("agent")

		id, _, _ := strings.Cut(name, "@")
		switch {
		case r.Method == http.MethodDelete:
			did = append(did, "remove "+made[rid])
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/ad/r" && name != "":
			did = append(did, "register "+id)
			rid = fmt.Sprintf("01JWNTC0000000000000000%03d", len(made))
			made[rid] = id
			w.Header().Set("Location", "/ad/r/"+rid)
			w.WriteHeader(http.StatusCreated)
		default:
			var asked []struct{ ID string }
			must(t, json.NewDecoder(r.Body).Decode(&asked))

			told := []map[string]any{}
			for _, one := range asked {
				did = append(did, "refresh "+made[one.ID])
				told = append(told, map[string]any{"id": one.ID, "status": 204, "lt": 1860})
			}

			must(t, json.NewEncoder(w).Encode(told))
		}
	}))
	defer d.Close()
	agent := func(id, description string) string {
		return `{"id":"` + id + `","name":"N","description":"` + description +
			`","inputs":{"type":"object"},"outputs":{"type":"object"},"transports":["rest"]}`
	}
	listed := []string{agent("stays", "D"), agent("changes", "D"), agent("goes", "D")}
	away := false
	origin, bundle := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}

		text := `{"woa_version":"1","agents":[` + strings.Join(listed,
			",") + `],"transports":{"rest":{"base":"https://api.example.com","invoke_path":"/a/{agent_id}"}}}`
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text)))
		w.Header().Set("Content-Type", "application/woa+json")
		w.Header().Set("ETag", tag)

		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}

		fmt.Fprint(w, text)
	})

	var notes bytes.Buffer
	session := &connect.Session{
		Console:   &cli.Console{Stdout: io.Discard, Stderr: &notes, Program: "roster"},
		Directory: connect.NewDirectory(func(string) string { return "" }, nil),
	}
	im := &importer{
		session: session, fetch: connect.FetchOptions{Loopback: true, Bundle: bundle}, kind: directory.KindWoA,
	}
	items, err := im.gather(t.Context(), origin)
	must(t, err)
	im.check(items)
	r := newRegistrar(session, apiclient.NewDirect(d.URL, d.Client()), im.options)
	must(t, im.each(t.Context(), items, r.register))
	f := newFollower(im, r, origin, items)
	step := func(what string, fails bool, want ...string) {
		t.Helper()
		did = nil

		if err := f.update(t.Context()); (err != nil) != fails {
			t.Fatalf("%s: %v", what, err)
		}

		if slices.Sort(did); !slices.Equal(did, want) {
			t.Errorf("%s: %q, want %q", what, did, want)
		}
	}
	step("as it was", false, "refresh changes", "refresh goes", "refresh stays")
	listed = []string{agent("stays", "D"), agent("changes", "E"), agent("comes", "D")}
	step("changed", false, "refresh stays", "register changes", "register comes", "remove goes")
	away = true
	step("away", true)
	away = false
	step("back", false, "refresh changes", "refresh comes", "refresh stays")
	listed = []string{strings.Replace(agent("stays", "D"), `"inputs":{"type":"object"},`, ``, 1)}
	step("broken", false, "remove changes", "remove comes")
	step("and so on", false)

	if !strings.Contains(notes.String(), "no longer listed") {
		t.Errorf("it says %s", notes.String())
	}
}

// A lease that was cut, as before the end of a credential, is asked for in full again, and sets the pace for one
// round alone.
func TestACutLeaseIsAskedForInFullAgain(t *testing.T) {
	var asked string

	directory := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		_, _ = io.WriteString(w, `[{"id":"1","status":200,"lt":600},{"id":"2","status":200,"lt":600}]`)
	}))
	defer directory.Close()

	r := &registrar{client: apiclient.NewDirect(directory.URL, directory.Client()), options: apiclient.RegisterOptions{
		Lifetime: 10 * time.Minute}}
	items := []*item{{RID: "1", granted: 10 * time.Minute}, {RID: "2", granted: time.Second}}

	if wait := refreshDelay(slices.Values(items)); wait != time.Second {
		t.Errorf("the cut lease is refreshed after %s", wait)
	}

	items = r.refresh(t.Context(), items)

	wait := refreshDelay(slices.Values(items))
	if asked != `[{"id":"1","lt":0},{"id":"2","lt":600}]` || wait < 4*time.Minute {
		t.Errorf("asked was %s; the next refresh comes after %s", asked, wait)
	}
}

// An origin without a registered agent is read again when its caching ends, not at once.
//
// Requirement: WOA-013
func TestAnOriginWithoutAgentsIsReadOnceItIsStale(t *testing.T) {
	const fresh = 5 * time.Minute

	f := newFollower(&importer{crawled: &crawl.Result{Fresh: fresh}}, &registrar{}, "https://origin.example",
		[]*item{{Agent: "a", Result: refused}})
	if got := f.delay(); got != fresh {
		t.Errorf("the next round comes after %s, want %s", got, fresh)
	}
}

var must = directorytest.Must
