package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// TestMain makes the program a command of the scripts in testdata.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"roster": main}) }

// The scripts run the real program: a user's commands and their output.
//
// Requirement: OPS-001, OPS-002, OPS-003, OPS-004, OPS-005, OPS-006
func TestScripts(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // as under nohup: what the scripts start is to have it all the same
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}

	field, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "data", "field"))
	must(t, err)

	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("FIELD", field)
			return writeProofs(t, e.WorkDir)
		},
		Condition: func(name string) (bool, error) {
			if name == "stories" {
				return directorytest.Full(), nil
			}

			_, err := os.Stat(field)

			return name == "field" && err == nil, nil
		},
		Cmds: commands,
	})
}

// writeProofs writes proof files, one authentic and one for each defect, and a key for
// backups.
func writeProofs(t *testing.T, dir string) error {
	s, stranger := newSigner(t), newSigner(t)
	good := s.proof(t)
	own, _ := s.ca.PEM()
	foreign, _ := stranger.ca.PEM()
	jwks, err := s.ca.Bundle().Marshal()
	must(t, err)
	backupKey, err := age.GenerateX25519Identity()
	must(t, err)

	for name, text := range map[string][]byte{
		"age.key":        []byte(backupKey.String() + "\n"),
		"age.pub":        []byte(backupKey.Recipient().String() + "\n"),
		"alpha.pem":      own,
		"alpha.jwks":     jwks,
		"stranger.pem":   foreign,
		"good.json":      good,
		"signature.json": altered(t, good, "page", func(page string) string { return page[:len(page)-8] + "AAAAAAAA" }),
		"swapped.json": altered(t, good, "page", func(string) string {
			return string(memberOf(t, stranger.proof(t), "page"))
		}),
		"keys.json": altered(t, good, "keys", func(string) string {
			return string(memberOf(t, stranger.proof(t), "keys"))
		}),
		"expired.json":   s.proofUntil(t, time.Now().Add(-time.Second), ""),
		"unlogged.json":  s.proofUntil(t, time.Now().Add(time.Hour), "alpha.test/roster/1\n1\nAAAA\n\n— x y\n"),
		"staple.json":    s.staple(t, good),
		"garbage.json":   []byte(`{"record":"x"}`),
		"record.sdjwt":   memberOf(t, good, "record"),
		"zeroed.sdjwt":   zeroed(t, memberOf(t, good, "record")),
		"alpha.keys":     memberOf(t, good, "keys"),
		"stranger.keys":  memberOf(t, stranger.proof(t), "keys"),
		"pretender.json": stranger.proof(t),
		"critical.json":  []byte(strings.Replace(string(good), "{", `{"ext":{"later":1},"crit":["later"],`, 1)),
		"extended.json":  []byte(strings.Replace(string(good), "{", `{"ext":{"later":1},`, 1)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}

	return nil
}
