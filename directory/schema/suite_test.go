package schema

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The public suite's files for 2020-12 and draft-07, as a module that the MCP
// library requires has them. Left out is the file whose schemas refer to others on a
// server: nothing is fetched here.
func TestPublicSuite(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}

	cases, remote := 0, 0

	for _, draft := range []string{"draft2020-12", "draft7"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "jsonschema/testdata", draft,
			"*.json"))
		if err != nil || len(files) == 0 {
			t.Fatal(draft, files, err)
		}

		for _, file := range files {
			if filepath.Base(file) != "refRemote.json" {
				ran, refused := runSuite(t, file, draft)
				cases += ran
				remote += refused
			}
		}
	}

	if cases < 1500 || remote != 7 {
		t.Errorf("%d cases ran, %d schemas refer to others; want at least 1500, and 7", cases, remote)
	}
}

// runSuite returns how many cases it ran, and how many schemas it refused because
// they refer to documents on the suite's server or to another draft's metaschema.
func runSuite(t *testing.T, file, draft string) (cases, remote int) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var groups []struct {
		Description string         `json:"description"`
		Schema      jsontext.Value `json:"schema"`
		Tests       []struct {
			Description string         `json:"description"`
			Data        jsontext.Value `json:"data"`
			Valid       bool           `json:"valid"`
		} `json:"tests"`
	}
	if err := json.Unmarshal(raw, &groups); err != nil {
		t.Fatal(err)
	}

	for _, group := range groups {
		name := draft + "/" + filepath.Base(file) + ": " + group.Description
		schema := string(group.Schema)

		if draft == "draft7" && strings.HasPrefix(schema, "{") && !strings.Contains(schema, "$schema") {
			schema = `{"$schema":"http://json-schema.org/draft-07/schema#",` + schema[1:]
			schema = strings.Replace(schema, ",}", "}", 1)
		}

		s, err := compile([]byte(schema))
		if outside := (*remoteError)(nil); errors.As(err, &outside) {
			remote++
			continue
		}

		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		for _, test := range group.Tests {
			cases++

			violations, err := s.validate(test.Data, 8, NewBudget(MaxSteps))
			if err != nil || (len(violations) == 0) != test.Valid {
				t.Errorf("%s: %s: %v, %v; want valid %t", name, test.Description, violations, err, test.Valid)
			}
		}
	}

	return cases, remote
}
