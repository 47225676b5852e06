package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Messages of failures begin in lower case, or with the name of an argument, and have no
// final period: they follow "roster: ".
func TestFailureMessagesAreLowerCase(t *testing.T) {
	upper := regexp.MustCompile(`^[A-Z][a-z]`)

	messages := failureMessages(t)
	if len(messages) < 100 {
		t.Errorf("only %d messages found", len(messages))
	}

	for at, message := range messages {
		if upper.MatchString(message) || strings.HasSuffix(message, ".") {
			t.Errorf("%s: %q must begin in lower case and have no final period", at, message)
		}

		if word := riddles.FindString(message); word != "" {
			t.Errorf("%s: %q in %q: name the thing", at, word, message)
		}
	}
}

// failureMessages returns the messages of all calls of cli.Failed and cli.Usage, by their
// places.
func failureMessages(t *testing.T) map[string]string {
	t.Helper()

	messages := map[string]string{}
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}

		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if message := failureMessage(call); message != "" {
					messages[fset.Position(call.Pos()).String()] = message
				}
			}

			return true
		})

		return nil
	})
	must(t, err)

	return messages
}

// failureMessage returns the message of a call that makes a failure; nothing for other
// calls.
func failureMessage(call *ast.CallExpr) string {
	name := ""
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = fun.Sel.Name
	case *ast.Ident:
		name = fun.Name
	}

	if !slices.Contains([]string{"Failed", "Usage"}, name) {
		return ""
	}

	for _, arg := range call.Args {
		if text := literalText(arg); text != "" {
			return text
		}
	}

	return ""
}

// literalText returns the text of a string literal, or of a sum of literals.
func literalText(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.BinaryExpr:
		return literalText(expr.X) + literalText(expr.Y)
	case *ast.BasicLit:
		if text, err := strconv.Unquote(expr.Value); err == nil && expr.Kind == token.STRING {
			return text
		}
	}

	return ""
}

// wireWords are those of requests, in place of which messages name arguments and flags.
var wireWords = regexp.MustCompile(`agent=NAME|owner=\.|cap_name|with force|[a-z]+=[A-Z]+`)

// Each mistake is explained: the message names what is wrong, with the argument or flag, the
// exit code is that of the mistake's kind, and the command that is suggested runs.
// notes/users.md: "--scope galaxy exits 2", "with force in CLI messages", "the second line of an error".
//
// Requirement: OPS-005, OPS-006
func TestWrongInputsAreExplained(t *testing.T) {
	w := newWorld(t, problem(404, "not-found", "There is no registration weather."))
	certificate := w.env["ROSTER_CERT"]
	file := w.file("agent.json", `{"base":"https://weather.example"}`)

	rows := []struct {
		line string
		code int
		says string
	}{
		{"lookup --scope galaxy", 2, `--scope must be one of mesh, domain, got "galaxy"`},
		{"register weather FILE --kind a2b", 2, "--kind must be one of"},
		{"register weather FILE --lt soon", 2, "--lt must be a whole number of seconds"},
		{"register weather FILE --visibility all", 2, "--visibility must be domain, mesh, or peers:"},
		{"register weather FILE --on-exit burn", 2, "--on-exit must be keep or remove"},
		{"register '' FILE", 2, "name is missing"},
		{"register a*b FILE", 2, "a*b"},
		{"register weather NOFILE", 1, "NOFILE: no such file"},
		{"register weather", 2, "register: missing FILE"},
		{"get", 2, "get: missing NAME|RID"},
		{"get a b", 2, `unexpected argument "b"`},
		{"get weather", 3, "no registration weather"},
		{"refresh weather", 3, "no registration weather"},
		{"deregister weather", 3, "no registration weather"},
		{"lookup rain", 2, "lookup takes no arguments"},
		{"lookup --count 101", 2, "--count must be 1 to 100"},
		{"lookup --count many", 2, "--count must be a whole number"},
		{"lookup --consistency strong", 2, "--consistency must be one of"},
		{"lookup --wait long", 2, "--wait must be a whole number of seconds"},
		{"lookup --colour", 2, "unknown flag: --colour"},
		{"lookup -o xml", 2, "--output must be one of table"},
		{"lookup --timeout long", 2, "--timeout must be a duration"},
		{"lookup --address http://127.0.0.1:1", 2, "must be https://HOST[:PORT]"},
		{"lookup --address 127.0.0.1:1", 2, `invalid directory address "127.0.0.1:1"`},
		{"lookup --address https://127.0.0.1:1", 6, "connection refused"},
		{"lookup --address=", 2, "no directory address"},
		{"lookup --cert=", 2, "--key without --cert"},
		{"lookup --key=", 2, "--cert without --key"},
		{"lookup --key KEYLESS", 12, "cannot use the client certificate"},
		{"lookup --bundle NOFILE", 1, "cannot read the bundle"},
		{"lookup --domain Beta_", 12, "of another domain"},
		{"lookup --context other", 2, `unknown context "other"`},
		{"version --address https://127.0.0.1:1", 2, "unknown flag: --address"},
		{"discover ''", 2, "QUERY must not be empty"},
		{"discover rain --limit 0", 2, "--limit must be 1 to 100"},
		{"discover rain --detail all", 2, "--detail must be one of"},
		{"discover rain --min-verification sure", 2, "--min-verification must be one of"},
		{"discover rain --resolve --detail full", 2, "--detail and --resolve exclude each other"},
		{"transfer weather", 2, "give one of --to"},
		{"transfer weather --to bob", 2, "--to must be a SPIFFE"},
		{"transfer weather --force", 2, "--force needs --to"},
		{"import telegram x", 2, "telegram"},
		{"import a2a http://example.com/card.json", 2, "https"},
		{"raft", 2, "missing subcommand"},
		{"raft dance", 2, `unknown subcommand "dance"`},
		{"raft admit spiffe://alpha.test/agent/ada", 2, "ID must be"},
		{"peer invite Beta_", 2, "Beta_"},
		{"policy apply NOFILE", 1, "cannot read the policy"},
		{"revoke bob", 2, "IDENTITY must be"},
		{"verify NOFILE", 1, "NOFILE"},
		{"invoke weather hello", 3, "no registration weather"},
		{"snapshot restore", 2, "missing FILE"},
		{"snapshot restore NOFILE --new-epoch", 1, "cannot read the backup"},
		{"snapshot restore NOFILE --accept-loss-since now", 2, "--accept-loss-since must be a position"},
		{"snapshot restore NOFILE --force", 2, "unknown flag: --force"},
		{"doctor", 2, "missing --config FILE"},
		{"doctor --config FILE --log NOFILE", 2, "--log needs --bundle FILE"},
		{"doctor --config FILE --bundle x --ready", 2, "--bundle and --ready exclude each other"},
		{"get weather --proof --staple", 2, "--proof and --staple exclude each other"},
		{"serve", 2, "missing --config FILE"},
		{"frobnicate", 2, `unknown command "frobnicate"`},
		{"help frobnicate", 2, `unknown command "frobnicate"`},
	}
	if len(rows) < 40 {
		t.Fatalf("only %d mistakes", len(rows))
	}

	replace := strings.NewReplacer("NOFILE", filepath.Join(w.dir, "NOFILE"), "FILE", file,
		"KEYLESS", certificate)
	for _, row := range rows {
		t.Run(row.line, func(t *testing.T) {
			code, out, errs := w.run(words(replace.Replace(row.line))...)
			if code != row.code || out != "" || !strings.Contains(errs, row.says) {
				t.Errorf("exit code %d, want %d and %q: %s%s", code, row.code, row.says, out, errs)
			}

			if word := wireWords.FindString(errs); word != "" {
				t.Errorf("%q in %s", word, errs)
			}

			lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
			next, _ := strings.CutPrefix(lines[len(lines)-1], "Try: ")

			if len(lines) > 3 || next == "roster "+row.line {
				t.Errorf("too long, or the same again:\n%s", errs)
			}

			if next != lines[len(lines)-1] {
				checkNext(t, next)
			}
		})
	}
}
