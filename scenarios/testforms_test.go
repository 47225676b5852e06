package scenarios

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test can fail: it has a body, and files that it finds by a pattern are counted, because
// a pattern that matches nothing is no error.
func TestTestsCanFail(t *testing.T) {
	files := 0

	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		files++

		faults, err := faultyTests(path, nil)
		for _, fault := range faults {
			t.Error(fault)
		}

		return err
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files read: %v", files, err)
	}
}

func TestTestsCanFailFindsFaults(t *testing.T) {
	const src = `package p

func TestEmpty(t *testing.T) {}

func TestCommentOnly(t *testing.T) {
	// nothing
}

func TestUncounted(t *testing.T) {
	files, _ := filepath.Glob("*.json")
	for _, file := range files {
		check(t, file)
	}
}

func TestUncountedInPlace(t *testing.T) {
	for _, file := range must(fs.Glob(root, "*.json")) {
		check(t, file)
	}
}

func TestUncountedButAnother(t *testing.T) {
	files, err := filepath.Glob("*.json")
	others, err := filepath.Glob("*.txt")
	if len(files) == 0 {
		t.Fatal(err)
	}
	check(t, others...)
}

func TestCounted(t *testing.T) {
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}

	first := must(filepath.Glob("*.txt"))[0]
	others, _ := filepath.Glob("*.md")
	check(t, first, others[0])
}
`

	faults, err := faultyTests("p_test.go", src)
	must(t, err)

	for i, line := range []int{3, 5, 10, 17, 24} {
		if i >= len(faults) || !strings.HasPrefix(faults[i], fmt.Sprintf("p_test.go:%d:", line)) {
			t.Fatalf("%d is not the line of fault %d of %q", line, i, faults)
		}
	}

	if len(faults) != 5 {
		t.Errorf("%q", faults)
	}
}

// faultyTests returns what makes tests of a file pass whatever they test. The source is that
// of the file unless it is given.
func faultyTests(path string, src any) ([]string, error) {
	fset := token.NewFileSet()

	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	var faults []string

	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}

		if len(fn.Body.List) == 0 && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			faults = append(faults, fmt.Sprintf("%s: %s has no body", fset.Position(fn.Pos()), fn.Name))
		}

		for _, call := range uncountedGlobs(fn) {
			faults = append(faults, fmt.Sprintf("%s: count the files, because a pattern that matches none is no error",
				fset.Position(call.Pos())))
		}
	}

	return faults, nil
}

// uncountedGlobs returns the calls of Glob of which the result is neither counted by len nor
// read by an index.
func uncountedGlobs(fn *ast.FuncDecl) []*ast.CallExpr {
	var (
		globs   []*ast.CallExpr
		holders = map[*ast.CallExpr]string{} // the variables that hold the results
		counted []string
		indexed []ast.Expr
	)

	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if name, ok := n.Lhs[0].(*ast.Ident); ok && len(n.Rhs) == 1 {
				for call := range calls(n.Rhs[0]) {
					holders[call] = name.Name
				}
			}
		case *ast.IndexExpr:
			indexed = append(indexed, n.X)

			if name, ok := n.X.(*ast.Ident); ok {
				counted = append(counted, name.Name)
			}
		case *ast.CallExpr:
			if isGlob(n) {
				globs = append(globs, n)
			} else if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "len" {
				if of, ok := n.Args[0].(*ast.Ident); ok {
					counted = append(counted, of.Name)
				}
			}
		}

		return true
	})

	return slices.DeleteFunc(globs, func(call *ast.CallExpr) bool {
		return slices.Contains(counted, holders[call]) ||
			slices.ContainsFunc(indexed, func(x ast.Expr) bool { return calls(x)[call] })
	})
}

// isGlob reports whether a call is one of filepath.Glob or fs.Glob.
func isGlob(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}

	name, ok := selector.X.(*ast.Ident)

	return ok && (name.Name == "filepath" || name.Name == "fs") && selector.Sel.Name == "Glob"
}

// calls returns the calls within an expression, those of function literals aside.
func calls(x ast.Expr) map[*ast.CallExpr]bool {
	found := map[*ast.CallExpr]bool{}

	ast.Inspect(x, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			found[call] = true
		}

		_, literal := n.(*ast.FuncLit)

		return !literal
	})

	return found
}
