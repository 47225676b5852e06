package scenarios

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// unfinishedTexts lists packages whose texts are still to be rewritten, with those below
// them. An entry goes when its package has no finding.
var unfinishedTexts = map[string]bool{}

// forbiddenWords are words for which the field has a noun, in texts that people read:
// errors, log messages, help, problem details, metric help.
var forbiddenWords = regexp.MustCompile(
	`(?i)\b(told|heard|whoever|nobody|what it|had anew|none that|is none|goes here)\b`)

// Errors, logs, help and problem details keep to one form. This prints the findings of
// one package:
//
//	go test ./scenarios -run 'TestTexts/federation$' -v
func TestTexts(t *testing.T) {
	packages := ourPackages(t)
	for _, p := range packages {
		t.Run(p.name, func(t *testing.T) {
			for _, finding := range textFindings(p) {
				if textsUnfinished(p.name) {
					t.Log(finding)
				} else {
					t.Error(finding)
				}
			}
		})
	}

	for name := range unfinishedTexts {
		if !slices.ContainsFunc(packages, func(p checkedPackage) bool { return p.name == name }) {
			t.Errorf("unfinishedTexts: no package %s", name)
		}
	}
}

func textsUnfinished(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if unfinishedTexts[name] {
			return true
		}
	}

	return false
}

// textFindings lists what is wrong with the texts of one package, in the order of the
// source.
func textFindings(p checkedPackage) []string {
	var findings []string

	complain := func(at token.Pos, format string, args ...any) {
		position := p.fset.Position(at)
		findings = append(findings, fmt.Sprintf("%s:%d: ", filepath.Base(position.Filename),
			position.Line)+fmt.Sprintf(format, args...))
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec, *ast.Field:
				return false // a path, a struct tag
			case *ast.BasicLit:
				if text, ok := p.text(n); ok && strings.Contains(text, " ") {
					if word := forbiddenWords.FindString(text); word != "" {
						complain(n.Pos(), "%q in %.90q: name the thing", word, text)
					}
				}
			case *ast.CallExpr:
				p.checkCall(n, complain)
			}

			return true
		})
	}

	return findings
}

// checkCall checks the texts of one call, if it makes an error or writes a log line.
func (p checkedPackage) checkCall(call *ast.CallExpr, complain func(token.Pos, string, ...any)) {
	fn := p.callee(call)
	if fn == nil || fn.Pkg() == nil {
		return
	}

	switch fn.Pkg().Path() + "." + fn.Name() {
	case module + "/directory.Refuse":
		p.checkSentence(call.Args[1], "refusal", complain)
	case "errors.New", "fmt.Errorf":
		p.checkSentence(call.Args[0], "error", complain)
	case "log/slog.Debug", "log/slog.Info", "log/slog.Warn", "log/slog.Error":
		p.checkSentence(call.Args[0], "log message", complain)
		p.checkPairs(call.Args[1:], complain)
	case "log/slog.DebugContext", "log/slog.InfoContext", "log/slog.WarnContext", "log/slog.ErrorContext":
		p.checkSentence(call.Args[1], "log message", complain)
		p.checkPairs(call.Args[2:], complain)
	case "log/slog.Log", "log/slog.LogAttrs":
		p.checkSentence(call.Args[2], "log message", complain)
		p.checkPairs(call.Args[3:], complain)
	case "log/slog.With":
		p.checkPairs(call.Args, complain)
	case "log/slog.Any", "log/slog.String", "log/slog.Duration":
		p.checkPairs(call.Args[:2], complain)
	}
}

// callee returns the function or method that is called by name, or nil.
func (p checkedPackage) callee(call *ast.CallExpr) *types.Func {
	var name *ast.Ident
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		name = fun
	case *ast.SelectorExpr:
		name = fun.Sel
	default:
		return nil
	}

	fn, _ := p.info.Uses[name].(*types.Func)

	return fn
}

// text returns the value of a constant string.
func (p checkedPackage) text(expr ast.Expr) (string, bool) {
	value := p.info.Types[expr].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}

	return constant.StringVal(value), true
}

// checkSentence holds errors and log messages to begin in lower case and to end without
// a period. An abbreviation or a name in mixed case (SVID, GET, HTTP/2) may begin one.
func (p checkedPackage) checkSentence(expr ast.Expr, kind string, complain func(token.Pos, string, ...any)) {
	text, ok := p.text(expr)
	if !ok || text == "" {
		return
	}

	first, size := utf8.DecodeRuneInString(text)

	word, _, _ := strings.Cut(text[size:], " ")
	if unicode.IsUpper(first) && !strings.ContainsFunc(word, unicode.IsUpper) && !properNames[string(first)+word] {
		complain(expr.Pos(), "the %s %q begins in upper case", kind, text)
	}

	if strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "..") {
		complain(expr.Pos(), "the %s %q ends with a period", kind, text)
	}
}

// properNames may begin an error or a log message.
var properNames = map[string]bool{"Cedar": true, "Raft": true, "Ed25519": true}

// checkPairs checks keys and values of a log line.
func (p checkedPackage) checkPairs(args []ast.Expr, complain func(token.Pos, string, ...any)) {
	for len(args) > 0 {
		key, ok := p.text(args[0])
		if !ok || len(args) == 1 {
			args = args[1:] // a slog.Attr, or args...
			continue
		}

		if key == "error" {
			complain(args[0].Pos(), `the key of an error is "err"`)
		}

		value := p.info.Types[args[1]].Type
		switch {
		case value == nil:
		case value.String() == "time.Duration":
			complain(args[1].Pos(), "%q is a duration: log a number, with its unit in the key (%s_ms or %s_s)", key,
				key, key)
		case isBareStruct(value):
			complain(args[1].Pos(), "%q is a %s, which has no text of its own: log its fields", key, value)
		}

		args = args[2:]
	}
}

// isBareStruct reports whether a log handler would print a value by its fields.
func isBareStruct(t types.Type) bool {
	under := t
	if pointer, ok := under.Underlying().(*types.Pointer); ok {
		under = pointer.Elem()
	}

	if _, ok := under.Underlying().(*types.Struct); !ok {
		return false
	}

	methods := types.NewMethodSet(t)

	return !slices.ContainsFunc([]string{"Error", "String", "LogValue", "MarshalText"}, func(name string) bool {
		return methods.Lookup(nil, name) != nil
	})
}

// The checks find each kind of fault, and nothing in texts that keep to the form.
func TestTextsFindsFaults(t *testing.T) {
	dir := t.TempDir()

	src := `package p

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"
)

type pair struct{ a, b int }

func good(log *slog.Logger, err error) {
	log.Info("HTTP/2 is off", "err", err, "addr", netip.Addr{}, "took_ms", time.Second.Milliseconds())
	log.Warn("SVID expires soon", slog.Int("left_s", 3), "key")
	_ = errors.New("clock skew of 7.2s from the leader; synchronise this node's clock")
	_ = fmt.Errorf("GET %s: %w", "told", os.ErrNotExist)
}

func bad(log *slog.Logger, err error) {
	log.Info("Started")
	log.Info("is done.", "error", err)
	log.Warn("slow", "took", time.Second)
	log.Warn("values", slog.Any("error", err), "p", pair{}, "q", &pair{})
	_ = errors.New("This is not an error of ours")
	_ = fmt.Errorf("nobody answers: %w.", err)
}
`
	must(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(src), 0o600))

	ours := ourPackages(t)[0] // for its imports: a test built with -trimpath has no GOROOT to read them from

	p, err := checkPackage(ours.fset, ours.imports, listed{
		Dir: dir, ImportPath: module + "/p", GoFiles: []string{"p.go"},
	})
	must(t, err)

	findings := strings.Join(textFindings(p), "\n")
	for _, want := range []string{
		`"Started" begins in upper case`, `"is done." ends with a period`, `p.go:23: the key of an error`,
		`"took" is a duration`, `p.go:25: the key of an error`, `"p" is a`, `"q" is a`,
		`"This is not an error of ours" begins in upper case`, `"nobody" in`, `: %w." ends with a period`,
	} {
		if !strings.Contains(findings, want) {
			t.Errorf("no finding %s", want)
		}
	}

	if n := strings.Count(findings, "\n") + 1; n != 10 {
		t.Errorf("%d findings, want 10:\n%s", n, findings)
	}
}
