package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// A certificate authority that can't be opened is reported with the cause, and not as an absent one.
func TestAnAuthorityThatCannotBeOpenedIsNotAnAbsentOne(t *testing.T) {
	dir := t.TempDir()
	session := &connect.Session{Console: cli.NewConsole(cli.Streams{In: strings.NewReader("")}, "roster")}

	for name, want := range map[string]struct {
		code int
		text string
	}{
		"damaged": {cli.ExitFailed, "cannot open the certificate authority: " + filepath.Join(dir, "damaged")},
		"absent":  {cli.ExitNotFound, "has no certificate authority"},
	} {
		run := initialisation{session: session, given: answers{identities: fromCA, ca: filepath.Join(dir, name),
			trustDomain: "alpha.test", members: []string{"a=10.0.0.1"}}}

		if name == "damaged" {
			for _, file := range []string{authorityCertFile, authorityKeyFile} {
				must(t, os.MkdirAll(run.given.ca, 0o700))

				must(t, os.WriteFile(filepath.Join(run.given.ca, file), []byte("damaged"), 0o600))
			}
		}

		failure := cli.FailureOf(run.complete())
		if failure.Code != want.code || !strings.Contains(failure.Message, want.text) {
			t.Errorf("%s: %+v, want exit code %d and %q", name, failure, want.code, want.text)
		}
	}
}
