package scenarios

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// owned are the packages, with those below them, in which each state has one owner. Others are to
// follow: directory/schema and trust have a pair of structs that point at each other.
var owned = []string{"consensus", "federation", "limit", "node", "gateway", "api", "discovery"}

// mostSiblings bounds the pointers of a struct with methods to structs of its package.
const mostSiblings = 4

// manySiblings are the structs that may have more, and why. The list only becomes shorter.
var manySiblings = map[string]string{
	"consensus/state.Command":       "data: a command has one member of many",
	"consensus/message.Request":     "data: a request has one member of many",
	"consensus/state.Registrations": "its commands change most other parts of the state",
}

// A state has one owner: a lock is a field that is not exported and is taken by methods of its type
// alone, no two structs of a package point at each other, and a struct with methods points at few
// others.
func TestLayersHaveOwners(t *testing.T) {
	for _, dir := range slices.Sorted(maps.Keys(layers)) {
		top, _, _ := strings.Cut(dir, "/")
		if !slices.Contains(owned, top) {
			continue
		}

		complaints, err := disowned(os.DirFS(".."), dir)
		must(t, err)

		for _, c := range complaints {
			t.Error(c)
		}
	}
}

// disowned lists where a package's states have other owners than their types. Tests are left out.
func disowned(root fs.FS, dir string) (complaints []string, err error) {
	names, err := fs.Glob(root, path.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("%s has %d Go files: %w", dir, len(names), errors.Join(err, fs.ErrNotExist))
	}

	fset, pointers, methods := token.NewFileSet(), map[string][]string{}, map[string]bool{}

	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}

		src, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}

		file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}

		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				maps.Copy(pointers, pointersOf(decl))
			case *ast.FuncDecl:
				receiver, kind := receiverOf(decl)
				methods[kind] = true

				for _, lock := range foreignLocks(decl, receiver) {
					complaints = append(complaints, fmt.Sprintf("%s: a lock is taken outside of its owner's methods",
						fset.Position(lock)))
				}
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(pointers)) {
		siblings := slices.DeleteFunc(pointers[name], func(to string) bool { return pointers[to] == nil })
		if methods[name] && len(siblings) > mostSiblings && manySiblings[dir+"."+name] == "" {
			complaints = append(complaints, fmt.Sprintf("%s.%s points at %d structs of its package, the most is %d: %s",
				dir, name, len(siblings), mostSiblings, list(siblings)))
		}

		for _, to := range siblings {
			if name < to && slices.Contains(pointers[to], name) {
				complaints = append(complaints, fmt.Sprintf("%s: %s and %s point at each other", dir, name, to))
			}
		}
	}

	return complaints, nil
}

// pointersOf returns the structs of a declaration, each with the types of its package at which its
// fields point.
func pointersOf(decl *ast.GenDecl) map[string][]string {
	found := map[string][]string{}

	for _, spec := range decl.Specs {
		spec, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}

		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}

		to := []string{}

		for _, field := range fields.Fields.List {
			star, _ := field.Type.(*ast.StarExpr)
			if star == nil {
				continue
			}

			if sibling, ok := star.X.(*ast.Ident); ok {
				to = append(to, slices.Repeat([]string{sibling.Name}, max(1, len(field.Names)))...)
			}
		}

		found[spec.Name.Name] = to
	}

	return found
}

// receiverOf returns the name and the type of a method's receiver, "" for a function.
func receiverOf(decl *ast.FuncDecl) (name, kind string) {
	if decl.Recv == nil {
		return "", ""
	}

	receiver := decl.Recv.List[0]
	if len(receiver.Names) > 0 {
		name = receiver.Names[0].Name
	}

	at := receiver.Type
	if star, ok := at.(*ast.StarExpr); ok {
		at = star.X
	}

	if index, ok := at.(*ast.IndexExpr); ok {
		at = index.X
	}

	if ident, ok := at.(*ast.Ident); ok {
		kind = ident.Name
	}

	return name, kind
}

// foreignLocks returns where a function takes a lock that is a field of another value than its
// receiver, or that is exported.
func foreignLocks(decl *ast.FuncDecl, receiver string) (found []token.Pos) {
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}

		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || method.Sel.Name != "Lock" && method.Sel.Name != "RLock" {
			return true
		}

		lock, ok := method.X.(*ast.SelectorExpr)
		if !ok {
			return true
		}

		if owner, ok := lock.X.(*ast.Ident); !ok || owner.Name != receiver || lock.Sel.IsExported() {
			found = append(found, call.Pos())
		}

		return true
	})

	return found
}

// Each kind of violation is found and named, and what is allowed is not.
func TestLayersHaveOwnersFindsViolations(t *testing.T) {
	for source, want := range map[string]string{
		`type a struct { mu sync.Mutex }
func (x *a) f() { x.mu.Lock() }`: "",
		`type a struct { mu sync.Mutex }
type b struct { a *a }
func (x *b) f() { x.a.mu.Lock() }`: "p/p.go:5:19: a lock is taken outside",
		`type a struct { mu sync.Mutex }
func f(x *a) { x.mu.RLock() }`: "p/p.go:4:16: a lock is taken outside",
		`type a struct { Mu sync.Mutex }
func (x *a) f() { x.Mu.Lock() }`: "p/p.go:4:19: a lock is taken outside",
		"type a struct { b *b }\ntype b struct { a *a }":  "a and b point at each other",
		"type a struct { b *b }\ntype b struct { a int }": "",
		`type a struct { b, c, d, e, f *b }
type b struct{}
func (a) m() {}`: "p.a points at 5 structs",
		"type a struct { b, c, d, e, f *b }\ntype b struct{}": "", // data
		`type a struct { b, c, d, e *b }
type b struct{}
func (a) m() {}`: "",
	} {
		root := fstest.MapFS{"p/p.go": {Data: []byte("package p\n\n" + source)}}

		complaints, err := disowned(root, "p")
		must(t, err)

		if got := strings.Join(complaints, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\nfinds %q, want %q", source, got, want)
		}
	}
}
