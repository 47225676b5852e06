package scenarios

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/scanner"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The limits of a package. Past them a package or type has several subjects, and a
// reader has to hold all of them to change one.
const (
	mostFiles   = 30  // of a package, tests aside
	mostMethods = 40  // of a type
	mostInCycle = 10  // files of a package that refer to each other in a circle
	mostColumns = 120 // of a line; a tab counts as four
)

// layout holds the figures of one package.
type layout struct {
	Package  string // path below the module
	Files    int    // Go files, tests aside
	Methods  map[string]int
	Cycle    []string // files of the largest reference cycle
	Uses     map[edge][]string
	LongTest []string // lines over mostColumns, as "file:line"; of tests
	Long     []string // … of other files
}

// An edge says that one file of a package refers to a name that another declares.
type edge struct{ from, to string }

// Each package is within the limits. This prints the figures of one package, and the
// references that make up its cycle:
//
//	go test ./scenarios -run 'TestLayerLimits/federation/gossip$' -v
func TestLayerLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the whole module compiled")
	}

	packages := ourPackages(t)
	for _, p := range packages {
		t.Run(p.name, func(t *testing.T) {
			l, err := measure(p)
			if err != nil {
				t.Fatal(err)
			}

			if testing.Verbose() {
				t.Log(l)
			}

			for _, complaint := range l.check() {
				t.Error(complaint)
			}
		})
	}
}

// check compares the figures with the limits.
func (l layout) check() []string {
	var complaints []string
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }

	if l.Files > mostFiles {
		complain("%d files, at most %d: move a subject to a package of its own", l.Files, mostFiles)
	}

	for _, name := range slices.Sorted(maps.Keys(l.Methods)) {
		if l.Methods[name] > mostMethods {
			complain("type %s has %d methods, at most %d: give a part its own type", name, l.Methods[name], mostMethods)
		}
	}

	if len(l.Cycle) > mostInCycle {
		complain("%d files refer to each other, at most %d: %s", len(l.Cycle), mostInCycle, strings.Join(l.Cycle, " "))
	}

	if len(l.Long) > 0 {
		complain("lines over %d columns: %s", mostColumns, strings.Join(l.Long, " "))
	}

	if len(l.LongTest) > 0 {
		complain("lines over %d columns: %s", mostColumns, strings.Join(l.LongTest, " "))
	}

	return complaints
}

// measure returns the figures of one package.
func measure(p checkedPackage) (layout, error) {
	l := layout{
		Package: p.name,
		Files:   len(p.GoFiles) + len(p.IgnoredGoFiles),
		Methods: map[string]int{},
		Uses:    map[edge][]string{},
	}

	for _, f := range p.files {
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				l.Methods[receiver(fn)]++
			}
		}
	}

	graph := map[string][]string{}

	for ident, object := range p.info.Uses {
		if object.Pkg() != p.types || !global(object) {
			continue
		}

		e := edge{filepath.Base(p.fset.Position(ident.Pos()).Filename),
			filepath.Base(p.fset.Position(object.Pos()).Filename)}
		if e.from != e.to && !slices.Contains(l.Uses[e], object.Name()) {
			l.Uses[e] = append(l.Uses[e], object.Name())
		}
	}

	for e := range l.Uses {
		graph[e.from] = append(graph[e.from], e.to)
	}

	l.Cycle = largestCycle(graph)

	for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
		var err error
		if l.Long, err = appendLong(l.Long, p.Dir, name); err != nil {
			return l, err
		}
	}

	for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		var err error
		if l.LongTest, err = appendLong(l.LongTest, p.Dir, name); err != nil {
			return l, err
		}
	}

	return l, nil
}

// receiver returns the name of the type whose method fn is.
func receiver(fn *ast.FuncDecl) string {
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// global reports whether an object is declared by its package, or is a method.
func global(object types.Object) bool {
	if object.Parent() == object.Pkg().Scope() {
		return true
	}

	fn, ok := object.(*types.Func)

	return ok && fn.Signature().Recv() != nil
}

// mostLiteral is the length of a string literal in a test from which on its line may be
// longer: a JSON document that is broken into pieces is harder to read.
const mostLiteral = 70

var alignment = regexp.MustCompile(` {2,}`)

// appendLong appends the lines of a file that have more than mostColumns columns.
func appendLong(long []string, dir, name string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}

	test := strings.HasSuffix(name, "_test.go")

	literals := map[int]bool{}
	if test {
		literals = longLiterals(text)
	}

	number := 0
	for line := range strings.Lines(string(text)) {
		number++

		line = strings.TrimRight(line, "\r\n")
		if test { // gofmt aligns the values of a table behind its longest key
			line = alignment.ReplaceAllString(line, " ")
		}

		if len([]rune(line))+3*strings.Count(line, "\t") > mostColumns && !literals[number] {
			long = append(long, fmt.Sprintf("%s:%d", name, number))
		}
	}

	return long, nil
}

// longLiterals returns the lines of a Go file on which a string literal has more than
// mostLiteral columns.
func longLiterals(text []byte) map[int]bool {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	lines := map[int]bool{}

	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)

	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}

		if tok != token.STRING && (tok != token.COMMENT || !strings.HasPrefix(literal, "// {")) { // an Example's output
			continue
		}

		for i, part := range strings.Split(literal, "\n") {
			if len([]rune(part)) > mostLiteral {
				lines[fset.Position(pos).Line+i] = true
			}
		}
	}
}

// largestCycle returns the largest set of nodes of which each leads to each other
// (Tarjan's strongly connected components), in order; none if there is no cycle.
func largestCycle(graph map[string][]string) []string {
	var (
		stack   []string
		largest []string
		index   = map[string]int{} // from 1, in the order of visits
		low     = map[string]int{}
		onStack = map[string]bool{}
		visit   func(string)
	)

	visit = func(node string) {
		index[node] = len(index) + 1
		low[node] = index[node]
		stack = append(stack, node)

		onStack[node] = true
		for _, next := range graph[node] {
			if index[next] == 0 {
				visit(next)
				low[node] = min(low[node], low[next])
			} else if onStack[next] {
				low[node] = min(low[node], index[next])
			}
		}

		if low[node] != index[node] {
			return
		}

		start := slices.Index(stack, node)
		component := slices.Clone(stack[start:])
		stack = stack[:start]

		for _, member := range component {
			onStack[member] = false
		}

		if len(component) > 1 && len(component) > len(largest) {
			largest = component
		}
	}
	for _, node := range slices.Sorted(maps.Keys(graph)) {
		if index[node] == 0 {
			visit(node)
		}
	}

	slices.Sort(largest)

	return largest
}

// String lists the figures, and each reference inside the cycle, those with the fewest
// names first: the ones to look at when a cycle is to be cut.
func (l layout) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d files, cycle of %d, long lines %d (tests %d)\n", l.Package, l.Files, len(l.Cycle),
		len(l.Long), len(l.LongTest))

	names := slices.SortedFunc(maps.Keys(l.Methods), func(a, b string) int {
		return cmp.Compare(l.Methods[b], l.Methods[a])
	})
	for _, name := range names[:min(3, len(names))] {
		fmt.Fprintf(&b, "  type %s: %d methods\n", name, l.Methods[name])
	}

	if len(l.Cycle) > 0 {
		fmt.Fprintf(&b, "  cycle: %s\n", strings.Join(l.Cycle, " "))
	}

	var inside []edge
	for e := range l.Uses {
		if slices.Contains(l.Cycle, e.from) && slices.Contains(l.Cycle, e.to) {
			inside = append(inside, e)
		}
	}

	slices.SortFunc(inside, func(a, b edge) int {
		return cmp.Or(cmp.Compare(len(l.Uses[a]), len(l.Uses[b])), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})

	for _, e := range inside {
		uses := l.Uses[e]
		slices.Sort(uses)
		fmt.Fprintf(&b, "  %3d %s -> %s: %s\n", len(uses), e.from, e.to, strings.Join(uses, " "))
	}

	return b.String()
}

// The figures of a small package are those that a reader counts, and each of them past
// its limit is a complaint.
func TestLayerLimitsFindViolations(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go":      "package p\n\ntype one struct{ next *two }\n\nfunc (o *one) first() { o.next.second() }\n",
		"b.go":      "package p\n\ntype two struct{}\n\nfunc (two) second() { third() }\n",
		"c.go":      "package p\n\nfunc third() { new(one).first() }\n",
		"d.go":      "package p\n\nvar _ = third\n\nvar _ = `" + strings.Repeat("x", mostColumns) + "`\n",
		"a_test.go": "package p\n\n//\t" + strings.Repeat("é", mostColumns-5) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	p, err := checkPackage(token.NewFileSet(), importer.Default(), listed{
		Dir: dir, ImportPath: module + "/p", GoFiles: []string{"a.go", "b.go", "c.go", "d.go"},
		TestGoFiles: []string{"a_test.go"},
	})
	if err != nil {
		t.Fatal(err)
	}

	l, err := measure(p)
	if err != nil {
		t.Fatal(err)
	}

	if l.Files != 4 || l.Methods["one"] != 1 || l.Methods["two"] != 1 {
		t.Errorf("%d files, methods %v; want 4 and one of each type", l.Files, l.Methods)
	}

	if !slices.Equal(l.Cycle, []string{"a.go", "b.go", "c.go"}) {
		t.Errorf("cycle of %q, want a.go, b.go and c.go", l.Cycle)
	}

	if !slices.Equal(l.Long, []string{"d.go:5"}) || !slices.Equal(l.LongTest, []string{"a_test.go:3"}) {
		t.Errorf("long lines %q and in tests %q, want d.go:5 and a_test.go:3", l.Long, l.LongTest)
	}

	l.Files = mostFiles + 1
	l.Methods["one"] = mostMethods + 1

	l.Cycle = make([]string, mostInCycle+1)
	if complaints := l.check(); len(complaints) != 5 {
		t.Errorf("%d complaints, want one for each limit: %q", len(complaints), complaints)
	}
}
