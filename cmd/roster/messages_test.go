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
