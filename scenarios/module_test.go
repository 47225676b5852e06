package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// listed is the output of go list for one package.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles, IgnoredGoFiles []string
	TestGoFiles             []string
	XTestGoFiles            []string
	Module                  *struct{ Main bool }
}

// checkedPackage is a package of the module, type-checked from its source, tests aside.
type checkedPackage struct {
	listed
	name    string // path below the module
	fset    *token.FileSet
	imports types.Importer
	files   []*ast.File
	types   *types.Package
	info    *types.Info
}

// ourPackages returns every package of the module, checked once for all tests.
func ourPackages(t *testing.T) []checkedPackage {
	t.Helper()

	if testing.Short() {
		t.Skip("needs the whole module compiled")
	}

	packages, err := checkedModule()
	must(t, err)

	return packages
}

var checkedModule = sync.OnceValues(func() ([]checkedPackage, error) { return checkModule("..") })

// checkModule type-checks the packages of the module in dir. Their imports come from the
// export data that the compiler wrote, which takes a second in all.
func checkModule(dir string) ([]checkedPackage, error) {
	list := exec.Command("go", "list", "-deps", "-export",
		"-json=Dir,ImportPath,Export,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Module", "./...")
	list.Dir = dir
	list.Stderr = os.Stderr

	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}

	exports := map[string]string{}

	var ours []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}

		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main {
			ours = append(ours, p)
		}
	}

	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})

	var packages []checkedPackage
	for _, l := range ours {
		p, err := checkPackage(fset, imports, l)
		if err != nil {
			return nil, err
		}

		packages = append(packages, p)
	}

	return packages, nil
}

func checkPackage(fset *token.FileSet, imports types.Importer, l listed) (checkedPackage, error) {
	p := checkedPackage{
		listed:  l,
		name:    strings.TrimPrefix(l.ImportPath, module+"/"),
		fset:    fset,
		imports: imports,
		info:    &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}},
	}
	for _, name := range l.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil,
			parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return p, err
		}

		p.files = append(p.files, f)
	}

	config := types.Config{Importer: imports}

	var err error
	p.types, err = config.Check(l.ImportPath, fset, p.files, p.info)

	return p, err
}
