package scenarios

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A doc comment begins with the name that it documents, so that a search finds it and
// a renamed function doesn't keep the comment of another.
func TestDocCommentsBeginWithTheName(t *testing.T) {
	files := 0

	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		fset := token.NewFileSet()

		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}

		files++

		for _, decl := range file.Decls {
			if name, doc := documented(decl); doc != nil && !beginsWith(doc.Text(), name) {
				t.Errorf("%s: the comment of %s begins %.40q", fset.Position(doc.Pos()), name, doc.Text())
			}
		}

		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files read: %v", files, err)
	}
}

// documented returns the name and the comment of a function, or of a type that is
// declared alone.
func documented(decl ast.Decl) (name string, doc *ast.CommentGroup) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return d.Name.Name, d.Doc
	case *ast.GenDecl:
		if spec, ok := d.Specs[0].(*ast.TypeSpec); ok && d.Lparen == token.NoPos {
			return spec.Name.Name, d.Doc
		}
	}

	return "", nil
}

func beginsWith(text, name string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n,.:;('’", r) })
	if len(words) > 1 && (words[0] == "A" || words[0] == "An" || words[0] == "The") {
		words = words[1:]
	}

	return len(words) == 0 || words[0] == name
}
