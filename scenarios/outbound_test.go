package scenarios

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// outbound are the names by which Go code opens a connection or makes a client, by package.
var outbound = map[string][]string{
	"net": {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialUnix", "DialIP", "Dialer", "LookupHost", "LookupIP",
		"LookupAddr", "DefaultResolver"},
	"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
	"net/http":   {"Get", "Head", "Post", "PostForm", "Client", "Transport", "DefaultClient", "DefaultTransport"},

	"github.com/spiffe/go-spiffe/v2/workloadapi":                      {"New", "NewX509Source", "NewJWTSource", "NewBundleSource"},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": {"New", "NewClient"},
}

// guardedFiles are the files of the gateway, and of the commands that fetch documents, that
// may use those names: the guard, clients whose transport is the guard's, and a question to the resolver
// without a connection.
var guardedFiles = []string{"gateway/dial.go", "gateway/loopback.go", "gateway/fetch.go", "gateway/mcp_client.go",
	"gateway/embeddings.go", "cmd/roster/agents/document.go"}

// guardedRooms are the beginnings of the paths of the gateway, and of the commands that fetch documents.
var guardedRooms = []string{"gateway/", "cmd/roster/agents/", "cmd/roster/connect/fetch", "cmd/roster/domain/"}

// The gateway, the prober, the crawler and the importers have no way out but the guard, and
// every place that opens a connection has a row under "Outbound connections" of
// docs/threats.md.
//
// Requirement: WOA-018, SEC-010
func TestEveryOutboundConnectionIsListed(t *testing.T) {
	used := outboundFiles(t, os.DirFS(".."))

	for file := range used {
		for _, room := range guardedRooms {
			if strings.HasPrefix(file, room) && !slices.Contains(guardedFiles, file) {
				t.Errorf("%s uses %s: requests to targets of others go through gateway.Guard", file, used[file])
			}
		}
	}

	text, err := os.ReadFile("../docs/threats.md")
	must(t, err)

	_, section, _ := strings.Cut(string(text), "\n## Outbound connections\n")
	section, _, _ = strings.Cut(section, "\n## ")

	listed := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\|.*$`).FindAllString(section, -1) {
		for _, file := range regexp.MustCompile("`([a-z_/]+\\.go)`").FindAllStringSubmatch(row, -1) {
			listed[file[1]] = true
		}
	}

	for _, file := range slices.Sorted(maps.Keys(used)) {
		if !listed[file] {
			t.Errorf("docs/threats.md, Outbound connections: no row names %s, which uses %s", file, used[file])
		}
	}

	for file := range listed {
		if used[file] == nil {
			t.Errorf("docs/threats.md, Outbound connections: %s opens none", file)
		}
	}
}

// outboundFiles returns the files outside of tests that use names of outbound, with those.
func outboundFiles(t *testing.T, root fs.FS) map[string][]string {
	t.Helper()

	used := map[string][]string{}

	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "scenarios" || d.Name() == "testdata" ||
			name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}

		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}

		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			return err
		}

		if names := outboundNames(file); len(names) > 0 {
			used[name] = names
		}

		return nil
	})
	must(t, err)

	return used
}

// outboundNames returns the names of outbound that a file uses. A pointer to a client that
// another file makes is no use.
func outboundNames(file *ast.File) (names []string) {
	packages := map[string][]string{}

	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil || outbound[imported] == nil {
			continue
		}

		local := imported[strings.LastIndex(imported, "/")+1:]
		if spec.Name != nil {
			local = spec.Name.Name
		}

		packages[local] = outbound[imported]
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			return false
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && slices.Contains(packages[of.Name], n.Sel.Name) {
				names = append(names, of.Name+"."+n.Sel.Name)
			}
		}

		return true
	})

	return names
}
