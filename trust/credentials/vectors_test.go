package credentials

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// joseText finds every text that looks like a compact JWS or JWE.
var joseText = regexp.MustCompile(`[A-Za-z0-9_+/=-]*(\.[A-Za-z0-9_+/=-]*){2,4}`)

// No token of a directory of published JOSE vectors, which ROSTER_VECTORS names,
// authenticates a caller.
//
// Requirement: TRUST-011
func TestPublishedVectorsAuthenticateNobody(t *testing.T) {
	dir := os.Getenv("ROSTER_VECTORS")
	if dir == "" {
		t.Skip("ROSTER_VECTORS names no directory of JOSE vectors")
	}

	d := newDoor(t, func(c *Config) { c.OAuth[0].Plain = PlainAlways })
	texts := 0

	must(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".json") {
			return err
		}

		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		for _, jws := range joseText.FindAllString(string(text), -1) {
			texts++

			for _, shown := range []Shown{{Bearer: jws}, {WIT: jws, Proof: jws, Path: "/ad/l"}} {
				if v, err := d.Verify(shown, time.Now()); err == nil {
					t.Errorf("%s: %s authenticates %s", file, jws, v.Identity)
				}
			}
		}

		return nil
	}))

	if texts == 0 {
		t.Error("the directory has no vectors")
	}
}
